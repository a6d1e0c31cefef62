"""A trellis network from its delay lines: a chunk reads what it needs of the past, and no more."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from keras import ops

from keras_trellis.backend import current as backend
from keras_trellis.core.convolution import masked, multiply, rows
from keras_trellis.core.lines import Line, delayed, take
from keras_trellis.core.network import Network, Weights, activate
from keras_trellis.types import State, Tensor

_INPUTS = "inputs"


def lines(
    network: Network, channels: int, dtype: str, history: bool = False
) -> dict[str, Line]:
    """Returns the delay lines of a network, by name.

    A level reads h of the level below at k - 1 delays, and its other states at one.

    Args:
        network: the network's shape.
        channels: the number of input channels, p.
        dtype: that of inputs and states.
        history: whether a state may stand to the left of the first level. Otherwise all below it is
            zero, and it has no line.
    """
    injected = range(0, network.depth, network.inject_every)
    dilations = {network.dilation(level) for level in injected}
    taps = range(1, network.input_taps)
    read = {tap * dilation for tap in taps for dilation in dilations}
    made = {}
    if read:
        made[_INPUTS] = Line((channels,), tuple(sorted(read)), dtype)
    for level in range(0 if history else 1, network.depth):
        dilation = network.dilation(level)
        taps = range(1, max(network.kernel_size, 2))
        hidden, *others = names(network, level)
        delays = tuple(tap * dilation for tap in taps)
        made[hidden] = Line((network.units,), delays, dtype)
        for name in others:
            made[name] = Line((network.units,), (dilation,), dtype)
    return made


def names(network: Network, level: int) -> list[str]:
    """Returns the names of the lines of what stands below a level, that of h first."""
    return [f"level_{level}_{state}" for state in range(network.gate.states)]


def advance(
    network: Network,
    weights: Weights,
    inputs: Tensor,
    past: Mapping[str, Tensor],
    table: Mapping[str, Line],
) -> tuple[State, dict[str, Tensor]]:
    """Runs all levels over a chunk.

    Args:
        network: the network's shape.
        weights: its weights.
        inputs: the next steps, `[B, n, p]`, n known.
        past: of each line the entries that a chunk of n steps reads.
        table: the lines, by name.

    Returns:
        the top state, each `[B, n, units]`, and the new entries of each line, `[B, n, ...]`.
    """
    steps = inputs.shape[1]
    addends = _inject(network, weights, inputs, past, table)
    kernel = ops.cast(weights.recurrent_kernel, inputs.dtype)
    products = {}
    if steps == 1 and network.kernel_size > 1:
        products = _past_products(network, kernel, weights.state_mask, past)
    pushed = {_INPUTS: inputs} if _INPUTS in table else {}
    state = network.bottom(inputs, steps)
    for level in range(network.depth):
        dilation = network.dilation(level)
        terms = []
        if level % network.inject_every == 0:
            terms.append(addends[dilation])
        elif weights.bias is not None:
            terms.append(weights.bias)
        shifted = state
        below = names(network, level)
        if below[0] in table:
            pushed |= dict(zip(below, state, strict=True))
            read = [
                functools.partial(delayed, table[name], past[name], tensor)
                for name, tensor in zip(below, state, strict=True)
            ]
            shifted = tuple(one(dilation) for one in read)
            if level not in products:
                delays = [tap * dilation for tap in _past_taps(network.kernel_size)]
                taps = [*map(read[0], delays), state[0]]
                joined = _joined(taps, weights.state_mask)
                terms.append(multiply(joined, rows(kernel)))
            else:
                terms.append(products[level])
                if level:  # below the first one the present is zero
                    present = masked(state[0], weights.state_mask)
                    terms.append(multiply(present, kernel[-1]))
        total = functools.reduce(ops.add, terms)
        state = network.begun(activate(network.gate, total, shifted), level)
    return state, pushed


def _joined(taps: Sequence[Tensor], mask: Tensor | None) -> Tensor:
    """Returns taps side by side, `[B, n, taps * C]`, with the dropout mask of each."""
    return backend.join([masked(tap, mask) for tap in taps], axis=2)


def _inject(
    network: Network,
    weights: Weights,
    inputs: Tensor,
    past: Mapping[str, Tensor],
    table: Mapping[str, Line],
) -> dict[int, Tensor]:
    """Returns the injected input by the dilation of the levels, with the bias.

    Each is `[B, n, blocks * units]`.
    """
    kernel = weights.kernel
    injected = range(0, network.depth, network.inject_every)
    dilations = sorted({network.dilation(level) for level in injected})
    inputs = masked(inputs, weights.input_mask)
    if _INPUTS not in table:
        return dict.fromkeys(dilations, _biased(weights, multiply(inputs, kernel[-1])))
    line = table[_INPUTS]
    before = masked(past[_INPUTS], weights.input_mask)
    taps = _past_taps(network.input_taps)
    if inputs.shape[1] > 1:
        addends = {}
        for dilation in dilations:
            read = [delayed(line, before, inputs, tap * dilation) for tap in taps]
            joined = _joined([*read, inputs], None)
            addends[dilation] = _biased(weights, multiply(joined, rows(kernel)))
        return addends
    # The past of all dilations in one product.
    places = line.places(1)
    taken = [places.index(tap * dilation) for dilation in dilations for tap in taps]
    entries = take(before, taken)
    entries = ops.reshape(entries, [-1, len(dilations), len(taps) * line.shape[0]])
    present = _biased(weights, multiply(inputs, kernel[-1]))
    products = multiply(entries, rows(kernel[:-1])) + present
    by_dilation = backend.split(products, [1] * len(dilations), axis=1)
    return dict(zip(dilations, by_dilation, strict=True))


def _biased(weights: Weights, products: Tensor) -> Tensor:
    return products if weights.bias is None else products + weights.bias


def _past_products(
    network: Network,
    kernel: Tensor,
    mask: Tensor | None,
    past: Mapping[str, Tensor],
) -> dict[int, Tensor]:
    """Returns for each level with lines the product of the past taps of a single step.

    They are one product: where rows are few, its time is that of reading the kernel.
    """
    taps = {}
    for level in range(network.depth):
        hidden, *_ = names(network, level)
        if hidden in past:
            taps[level] = past[hidden]
    if not taps:
        return {}
    joined = masked(backend.join([*taps.values()], axis=1), mask)
    channels = (network.kernel_size - 1) * network.units
    by_level = ops.reshape(joined, [-1, len(taps), channels])
    products = multiply(by_level, rows(kernel[:-1]))
    return dict(
        zip(taps, backend.split(products, [1] * len(taps), axis=1), strict=True)
    )


def _past_taps(taps: int) -> range:
    """Returns how many dilations back the taps of a kernel read, the oldest first."""
    return range(taps - 1, 0, -1)
