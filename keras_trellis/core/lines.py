"""Delay lines: what a stream keeps of its past, told by what it reads.

A line takes one entry at each time step and is read at fixed delays: so are the window of a causal
convolution and a level of a trellis network; the state of a recurrent layer is a line of length
one. Whoever keeps the lines (buffers in place, or a host beside an exported graph) hands a chunk
the entries that it reads and takes those that it makes. So a chunk costs what it computes, however
far its layers see.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from keras import ops

from keras_trellis.backend import current as backend
from keras_trellis.types import Tensor


class Line(NamedTuple):
    """What is pushed at each time step, and where it is read.

    Attributes:
        shape: that of an entry, without the batch.
        delays: how many steps before the first step of an output its layer reads, ascending. Those
            that are not positive are read of the chunk itself.
        dtype: that of the entries.
        stride: how many steps lie between two outputs.
    """

    shape: tuple[int, ...]
    delays: tuple[int, ...]
    dtype: str
    stride: int = 1

    @property
    def length(self) -> int:
        """How many entries are kept."""
        return self.delays[-1]

    def places(self, steps: int) -> tuple[int, ...]:
        """Returns which entries a chunk reads: how far before it they stand, the oldest first.

        Args:
            steps: the number of time steps of the chunk.
        """
        # The output that begins at step s of the chunk reads delay - s steps before the chunk; what
        # is not before it is read of the chunk itself.
        begins = range(0, steps, self.stride)
        read = {delay - begin for delay in self.delays for begin in begins}
        return tuple(sorted((place for place in read if place > 0), reverse=True))


def read(
    line: Line, past: Tensor, pushed: Tensor, windows: Sequence[Sequence[int]]
) -> Tensor:
    """Returns what stands so many steps before each output.

    Args:
        line: the line.
        past: the entries at `line.places(n)`, `[B, K, ...]`.
        pushed: the entries of the chunk, `[B, n, ...]`.
        windows: delays of the line. Each of them is read for all outputs before the next one.

    Returns:
        `[B, entries, ...]`: of each window, for each output, at each delay.
    """
    steps = pushed.shape[1]
    place_by_delay = {place: number for number, place in enumerate(line.places(steps))}
    # Numbered as if the entries that are read and then the chunk stood in one row.
    count = len(place_by_delay)
    places = [
        place_by_delay[delay - begin] if begin < delay else count + begin - delay
        for delays in windows
        for begin in range(0, steps, line.stride)
        for delay in delays
    ]
    # A single step with positive delays reads nothing of itself: nothing is joined.
    if max(places) < count:
        return take(past, places)
    return take(backend.join([past, pushed], axis=1), places)


def take(past: Tensor, places: Sequence[int]) -> Tensor:
    """Returns the entries `[B, K, ...]` at some places, in their order."""
    first = places[0]
    end = first + len(places)
    # A run of entries is a slice, or all there is. A gather would copy entry by entry.
    if list(places) == list(range(first, end)):
        return past if len(places) == past.shape[1] else past[:, first:end]
    return ops.take(past, ops.convert_to_tensor(places, "int32"), axis=1)
