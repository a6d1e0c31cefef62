"""The depth loop: one level's map applied again and again."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import tensorflow as tf

from keras_trellis.convolution import ALL, Kept

Carry = TypeVar("Carry")

# A new segment begins where one step in so many of the first one's has become needless: a narrower
# loop is less work, but one more loop to trace, to compile and to run.
_PARTS = 14


class Grid(NamedTuple):
    """Steps of a sequence, counted back from its last one.

    Attributes:
        start: none stands before this one.
        stride: their distance; 0: the last step alone.
    """

    start: int
    stride: int

    def size(self, steps: int) -> int:
        """Returns how many steps of a sequence of T it has."""
        return (steps - 1 - self.start) // self.stride + 1 if self.stride else 1


def cut(before: Grid, after: Grid, steps: int | None) -> Kept:
    """Returns where in the steps of one grid those of a coarser one stand.

    Args:
        before: a grid.
        after: one that has no other steps.
        steps: T; None where it is not known, and there is but one grid.
    """
    if steps is None or before == after:
        return ALL
    every = after.stride // before.stride if after.stride else 1
    return Kept(before.size(steps) - 1 - (after.size(steps) - 1) * every, every)


class Segment(NamedTuple):
    """Levels that run on one grid, or a single one that leaves a grid for a coarser one.

    Attributes:
        first: the first level.
        last: the level to stop before.
        before: the steps that the first level reads.
        after: the steps that have a result; a segment of several levels has those it reads.
    """

    first: int
    last: int
    before: Grid
    after: Grid


def segments(
    dilations: Sequence[int],
    reach: int,
    *,
    stops: Sequence[int] = (),
    steps: int | None,
    discard: int,
) -> Iterator[Segment]:
    """Cuts the levels where their outputs are collected and where they can do with fewer steps.

    An output depends on ever fewer steps the nearer to it a level is. Where the first `discard`
    outputs are not kept, a level can leave out the steps that none of the kept ones depends on.
    What its segment computes beyond these is wrong, since it has lost its past, and harmless.

    The last output alone depends on one step of its own level, on two of the level below where the
    kernel has two taps, and so on: on a grid as coarse as the dilations allow. Where these double
    from level to level, all levels together compute two steps for each of the sequence.

    Args:
        dilations: those of the levels.
        reach: how many dilations back a level reads.
        stops: levels before which a segment ends.
        steps: T; None where it is not known, and all levels keep all steps.
        discard: how many of the first outputs are not kept.
    """
    depth = len(dilations)
    inside = [stop for stop in stops if stop < depth]
    grids = _needed(dilations, reach, steps, discard, only_last=not inside)
    first, grid = 0, grids[0]
    width = (steps or 0) - grid.start
    for level in range(depth):
        if grids[level].stride != grids[level + 1].stride:
            if level > first:
                yield Segment(first, level, grid, grid)
            yield Segment(level, level + 1, grids[level], grids[level + 1])
            first, grid = level + 1, grids[level + 1]
            continue
        narrower = (grids[level].start - grid.start) * _PARTS >= width > 0
        if level > first and (narrower or level in inside):
            yield Segment(first, level, grid, grid)
            first, grid = level, grids[level] if narrower else grid
    if first < depth:
        yield Segment(first, depth, grid, grid)


def _needed(
    dilations: Sequence[int], reach: int, steps: int | None, discard: int, *, only_last: bool
) -> list[Grid]:
    """Returns the steps of each level's input, and of the output, that something depends on."""
    if not steps:
        return [Grid(0, 1)] * (len(dilations) + 1)
    # The last step is the state, and always kept.
    grids = [Grid(min(discard, steps - 1), 0 if only_last and discard >= steps - 1 else 1)]
    for dilation in reversed(dilations):
        start, stride = grids[0]
        grids.insert(0, Grid(max(0, start - reach * dilation), math.gcd(stride, dilation)))
    return grids


def recomputed(function: Callable[..., Carry]) -> Callable[..., Carry]:
    """Returns `function` as one that keeps nothing but its arguments for its gradient.

    Args:
        function: of nests of tensors, through which alone gradients flow.
    """

    def call(*arguments: Any) -> Carry:
        def flat_function(*flat: tf.Tensor) -> Carry:
            return function(*tf.nest.pack_sequence_as(arguments, flat))

        return tf.recompute_grad(flat_function)(*tf.nest.flatten(arguments))

    return call


def iterate_levels(
    advance: Callable[[Carry, int | tf.Tensor, int], Carry],
    carry: Carry,
    *,
    first: int,
    last: int,
    period: int,
) -> Carry:
    """Applies `advance` for the levels first, ..., last - 1 in a `tf.while_loop`.

    Everything that differs between levels repeats with the period. One turn of the loop is one
    period, so that what differs is constant in the graph and the graph's size depends on the
    period, not on the depth; the levels that are left over follow the loop.

    Args:
        advance: (carry, level, phase) -> carry; phase = level % period is a Python integer.
        carry: what goes from level to level, a nest of tensors.
        first: the first level.
        last: the level to stop before.
        period: after how many levels everything repeats.

    Returns:
        The carry after the last level.
    """
    turns, rest = divmod(last - first, period)

    def levels(start: int | tf.Tensor, count: int, carry: Carry) -> Carry:
        for offset in range(count):
            carry = advance(carry, start + offset, (first + offset) % period)
        return carry

    if turns:
        _, carry = tf.while_loop(
            lambda turn, _: turn < turns,
            lambda turn, carry: (turn + 1, levels(first + turn * period, period, carry)),
            (tf.constant(0), carry),
            maximum_iterations=turns,  # without it XLA cannot take the gradient
            parallel_iterations=1,  # what runs ahead of its turn only waits, in memory
        )
    return levels(first + turns * period, rest, carry)
