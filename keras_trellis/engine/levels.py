"""The depth loop: one level's map applied again and again."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import tensorflow as tf

from keras_trellis.core.convolution import ALL, Kept

Carry = TypeVar("Carry")

# A new segment begins where one step in so many of the first one's has become needless: a narrower
# loop is less work, but one more loop to trace, to compile and to run. Small networks have fewer.
_MOST_PARTS = 14
_STEP_UNITS_A_PART = 4_000


class Grid(NamedTuple):
    """Steps of a sequence, counted back from its last one.

    Attributes:
        reach: how far before the last step the first one may stand; None: at the beginning.
        stride: their distance; 0: the last step alone.
    """

    reach: int | None
    stride: int

    def size(self, steps: int | tf.Tensor) -> int | tf.Tensor:
        """Returns how many steps of a sequence of T it has; T is an integer or a scalar."""
        if not self.stride:
            return _minimum(1, steps)
        reach = steps - 1
        if self.reach is not None:
            reach = _minimum(self.reach, reach)
        return reach // self.stride + 1


WHOLE = Grid(None, 1)
"""All steps."""


def _minimum(one: int, other: int | tf.Tensor) -> int | tf.Tensor:
    return min(one, other) if isinstance(other, int) else tf.minimum(one, other)


def cut(before: Grid, after: Grid, steps: int | tf.Tensor) -> Kept:
    """Returns where in the steps of one grid those of a coarser one stand.

    Args:
        before: a grid.
        after: one that has no other steps.
        steps: T, an integer or a scalar.
    """
    if before == after:
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
    kept: int | None,
    units: int = sys.maxsize,
) -> Iterator[Segment]:
    """Cuts the levels where their outputs are collected and where they can do with fewer steps.

    An output depends on ever fewer steps the nearer to it a level is. Where only the last outputs
    are kept, a level can leave out the steps that none of these depends on. What its segment
    computes beyond them is wrong, since it has lost its past, and harmless.

    The last output alone depends on one step of its own level, on two of the level below where the
    kernel has two taps, and so on: on a grid as coarse as the dilations allow. Where these double
    from level to level, all levels together compute two steps for each of the sequence.

    Args:
        dilations: those of the levels.
        reach: how many dilations back a level reads.
        stops: levels before which a segment ends.
        steps: T; None where it is not known.
        kept: how many of the last outputs are kept; None: all of them.
        units: the number of hidden channels: a small network is cut into fewer segments.
    """
    depth = len(dilations)
    inside = [stop for stop in stops if stop < depth]
    needed = 0 if kept is None else max(kept, 1) + reach * sum(dilations)
    width = needed if steps is None else min(needed, steps)
    parts = min(max(width * units // _STEP_UNITS_A_PART, 1), _MOST_PARTS)
    # The top level alone, on the last step: not worth it where there is little to compute.
    coarser = not inside and (parts > 1 or max(dilations) > 1)
    grids = _needed(dilations, reach, steps, kept, only_last=coarser)
    first, grid = 0, grids[0]
    for level in range(depth):
        if grids[level].stride != grids[level + 1].stride:
            if level > first:
                yield Segment(first, level, grid, grid)
            yield Segment(level, level + 1, grids[level], grids[level + 1])
            first, grid = level + 1, grids[level + 1]
            continue
        needless = _reach(grid, steps) - _reach(grids[level], steps)
        narrower = parts > 1 and needless * parts >= width
        if level > first and (narrower or level in inside):
            yield Segment(first, level, grid, grid)
            first, grid = level, grids[level] if narrower else grid
    if first < depth:
        yield Segment(first, depth, grid, grid)


def _reach(grid: Grid, steps: int | None) -> int:
    """Returns how far a grid reaches back; -1 where all levels have all of unknown T."""
    whole = -1 if steps is None else steps - 1
    return whole if grid.reach is None else grid.reach


def _needed(
    dilations: Sequence[int],
    reach: int,
    steps: int | None,
    kept: int | None,
    *,
    only_last: bool,
) -> list[Grid]:
    """Returns the steps of each level's input, and of the output, that something depends on."""
    if kept is None or steps == 0:
        return [WHOLE] * (len(dilations) + 1)
    # The last step is the state, and always kept.
    back, stride = max(kept - 1, 0), 0 if only_last and kept <= 1 else 1
    grids = [_grid(back, stride, steps)]
    for dilation in reversed(dilations):
        back, stride = back + reach * dilation, math.gcd(stride, dilation)
        grids.insert(0, _grid(back, stride, steps))
    return grids


def _grid(back: int, stride: int, steps: int | None) -> Grid:
    return Grid(None if steps is not None and back >= steps - 1 else back, stride)


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
    if turns == 1:  # a loop would only take longer to trace
        turns, rest = 0, rest + period

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
