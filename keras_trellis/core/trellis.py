"""The trellis network, written plainly.

This is the definition, and it runs on every backend. On TensorFlow `keras_trellis.engine` computes
the same, faster.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_trellis.backend import current as backend
from keras_trellis.core import caches, masks
from keras_trellis.core.convolution import (
    causal_convolution,
    delay,
    masked,
    pad_left,
    take_steps,
    time_steps,
)
from keras_trellis.core.injection import Addends, inject
from keras_trellis.core.network import Network, Weights, activate
from keras_trellis.core.schedule import ALL, WHOLE, Grid, Segment, Steps, cut
from keras_trellis.types import Cache, Number, State, Tensor


class Levels(NamedTuple):
    """The levels of a segment.

    Attributes:
        network: the network's shape.
        part: the segment.
        reached: the steps that are computed, of those that the first level reads.
        valid: which of these are valid, see `masks.held`.
    """

    network: Network
    part: Segment
    reached: Steps
    valid: Tensor | None


class Carry(NamedTuple):
    """What goes from level to level.

    Attributes:
        state: the state of the level below, each `[B, T', units]`.
        addends: what joins the products.
        initial: what stands to the left of every level, each `[B, units]`; (): zeros.
        weights: the weights, as the method needs them.
    """

    state: State
    addends: Addends
    initial: State
    weights: Any


class Method(NamedTuple):
    """How levels are run.

    Attributes:
        begin: from the network's shape, its weights, the sequences, what stands to the left of
            every level or None, and the steps that each dilation needs, to a carry without a state.
        climb: from the levels of a segment and what those below leave to what they leave.
    """

    begin: Callable[..., Carry]
    climb: Callable[[Levels, Carry], Carry]


def _begin(
    network: Network,
    weights: Weights,
    inputs: Tensor,
    initial: State | None,
    needed: Mapping[int, Steps],
) -> Carry:
    # x~ of the paper: levels of one dilation share it, so it is convolved before all of them.
    addends = inject(network, weights, inputs, None, needed)
    return Carry((), addends, initial or (), weights)


def _climb(levels: Levels, carry: Carry, recompute: bool = False) -> Carry:
    part, period = levels.part, levels.network.period
    advance = functools.partial(_advance, levels, carry)
    state, first = carry.state, part.first
    # Level 0 reads zeros where no state stands to its left: it has no product at all.
    if not first and not carry.initial:
        state = advance((), 0, 0)
        first = 1

    def run_period(turn: Number, state: State) -> State:
        # `turn` may be traced; the place is a Python integer, so that what differs is constant.
        begin = first + turn * period
        for place in range(period):
            state = advance(state, begin + place, (first + place) % period)
        return state

    if recompute:
        run_period = keras.remat(run_period)
    # On JAX whole periods are one loop: the time to compile does not grow with the depth.
    turns = (part.last - first) // period
    state = backend.repeat(run_period, state, turns)
    for level in range(first + turns * period, part.last):
        state = advance(state, level, level % period)
    return carry._replace(state=state)


def _advance(
    levels: Levels, carry: Carry, state: State, level: Number, phase: int
) -> State:
    """Returns the state of a level, from that of the level below; (): all there is zero."""
    network = levels.network
    stride = levels.part.before.stride
    if state:
        # Whole steps of the grid: its stride divides the dilation of every level that reads it.
        widths = [width // stride for width in network.widths(phase)]
        state = tuple(map(pad_left, network.left(carry.initial, widths, state), state))
    run = functools.partial(
        run_level, network, phase=phase, stride=stride, needed=levels.reached
    )
    state = backend.saving_products(run)(carry.weights, carry.addends, state)
    # Packed to the right, masked steps stand before the valid ones: to the next level they must
    # look like what stands to the left of a sequence.
    return masks.held(levels.valid, carry.initial, network.begun(state, level))


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
    method: Method | None = None,
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
        method: how levels are run, if not plainly.

    Returns:
        h after each stop, `[B, T, units]`, or `[B, num_outputs, units]`; the state of the top level
        at the last valid step, each `[B, units]`.
    """
    method = method or Method(_begin, functools.partial(_climb, recompute=recompute))
    # JAX exports with a symbol as T, of which nothing is known: all steps are computed.
    is_symbol = not isinstance(sequences.shape[1], int | None)
    parts = network.segments(
        sequences.shape[1], stops, None if is_symbol else num_outputs
    )
    plan, valid = masks.planned(mask, parts)
    inputs = masks.pack(sequences, plan)
    steps = time_steps(inputs)
    grids = network.injected_grids(parts)
    needed = {dilation: cut(WHOLE, grid, steps) for dilation, grid in grids.items()}
    carry = method.begin(network, weights, inputs, initial, needed)
    # Below level 0 all is zero but masked steps that come first, which hold the initial state.
    grid = parts[0].before
    state = network.bottom(inputs, grid.size(steps))
    state = masks.held(masks.valid_on(valid, grid, steps), initial, state)
    carry = carry._replace(state=state)
    collected = []
    for part in parts:
        # Before the segment is climbed: what none of its levels reads is not carried through it.
        carry = _narrowed(network, carry, part, grid, grids, steps)
        levels = Levels(
            network,
            part,
            cut(part.before, part.after, steps),
            masks.valid_on(valid, part.after, steps),
        )
        carry = method.climb(levels, carry)
        if part.last in stops:
            collected.append(masks.unpack_last(carry.state[0], plan, num_outputs))
        grid = part.after
    # What is packed to the right ends with the last valid step, or else with what stands before.
    ended = plan if valid is None else None
    return collected, masks.last_valid(carry.state, ended, initial or ())


