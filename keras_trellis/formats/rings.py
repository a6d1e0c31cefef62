"""Delay lines outside of a graph: a table of them, and ring buffers that keep their entries.

A graph that `StreamedModel.export(..., cache="host")` wrote takes the entries that its chunk reads
and returns those that it makes. This is the rest of it, in NumPy; in another language it is as
short. Lines of one shape and dtype lie in one pool, so that a graph has few inputs.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

FORMAT = 1


def table_path(path: str) -> str:
    """Returns where the table of an export lies."""
    return f"{path}.lines.json"


def new(pool: str) -> str:
    """Returns the name of the output with the new entries of a pool."""
    return f"new_{pool}"


class Line(NamedTuple):
    """A delay line, for chunks of one length.

    Attributes:
        name: its name.
        shape: that of an entry.
        dtype: that of the entries.
        length: how many entries it keeps.
        places: which of them a chunk reads: how far before it they stand, the oldest first.
        pushed: how many new ones a chunk makes, of which it keeps the last.
        initial: the entry at all places before the first step; None for zeros.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    length: int
    places: tuple[int, ...]
    pushed: int
    initial: Any = None

    @property
    def kept(self) -> int:
        """How many of the new entries are kept."""
        return min(self.pushed, self.length)


class Part(NamedTuple):
    """Entries of a pool, one row of numbers for each.

    Attributes:
        line: the line that it is of.
        base: where that line begins in the pool.
        offset: how many entries it stands after the next one that is overwritten.
    """

    line: np.ndarray
    base: np.ndarray
    offset: np.ndarray


class Pool(NamedTuple):
    """The lines of one shape and dtype.

    Attributes:
        name: its name.
        lines: its lines, by their numbers in the table.
        shape: that of an entry.
        dtype: that of the entries.
        size: how many entries all its lines keep.
        read: the entries that a chunk reads, line after line.
        written: those that it makes.
    """

    name: str
    lines: list[int]
    shape: tuple[int, ...]
    dtype: str
    size: int
    read: Part
    written: Part


class Table:
    """The delay lines of a model, and where its chunks read and write them.

    Where a row of a line goes on is a number, the place of its oldest entry, `[B, lines]` for all.

    Args:
        lines: the lines.

    Attributes:
        lines: the lines.
        lengths: how many entries each keeps.
        pushed: how many new ones a chunk makes of each.
        pools: the lines by shape and dtype.
    """

    def __init__(self, lines: Sequence[Line]) -> None:
        self.lines = list(lines)
        self.pushed = np.array([line.pushed for line in lines], "int32")
        self.lengths = np.array([line.length for line in lines], "int32")
        # In the order of the lines, so that every process gives a pool the same name.
        kinds: dict[tuple[Any, ...], list[int]] = {}
        for number, line in enumerate(lines):
            kinds.setdefault((line.shape, line.dtype), []).append(number)
        self.pools = [
            self._pool(f"lines_{number}", numbers)
            for number, numbers in enumerate(kinds.values())
        ]

    def _pool(self, name: str, numbers: list[int]) -> Pool:
        read: list[tuple[int, int, int]] = []
        written: list[tuple[int, int, int]] = []
        base = 0
        for number in numbers:
            line = self.lines[number]
            # A line goes on at its oldest entry, and so the newest stands just before that place.
            read += [(number, base, -place) for place in line.places]
            # Entries that are not kept count too: the others stand where single steps would have
            # put them.
            last = range(line.pushed - line.kept, line.pushed)
            written += [(number, base, offset) for offset in last]
            base += line.length
        first = self.lines[numbers[0]]
        return Pool(
            name, numbers, first.shape, first.dtype, base, _part(read), _part(written)
        )

    def places(
        self, part: Part, next_places: Any, take: Callable[..., Any] = np.take
    ) -> Any:
        """Returns where entries stand in their pool, `[B, entries]`.

        Args:
            part: which entries.
            next_places: where each line goes on, `[B, lines]`.
            take: `numpy.take`, or that of another library.
        """
        # For each entry the place of its line, `[B, entries]`: rows may stand at different places.
        begins = take(next_places, part.line, axis=1)
        # The array of a backend comes first: NumPy would take it for its own.
        return (begins + part.offset) % self.lengths[part.line] + part.base

    def initial(self, pool: Pool) -> np.ndarray:
        """Returns the entries of a pool before the first step, `[size, ...]`."""
        begun = np.zeros([pool.size, *pool.shape], pool.dtype)
        base = 0
        for number in pool.lines:
            line = self.lines[number]
            # At all places: so it does not matter where a row that begins anew goes on.
            if line.initial is not None:
                begun[base : base + line.length] = line.initial
            base += line.length
        return begun

    def after(self, next_places: Any) -> Any:
        """Returns where the lines go on after a chunk, from where they went on before it."""
        return (next_places + self.pushed) % self.lengths

    def to_json(self) -> str:
        """Returns the table as text."""
        lines = [line._asdict() for line in self.lines]
        content = {"format": FORMAT, "checksum": _checksum(lines), "lines": lines}
        return json.dumps(content)

    @classmethod
    def of_export(cls, path: str) -> Table:
        """Reads the table of an export.

        Args:
            path: that of the export.

        Raises:
            OSError: the table cannot be read.
            ValueError: it is damaged.
        """
        return cls.from_json(Path(table_path(path)).read_text())

    @classmethod
    def from_json(cls, text: str) -> Table:
        """Reads the text.

        Raises:
            ValueError: it is no such table.
        """
        try:
            content = json.loads(text)
            expected = FORMAT, _checksum(content["lines"])
            if (content["format"], content["checksum"]) != expected:
                raise KeyError
            lines = [
                Line(
                    name=str(line["name"]),
                    shape=tuple(map(int, line["shape"])),
                    dtype=str(np.dtype(line["dtype"])),
                    length=int(line["length"]),
                    places=tuple(map(int, line["places"])),
                    pushed=int(line["pushed"]),
                    initial=line["initial"],
                )
                for line in content["lines"]
            ]
            return cls(lines)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"a table of delay lines of format {FORMAT}, unchanged, was expected. "
                f"Received: {text[:80]!r}"
            ) from error


