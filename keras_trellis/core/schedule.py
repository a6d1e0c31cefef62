"""The schedule: which levels compute which time steps.

Where only the last outputs are needed, the nearer a level is to the top, the fewer steps it has
to compute. The levels are cut into segments, each of which computes the steps of one grid.

It does not cover what depends on every step: a network of infinite depth, whose steps settle
together, and stacks and cells that run over time. Where JAX exports with a symbol as T, and where
the number of outputs is a tensor, all steps are computed.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from keras import ops

from keras_trellis.types import Number

# A new segment begins where one step in so many of the first one's has become needless: a narrower
# loop is less work, but one more loop to trace, to compile and to run. Small networks have fewer.
_MOST_PARTS = 14
_STEP_UNITS_A_PART = 4_000


class Steps(NamedTuple):
    """The time steps of a sequence that are still needed: from one on, every so many.

    Attributes:
        begin: the first one; an integer, or a scalar where T is unknown.
        every: their distance.
    """

    begin: Number
    every: int


ALL = Steps(0, 1)
"""All steps. Compare with `is`: where T is unknown, `begin` is a tensor."""


class Grid(NamedTuple):
    """Evenly spaced steps of a sequence, counted back from its last one.

    Attributes:
        reach: how far before the last step the first one may stand; None: at the beginning.
        stride: their distance; 0: the last step alone.
    """

    reach: int | None
    stride: int

    def size(self, steps: Number) -> Number:
        """Returns how many steps it has in a sequence of T; T is an integer or a scalar."""
        if not self.stride:
            # One step, but none of an empty sequence.
            return _minimum(1, steps)
        reach = steps - 1
        if self.reach is not None:
            reach = _minimum(self.reach, reach)
        return reach // self.stride + 1

    def read(self, taps: int, dilation: int, steps: int | None) -> Grid:
        """Returns the grid of the steps that a causal convolution reads for those of this one.

        Args:
            taps: how many earlier steps it reads for each.
            dilation: their distance.
            steps: T; None where it is unknown.
        """
        if not taps:
            return self
        # It must meet each step and, dilations before it, those that it reads. For the last step
        # alone, stride 0, this is the dilation.
        stride = math.gcd(self.stride, dilation)
        if self.reach is None:
            return Grid(None, stride)
        return bounded_grid(self.reach + taps * dilation, stride, steps)


WHOLE = Grid(None, 1)
"""All steps."""


def last(num_outputs: int, steps: int | None) -> Grid:
    """Returns the grid of the last outputs.

    Args:
        num_outputs: how many, at least 1.
        steps: T; None where it is unknown.
    """
    stride = 0 if num_outputs == 1 else 1
    return bounded_grid(num_outputs - 1, stride, steps)


def bounded_grid(reach: int, stride: int, steps: int | None) -> Grid:
    """Returns the grid that begins so far before the last step, or at the beginning."""
    is_whole = steps is not None and reach >= steps - 1
    return Grid(None if is_whole else reach, stride)


def _minimum(one: int, other: Number) -> Number:
    if isinstance(other, int):
        return min(one, other)
    return ops.minimum(one, other)


def cut(before: Grid, after: Grid, steps: Number) -> Steps:
    """Returns the places of a coarser grid's steps among those of a finer one.

    Args:
        before: the finer grid.
        after: the coarser one, whose steps are all in `before`.
        steps: T, an integer or a scalar.
    """
    if before == after:
        return ALL
    # Both end with the last step, wherever the sequence begins: so places are counted from the end.
    every = after.stride // before.stride if after.stride else 1
    reach = (after.size(steps) - 1) * every
    return Steps(before.size(steps) - 1 - reach, every)


class Segment(NamedTuple):
    """Levels that run on one grid, or a single level that leaves a grid for a coarser one.

    Attributes:
        first: the first level.
        last: the level to stop before.
        before: the steps that the first level reads.
        after: the steps that are computed. In a segment of several levels they are `before`.
    """

    first: int
    last: int
    before: Grid
    after: Grid


def segments(
    dilations: Sequence[int],
    reach: int,
    *,
    stops: Collection[int] = (),
    steps: int | None,
    num_outputs: int | None,
    units: int = sys.maxsize,
) -> Iterator[Segment]:
    """Cuts the levels where their outputs are collected and where fewer steps are enough.

    The nearer a level is to the top, the fewer of its steps an output depends on. Where only the
    last outputs are needed, a level leaves out the steps that none of these depends on. Steps that
    its segment computes beyond them come out wrong, since their past is lost, and are not used.

    The last output alone depends on one step of its own level, on two of the level below where the
    kernel has two taps, and so on: on a grid as coarse as the dilations allow. Where these double
    from level to level, all levels together compute two steps for each step of the sequence.

    Args:
        dilations: the dilation of each level.
        reach: how many dilations back a level reads.
        stops: levels before which a segment ends.
        steps: T; None where it is unknown.
        num_outputs: how many of the last outputs are needed; None for all.
        units: the number of hidden channels. A small network is cut into fewer segments.
    """
    depth = len(dilations)
    inside = [stop for stop in stops if stop < depth]
    needed = 0
    if num_outputs is not None:
        # The steps that these outputs depend on: no level reads beyond them.
        needed = max(num_outputs, 1) + reach * sum(dilations)
    width = needed if steps is None else min(needed, steps)
    parts = min(max(width * units // _STEP_UNITS_A_PART, 1), _MOST_PARTS)
    # The top level alone, on the last step: not worth it where there is little to compute.
    coarser = not inside and (parts > 1 or max(dilations) > 1)
    grids = _needed(dilations, reach, steps, num_outputs, only_last=coarser)
    first = 0
    grid = grids[0]
    for level in range(depth):
        if grids[level].stride != grids[level + 1].stride:
            # The level that leaves its grid is a segment alone: levels of one loop share a grid.
            if level > first:
                yield Segment(first, level, grid, grid)
            above = level + 1
            yield Segment(level, above, grids[level], grids[above])
            first = above
            grid = grids[above]
            continue
        needless = _reach(grid, steps) - _reach(grids[level], steps)
        narrower = parts > 1 and needless * parts >= width
        if level > first and (narrower or level in inside):
            yield Segment(first, level, grid, grid)
            first = level
            # A stop alone cuts the levels and leaves the steps as they are.
            grid = grids[level] if narrower else grid
    if first < depth:
        yield Segment(first, depth, grid, grid)


def _reach(grid: Grid, steps: int | None) -> int:
    """Returns how far a grid reaches back; -1 for all steps where T is unknown."""
    if grid.reach is None:
        return -1 if steps is None else steps - 1
    return grid.reach


def _needed(
    dilations: Sequence[int],
    reach: int,
    steps: int | None,
    num_outputs: int | None,
    *,
    only_last: bool,
) -> list[Grid]:
    """Returns the steps that are needed: those of each level's input, then those of the output."""
    if num_outputs is None or steps == 0:
        return [WHOLE] * (len(dilations) + 1)
    # The last step is the state, and always needed.
    top = last(max(num_outputs, 1), steps)
    if not only_last:
        top = top._replace(stride=1)
    grids = [top]
    # From the top down: what a level reads is what the one below it must compute.
    for dilation in reversed(dilations):
        grids.append(grids[-1].read(reach, dilation, steps))
    return grids[::-1]
