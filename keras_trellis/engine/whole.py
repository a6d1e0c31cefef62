"""Whole sequences: `keras_trellis.core.trellis`, fast."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from typing import NamedTuple

import tensorflow as tf

from keras_trellis.backend.tensorflow import with_static_shape
from keras_trellis.core import masks
from keras_trellis.core.convolution import repeated, time_steps, zeros
from keras_trellis.core.network import Network, Weights
from keras_trellis.core.schedule import ALL, WHOLE, Grid, Segment, Steps, cut
from keras_trellis.engine import convolution, tiles
from keras_trellis.engine.convolution import Addends, take_steps
from keras_trellis.engine.depth_loop import ascend, handed_on
from keras_trellis.engine.level import HiddenKernel, Reach, hidden_kernel, level
from keras_trellis.engine.recomputation import ascend_recomputing
from keras_trellis.types import Number, State, Tensor


class _Carry(NamedTuple):
    """What goes from level to level.

    What the levels share goes along, so that its gradient is carried back through the loops: one
    sum for all levels. TensorFlow keeps a sum for each loop that captures it, all of them in memory
    from the beginning.

    Attributes:
        state: the state of the level below, each `[B, T', units]`.
        addends: what joins the products.
        initial: what stands to the left of every level, each `[B, units]`; empty for zeros.
        kernel: see `HiddenKernel`.
        rounded: see `HiddenKernel`.
    """

    state: State
    addends: Addends
    initial: State
    kernel: Tensor
    rounded: tuple[Tensor, ...]


class _Levels(NamedTuple):
    """What is the same for all levels of a segment, and needs no gradient.

    Attributes:
        network: the network's shape.
        mask: the dropout mask of what enters the products, or None.
        part: the segment.
        valid: bool `[B, T', 1]`, false where masked steps come first; None where all are valid.
        training: see `run`.
    """

    network: Network
    mask: Tensor | None
    part: Segment
    valid: Tensor | None
    training: bool


def run(
    network: Network,
    weights: Weights,
    sequences: Tensor,
    initial: State | None = None,
    mask: Tensor | None = None,
    *,
    stops: Collection[int] = (),
    num_outputs: Number | None = None,
    training: bool = False,
    recompute: bool = False,
) -> tuple[list[Tensor], State]:
    """Runs all levels over whole sequences.

    Args:
        network: as for `core.trellis.trellis`, and so are those below.
        weights: its weights.
        sequences: `[B, T, p]`.
        initial: the state to the left of every level, each `[B, units]`; None for zeros.
        mask: bool `[B, T]`, or None.
        stops: after how many levels to collect h.
        num_outputs: how many of the last steps to return of each collected h; None for all.
        training: whether the levels have gradients of their own, parts of which XLA may compile.
            Otherwise there is nothing but TensorFlow's own operations and gradients.
        recompute: whether to keep less for the gradient in training, and compute it again: by tiles
            of time where these pay, else by blocks of levels.

    Returns:
        what `core.trellis.trellis` returns.
    """
    recompute = recompute and training
    if recompute and tiles.pay(network, sequences, num_outputs):
        return tiles.run(network, weights, sequences, initial, mask, stops, num_outputs)
    # Exports to LiteRT and ONNX fail with steps packed to the right. None is made in training.
    is_narrow = mask is None or training
    parts = network.segments(
        sequences.shape[1], stops, num_outputs if is_narrow else None
    )
    plan, valid = masks.planned(mask, parts)
    sequences = masks.pack(sequences, plan)
    steps = time_steps(sequences)
    hidden = hidden_kernel(weights, training)
    grid = parts[0].before
    grids = network.injected_grids(parts)
    bottom = network.bottom(sequences, grid.size(steps))
    carry = _Carry(
        state=masks.held(masks.valid_on(valid, grid, steps), initial, bottom),
        addends=_addends(network, weights, sequences, grids, training),
        initial=initial or (),
        kernel=hidden.kernel,
        rounded=hidden.rounded,
    )
    climb: Callable = ascend
    if recompute:
        climb = functools.partial(ascend_recomputing, network)
    collected = []
    for part in parts:
        carry = _narrow(network, carry, part, grid, grids, steps)
        here = masks.valid_on(valid, part.after, steps)
        levels = _Levels(network, hidden.mask, part, here, training)
        carry, first = _begin_segment(levels, carry, steps)
        advance = functools.partial(_advance, levels)
        carry = climb(
            advance, carry, first=first, last=part.last, period=network.period
        )
        state = network.begun(carry.state, part.last - 1)
        carry = carry._replace(state=masks.held(here, initial, state))
        if part.last in stops:
            collected.append(masks.unpack_last(state[0], plan, num_outputs))
        grid = part.after
    before = initial or network.no_history(sequences)
    # What is packed to the right ends with the last valid step, or else with what stands before.
    ended = plan if valid is None else None
    return collected, masks.last_valid(carry.state, ended, before)


def _begin_segment(levels: _Levels, carry: _Carry, steps: Number) -> tuple[_Carry, int]:
    """Runs the first level of a segment if it is unlike those of the loop.

    Args:
        levels: what the levels share.
        carry: what the segment below leaves.
        steps: T.

    Returns:
        the carry, and the level that the loop begins with.
    """
    part = levels.part
    # Level 0 reads zeros, and a level that leaves a grid reads another one than it computes.
    if part.first and part.before == part.after:
        return carry, part.first
    reached = cut(part.before, part.after, steps)
    filled = _filled(levels.network, carry, part, reached, levels.valid is not None)
    carry = _advance(levels, carry, part.first, part.first, filled, reached)
    return carry, part.first + 1


def _addends(
    network: Network,
    weights: Weights,
    sequences: Tensor,
    grids: dict[int, Grid],
    training: bool,
) -> Addends:
    """Returns what joins the products, by dilation, at the steps of its grid."""
    steps = time_steps(sequences)
    past = zeros(sequences, network.input_width, sequences.shape[-1])
    finest = {dilation: cut(WHOLE, grid, steps) for dilation, grid in grids.items()}
    return convolution.inject(
        network, weights, sequences, past, finest, training=training
    )


def _narrow(
    network: Network,
    carry: _Carry,
    part: Segment,
    grid: Grid,
    grids: dict[int, Grid],
    steps: Number,
) -> _Carry:
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
    for dilation in network.injected(part):
        needed = cut(grids[dilation], part.after, steps)
        addends[dilation] = take_steps(addends[dilation], needed)
        grids[dilation] = part.after
    return carry._replace(state=state, addends=addends)


def _filled(
    network: Network, carry: _Carry, part: Segment, reached: Steps, masked: bool
) -> int | None:
    """Returns how many of the first steps have taps that are not zero; None: all may have.

    Below level 0 all is zero but what stands to its left, and masked steps that come first.
    """
    if part.first or (carry.initial and (reached is not ALL or masked)):
        return None
    if carry.initial:
        return network.width(0) // part.before.stride
    return 0


def _advance(
    levels: _Levels,
    carry: _Carry,
    _: Number,
    phase: int,
    filled: int | None = None,
    reached: Steps = ALL,
) -> _Carry:
    """Runs a level with level % period = phase."""
    network = levels.network
    stride = levels.part.before.stride
    width = network.width(phase) // stride
    dilation = network.dilation(phase) // stride
    if carry.initial:
        past = tuple(repeated(tensor, width) for tensor in carry.initial)
    else:
        past = tuple(zeros(tensor, width, network.units) for tensor in carry.state)
    reach = Reach(network.kernel_size, dilation, filled, reached)
    hidden = HiddenKernel(carry.kernel, carry.rounded, levels.mask)
    run_level = level(network.gate, reach, hidden, training=levels.training)
    addend = convolution.addend(network, carry.addends, phase)
    state = run_level(past, carry.state, addend)
    state = masks.held(levels.valid, carry.initial, state)
    if reached is ALL:
        state = tuple(map(with_static_shape, state, carry.state))
    shared = carry._replace(state=())
    # Without a gradient there are no sums, and tf2onnx would merge the copies wrongly.
    if levels.training:
        shared = tf.nest.map_structure(handed_on, shared)
    return shared._replace(state=state)
