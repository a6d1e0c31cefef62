"""A trellis network from its delay lines: a chunk reads what it needs of the past, and no more."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from keras import ops

from keras_trellis.backend import current as backend
from keras_trellis.core.convolution import masked, multiply, rows
from keras_trellis.core.lines import Line, read
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
    dilations = network.injected(range(network.depth))
    taps = range(1, network.input_taps)
    read_at = {tap * dilation for tap in taps for dilation in dilations}
    made = {}
    if read_at:
        made[_INPUTS] = Line((channels,), tuple(sorted(read_at)), dtype)
    for level in range(0 if history else 1, network.depth):
        dilation = network.dilation(level)
        # One delay at least, for the gate: it shifts h where there is a single tap, too.
        taps = range(1, max(network.kernel_size, 2))
        hidden, *others = names(network, level)
        delays = tuple(tap * dilation for tap in taps)
        made[hidden] = Line((network.units,), delays, dtype)
        made |= dict.fromkeys(others, Line((network.units,), (dilation,), dtype))
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
    past_taps = _past_taps(network.kernel_size)
    products = {}
    # The past taps of a single step are known before its first level runs. In a longer chunk a
    # level reads what the level below makes of the chunk.
    if steps == 1 and past_taps:
        products = _past_products(network, kernel, weights.state_mask, past)
    pushed = {_INPUTS: inputs} if _INPUTS in table else {}
    state = network.bottom(inputs, steps)
    for level in range(network.depth):
        dilation = network.dilation(level)
        terms = []
        if level % network.inject_every == 0:
            terms.append(addends[dilation])
        # The injected input has the bias in it.
        elif weights.bias is not None:
            terms.append(weights.bias)
        # Without a line all below is zero, and so it is when it is delayed.
        shifted = state
        below = names(network, level)
        if below[0] in table:
            pushed |= dict(zip(below, state, strict=True))
            reading = [
                functools.partial(read, table[name], past[name], tensor)
                for name, tensor in zip(below, state, strict=True)
            ]
            shifted = tuple(one([[dilation]]) for one in reading)
            if past_taps and level not in products:
                taps = reading[0]([[tap * dilation for tap in past_taps]])
                taps = masked(taps, weights.state_mask)
                products[level] = _product(kernel, taps, steps)
            if past_taps:
                terms.append(products[level])
            if level:  # below the first one the present is zero
                present = masked(state[0], weights.state_mask)
                terms.append(multiply(present, kernel[-1]))
        total = functools.reduce(ops.add, terms)
        state = network.begun(activate(network.gate, total, shifted), level)
    return state, pushed


def _product(kernel: Tensor, taps: Tensor, outputs: int) -> Tensor:
    """Returns past taps `[B, outputs * (k - 1), C]` times their kernels, `[B, outputs, C']`."""
    flat = ops.reshape(taps, [-1, outputs, (kernel.shape[0] - 1) * kernel.shape[1]])
    return multiply(flat, rows(kernel[:-1]))


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
    dilations = sorted(network.injected(range(network.depth)))
    inputs = masked(inputs, weights.input_mask)
    present = multiply(inputs, kernel[-1])
    if weights.bias is not None:
        present = present + weights.bias
    if _INPUTS not in table:
        return dict.fromkeys(dilations, present)
    # The past of all dilations in one product.
    taps = _past_taps(network.input_taps)
    windows = [[tap * dilation for tap in taps] for dilation in dilations]
    before = masked(past[_INPUTS], weights.input_mask)
    entries = read(table[_INPUTS], before, inputs, windows)
    sizes = [inputs.shape[1]] * len(dilations)
    products = _product(kernel, entries, sum(sizes))
    # A single step stands beside all dilations by itself.
    if sizes[0] > 1:
        present = backend.join([present] * len(dilations), axis=1)
    by_dilation = backend.split(products + present, sizes, axis=1)
    return dict(zip(dilations, by_dilation, strict=True))


def _past_products(
    network: Network,
    kernel: Tensor,
    mask: Tensor | None,
    past: Mapping[str, Tensor],
) -> dict[int, Tensor]:
    """Returns for each level with lines the product of the past taps of a single step.

    They are one product: where rows are few, its time is that of reading the kernel.
    """
    hidden = [names(network, level)[0] for level in range(network.depth)]
    taps = {level: past[name] for level, name in enumerate(hidden) if name in past}
    if not taps:
        return {}
    joined = masked(backend.join([*taps.values()], axis=1), mask)
    products = _product(kernel, joined, len(taps))
    by_level = backend.split(products, [1] * len(taps), axis=1)
    return dict(zip(taps, by_level, strict=True))


def _past_taps(taps: int) -> range:
    """Returns how many dilations back the taps of a kernel read, the oldest first."""
    return range(taps - 1, 0, -1)