def _narrowed(
    network: Network,
    carry: Carry,
    part: Segment,
    grid: Grid,
    grids: dict[int, Grid],
    steps: Number,
) -> Carry:
    """Leaves out the steps that a segment and those above it no longer need.

    Args:
        network: the network's shape.
        carry: what goes from level to level.
        part: the segment.
        grid: the steps of the carry's state.
        grids: the steps of the carry's addends, which are brought up to date.
        steps: T.
    """
    reached = cut(grid, part.before, steps)
    state = tuple(take_steps(tensor, reached) for tensor in carry.state)
    addends = dict(carry.addends)
    for dilation in network.injected(range(part.first, part.last)):
        needed = cut(grids[dilation], part.after, steps)
        addends[dilation] = take_steps(addends[dilation], needed)
        grids[dilation] = part.after
    return carry._replace(state=state, addends=addends)


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
    addends = inject(network, weights, inputs, cache.inputs)
    state = network.bottom(inputs, time_steps(inputs))
    pasts: list[State] = []
    for level in range(network.depth):
        # What a level keeps is the state below it, not its own: taps and gate read nothing else.
        left = caches.level_past(network, cache, level)
        padded = list(map(pad_left, left, state))
        pasts.append(masks.last_valid_pasts(padded, network.widths(level), plan))
        # Packed, the valid steps come first: those behind them are computed, and read by none.
        state = run_level(network, weights, addends, padded, level)
        state = network.begun(state, level)
    last = masks.last_valid(state, plan, cache.state)
    levels = caches.joined_pasts(network, pasts)
    return caches.finish_chunk(network, inputs, cache, plan, state[0], last, levels)


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
            each `[B, W + T, units]` with a width of its own; (): zeros.
        phase: the level, or its place in the period.
        stride: how many time steps lie between two steps of `padded`.
        needed: the steps of `padded` to compute.
    """
    # The pre-activations z: the injected input x~, the bias, and the taps of h times W^z.
    terms = []
    if phase % network.inject_every == 0:
        terms.append(addends[network.dilation(phase)])
    if weights.bias is not None:
        terms.append(weights.bias)
    if padded:
        dilation = network.dilation(phase) // stride
        widths = [width // stride for width in network.widths(phase)]
        # Dropout touches what the product reads; the gate shifts the state as it is.
        hidden = masked(padded[0], weights.state_mask)
        kernel = ops.cast(weights.recurrent_kernel, hidden.dtype)
        terms.append(causal_convolution(hidden, kernel, dilation, widths[0], needed))
        # The gate reads the state one dilation back, whatever the number of taps: c_{t-d}.
        shifted = tuple(
            delay(tensor, width, dilation, needed)
            for tensor, width in zip(padded, widths, strict=True)
        )
    total = functools.reduce(operator.add, terms)
    if not padded:
        # Level 0, which the input always enters: `total` has all steps and rows.
        shifted = network.bottom(total, time_steps(total))
    return activate(network.gate, total, shifted)
