"""The trellis network, written plainly.

This is the definition, and it runs on every backend. On TensorFlow `keras_trellis.engine` computes
the same, faster.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from keras import ops

from keras_trellis.backend import current as backend
from keras_trellis.core import ascent, caches, masks
from keras_trellis.core.convolution import (
    causal_convolution,
    delay,
    masked,
    pad_left,
    repeated,
    take_steps,
    time_steps,
    zeros,
)
from keras_trellis.core.network import Network, Weights, activate
from keras_trellis.core.schedule import ALL, WHOLE, Steps, cut
from keras_trellis.types import Cache, Number, State, Tensor

Addends = dict[int, Tensor]
"""The injected input of the levels by their dilation, `[B, T, blocks * units]`."""


class _Levels(NamedTuple):
    """What the levels of a segment share.

    Attributes:
        network: the network's shape.
        weights: its weights.
        addends: the injected input, at the steps that are computed.
        initial: the state to the left of every level.
        stride: how many time steps lie between two steps of the state below.
        needed: the steps of it that are computed.
        valid: which of these are valid, see `masks.held`.
    """

    network: Network
    weights: Weights
    addends: Addends
    initial: State
    stride: int
    needed: Steps
    valid: Tensor | None

    def advance(self, state: State, level: Number, phase: int) -> State:
        """Returns the state of a level, from that of the level below."""
        network = self.network
        width = network.width(phase) // self.stride
        left = [repeated(tensor, width) for tensor in self.initial]
        padded = list(map(pad_left, left, state))
        run = functools.partial(
            run_level, network, phase=phase, stride=self.stride, needed=self.needed
        )
        state = backend.saving_products(run)(self.weights, self.addends, padded)
        return masks.held(self.valid, self.initial, network.begun(state, level))


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
    # JAX exports with a symbol as T, of which nothing is known: all steps are computed.
    is_known = isinstance(sequences.shape[1], int)
    parts = network.segments(
        sequences.shape[1], stops, num_outputs if is_known else None
    )
    plan, valid = masks.planned(mask, parts)
    inputs = masks.pack(sequences, plan)
    steps = time_steps(inputs)
    initial = initial or network.no_history(inputs)
    past = zeros(inputs, network.input_width, inputs.shape[-1])
    grids = network.injected_grids(parts)
    needed = {dilation: cut(WHOLE, grid, steps) for dilation, grid in grids.items()}
    addends = inject(network, weights, pad_left(past, inputs), needed)
    grid = parts[0].before

    state = network.bottom(inputs, grid.size(steps))
    state = masks.held(masks.valid_on(valid, grid, steps), initial, state)
    collected = []
    for part in parts:
        reached = cut(grid, part.before, steps)
        state = tuple(take_steps(tensor, reached) for tensor in state)
        here = {
            dilation: take_steps(
                addends[dilation], cut(grids[dilation], part.after, steps)
            )
            for dilation in network.injected(part)
        }
        levels = _Levels(
            network=network,
            weights=weights,
            addends=here,
            initial=initial,
            stride=part.before.stride,
            needed=cut(part.before, part.after, steps),
            valid=masks.valid_on(valid, part.after, steps),
        )
        state = ascent.ascend(
            levels.advance,
            state,
            part.first,
            part.last,
            network.period,
            recompute=recompute,
        )
        if part.last in stops:
            collected.append(masks.unpack_last(state[0], plan, num_outputs))
        grid = part.after
    # What is packed to the right ends with the last valid step, or else with what stands before.
    return collected, masks.last_valid(state, plan if valid is None else None, initial)


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


def inject(
    network: Network,
    weights: Weights,
    padded: Tensor,
    needed: Mapping[int, Steps] | None = None,
) -> Addends:
    """Convolves the input, `[B, input_width + T, p]`, once for each dilation.

    Args:
        network: the network's shape.
        weights: its weights.
        padded: the input, and what stands to its left.
        needed: for each dilation the steps to compute; None for all.
    """
    padded = masked(padded, weights.input_mask)
    convolve = functools.partial(causal_convolution, padded, weights.kernel)
    width = network.input_width
    if needed is None:
        needed = dict.fromkeys(network.cycle, ALL)
    return {
        dilation: convolve(dilation, width, each) for dilation, each in needed.items()
    }


def run_level(
    network: Network,
    weights: Weights,
    addends: Addends,
    padded: Sequence[Tensor],
    phase: int,
    stride: int = 1,
    needed: Steps = ALL,
) -> State:
    """Returns the state of a level.

    Args:
        network: the network's shape.
        weights: its weights.
        addends: the injected input.
        padded: the state of the level below and what stands to its left,
            each `[B, width + T, units]`.
        phase: the level, or its place in the period.
        stride: how many time steps lie between two steps of `padded`.
        needed: the steps of `padded` to compute.
    """
    dilation = network.dilation(phase) // stride
    width = network.width(phase) // stride
    hidden = masked(padded[0], weights.state_mask)
    kernel = ops.cast(weights.recurrent_kernel, hidden.dtype)
    total = causal_convolution(hidden, kernel, dilation, width, needed)
    if phase % network.inject_every == 0:
        total = total + addends[network.dilation(phase)]
    if weights.bias is not None:
        total = total + weights.bias
    shifted = tuple(
        take_steps(delay(tensor, width, dilation), needed) for tensor in padded
    )
    return activate(network.gate, total, shifted)
