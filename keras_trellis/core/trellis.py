"""The trellis network, written plainly.

This is the definition, and it runs on every backend. On TensorFlow `keras_trellis.engine` computes
the same, faster.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection, Sequence

from keras import ops

from keras_trellis.backend import current as backend
from keras_trellis.core import ascent, caches, masks
from keras_trellis.core.convolution import (
    causal_convolution,
    delay,
    last_steps,
    masked,
    pad_left,
    repeated,
    time_steps,
    zeros,
)
from keras_trellis.core.network import Network, Weights, activate
from keras_trellis.types import Cache, Number, State, Tensor

Addends = dict[int, Tensor]
"""The injected input of the levels by their dilation, `[B, T, blocks * units]`."""


def trellis(
    network: Network,
    weights: Weights,
    sequences: Tensor,
    initial: State | None = None,
    mask: Tensor | None = None,
    *,
    stops: Collection[int] = (),
    num_outputs: Number | None = None,
    recompute: bool = False,
) -> tuple[list[Tensor], State]:
    """Runs all levels over whole sequences.

    Args:
        network: the network's shape.
        weights: its weights.
        sequences: `[B, T, p]`.
        initial: the state to the left of every level, each `[B, units]`; None for zeros.
        mask: bool `[B, T]`, true at the valid steps; None where all are.
        stops: after how many levels to collect h.
        num_outputs: how many of the last steps to return of each collected h; None for all.
        recompute: whether to keep less for the gradient, and compute it again.

    Returns:
        h after each stop, `[B, T, units]`, or `[B, num_outputs, units]`; the state of the top level
        at the last valid step, each `[B, units]`.
    """
    plan = masks.packing(mask)
    inputs = masks.pack(sequences, plan)
    initial = initial or network.no_history(inputs)
    past = zeros(inputs, network.input_width, inputs.shape[-1])
    addends = inject(network, weights, pad_left(past, inputs))
    state = network.bottom(inputs, time_steps(inputs))

    def advance(state: State, level: Number, phase: int) -> State:
        left = [repeated(tensor, network.width(phase)) for tensor in initial]
        padded = list(map(pad_left, left, state))
        run = functools.partial(run_level, network, phase=phase)
        state = backend.saving_products(run)(weights, addends, padded)
        return network.begun(state, level)

    collected = []
    for first, last in itertools.pairwise(sorted({0, *stops, network.depth})):
        state = ascent.ascend(
            advance, state, first, last, network.period, recompute=recompute
        )
        if last in stops:
            outputs = masks.unpack(state[0], plan)
            collected.append(last_steps(outputs, num_outputs))
    return collected, masks.last_valid(state, plan, initial)


def stream(
    network: Network,
    weights: Weights,
    sequences: Tensor,
    cache: Cache,
    mask: Tensor | None = None,
) -> tuple[Tensor, Cache]:
    """Runs all levels over a chunk, each on its own past.

    Args:
        network: the network's shape.
        weights: its weights.
        sequences: the next steps, `[B, n, p]`.
        cache: the past.
        mask: bool `[B, n]`, or None.

    Returns:
        h of the top level, `[B, n, units]`, and the next cache.
    """
    plan = masks.packing(mask)
    inputs = masks.pack(sequences, plan)
    addends = inject(network, weights, pad_left(cache.inputs, inputs))
    state = network.bottom(inputs, time_steps(inputs))
    pasts: list[State] = []
    for level in range(network.depth):
        left = caches.past_of_level(network, cache, level)
        padded = list(map(pad_left, left, state))
        width = network.width(level)
        pasts.append(
            tuple(masks.last_valid_steps(tensor, width, plan) for tensor in padded)
        )
        state = run_level(network, weights, addends, padded, level)
        state = network.begun(state, level)
    last = masks.last_valid(state, plan, cache.state)
    levels = caches.levels_of_pasts(network, pasts)
    return caches.finish_chunk(network, inputs, cache, plan, state[0], last, levels)


def inject(network: Network, weights: Weights, padded: Tensor) -> Addends:
    """Convolves the input, `[B, input_width + T, p]`, once for each dilation."""
    padded = masked(padded, weights.input_mask)
    convolve = functools.partial(causal_convolution, padded, weights.kernel)
    width = network.input_width
    return {dilation: convolve(dilation, width) for dilation in set(network.cycle)}


def run_level(
    network: Network,
    weights: Weights,
    addends: Addends,
    padded: Sequence[Tensor],
    phase: int,
) -> State:
    """Returns the state of a level.

    Args:
        network: the network's shape.
        weights: its weights.
        addends: the injected input.
        padded: the state of the level below and what stands to its left,
            each `[B, width + T, units]`.
        phase: the level, or its place in the period.
    """
    dilation = network.dilation(phase)
    width = network.width(phase)
    hidden = masked(padded[0], weights.state_mask)
    kernel = ops.cast(weights.recurrent_kernel, hidden.dtype)
    total = causal_convolution(hidden, kernel, dilation, width)
    if phase % network.inject_every == 0:
        total = total + addends[dilation]
    if weights.bias is not None:
        total = total + weights.bias
    shifted = tuple(delay(tensor, width, dilation) for tensor in padded)
    return activate(network.gate, total, shifted)