def _checksum(lines: Any) -> int:
    return zlib.crc32(json.dumps(lines).encode())


def _part(entries: Sequence[tuple[int, int, int]]) -> Part:
    return Part(*np.array(entries, "int32").reshape(-1, 3).T)


class Rings:
    """Ring buffers of delay lines, each row at its own place.

    Args:
        table: the lines.
        rows: the number of rows, B.

    Attributes:
        table: the lines.
    """

    def __init__(self, table: Table, rows: int) -> None:
        self.table = table
        # The entries of row after row.
        self._buffers = {
            pool.name: np.concatenate([table.initial(pool)] * rows)
            for pool in table.pools
        }
        # All parts at once: where rows are few, the time is that of NumPy's calls.
        parts = [part for pool in table.pools for part in (pool.read, pool.written)]
        line, base, offset = map(np.concatenate, zip(*parts, strict=True))
        counts = [len(part.line) for part in parts]
        # A part that is read and one that is written for each pool, as in `parts`.
        sizes = np.repeat([pool.size for pool in table.pools for _ in range(2)], counts)
        ends = np.cumsum(counts)
        self._slices = [*map(slice, ends - counts, ends)]
        # By entry, and not by line: a step then adds and takes remainders in one call each.
        self._pushed, self._lengths = table.pushed[line], table.lengths[line]
        # Where the parts stand in their lines, and where these begin in the buffers.
        self._places = np.tile(offset % self._lengths, [rows, 1])
        self._bases = base + np.arange(rows)[:, None] * sizes

    def read(self, rows: Any = None) -> dict[str, np.ndarray]:
        """Returns the entries that a chunk reads, by pool: `[B, entries, ...]`.

        Args:
            rows: the numbers of the rows; None for all.
        """
        rows = self._numbers(rows)
        places = self._places[rows] + self._bases[rows]
        return {
            pool.name: np.take(self._buffers[pool.name], places[:, read], axis=0)
            for pool, read in zip(self.table.pools, self._slices[::2], strict=True)
        }

    def push(self, entries: Mapping[str, np.ndarray], rows: Any = None) -> None:
        """Takes the entries that a chunk made.

        Args:
            entries: the outputs of the graph by name, of which `new_POOL` are read.
            rows: as for `read`.

        Raises:
            ValueError: they do not fit the table.
        """
        rows = self._numbers(rows)
        places = self._places[rows] + self._bases[rows]
        for pool, written in zip(self.table.pools, self._slices[1::2], strict=True):
            where, name = places[:, written], new(pool.name)
            expected = (*where.shape, *pool.shape)
            if name not in entries or np.shape(entries[name]) != expected:
                shapes = {name: np.shape(value) for name, value in entries.items()}
                raise ValueError(
                    f"`entries` must have {name!r} of shape {expected}: this table is of another "
                    f"export, or of other rows. Received: entries of shapes {shapes}"
                )
            # No place twice: a line keeps at most as many new entries as it has places.
            self._buffers[pool.name][where] = entries[name]
        self._places[rows] = (self._places[rows] + self._pushed) % self._lengths

    def reset(self, rows: Any) -> None:
        """Begins rows anew.

        Args:
            rows: their numbers.
        """
        for pool in self.table.pools:
            # A view by row, so that what is written reaches the buffer.
            buffer = self._buffers[pool.name].reshape(-1, pool.size, *pool.shape)
            buffer[self._numbers(rows)] = self.table.initial(pool)

    def _numbers(self, rows: Any) -> Any:
        return slice(None) if rows is None else np.asarray(rows)
