"""Streams whose delay lines are updated in place: a step costs what it computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_trellis.backend import current as backend
from keras_trellis.formats import rings
from keras_trellis.models.streamed import received
from keras_trellis.models.streamed.plan import Node, Plan
from keras_trellis.types import Number, Tensor

Read = Callable[[str, Tensor], Tensor]
"""From a pool and places in it, `[B, entries]`, to what stands there."""


def line_table(plan: Plan, steps: int) -> rings.Table:
    """Returns the delay lines of a model, for chunks of so many steps."""
    lines = []
    for node in plan.nodes:
        begun = node.initial_entries()
        for name, line in node.lines.items():
            # Behind a strided layer a chunk has fewer steps.
            own_steps = node.own_steps(steps)
            lines.append(
                rings.Line(
                    name=name,
                    shape=line.shape,
                    dtype=line.dtype,
                    length=line.length,
                    places=line.places(own_steps),
                    pushed=own_steps,
                    initial=begun.get(name),
                )
            )
    return rings.Table(lines)


def advance(
    plan: Plan,
    table: rings.Table,
    inputs: Sequence[Tensor],
    pools: Mapping[str, Tensor],
    rows: Number,
) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Runs a model over a chunk.

    Args:
        plan: the model.
        table: its lines.
        inputs: the chunk, flat.
        pools: what the chunk reads, by pool: `[B, entries, ...]`.
        rows: B.

    Returns:
        the outputs, flat, and what the chunk makes, by pool.
    """
    past: dict[str, Tensor] = {}
    for pool in table.pools:
        lines = [table.lines[number] for number in pool.lines]
        sizes = [len(line.places) for line in lines]
        # In a pool line stands after line, each with what the chunk reads of it.
        parts = backend.split(pools[pool.name], sizes, axis=1)
        past |= {line.name: part for line, part in zip(lines, parts, strict=True)}
    no_masks = [None] * len(inputs)
    outputs, pushed = plan.run(inputs, no_masks, past, rows, Node.advance)
    made = {}
    for pool in table.pools:
        lines = [table.lines[number] for number in pool.lines]
        # A chunk may be longer than the line: the line keeps its last entries alone.
        parts = [pushed[line.name][:, -line.kept :] for line in lines]
        made[pool.name] = backend.join(parts, axis=1)
    return outputs, made


class RunningStream:
    """Rows that go on together, whose past is kept here; `StreamedModel.start` makes one.

    `StreamedModel.stream` takes a cache and returns another, which it has to copy. This changes its
    own, so that a step takes as long for a layer that sees far as for one that does not.

    Args:
        model: the model.
        plan: how it streams.
        batch_size: the number of rows, B.
        pack: returns outputs in the form in which the model returns them.
    """

    def __init__(
        self,
        model: keras.Model,
        plan: Plan,
        batch_size: int,
        pack: Callable[[list[Tensor]], Any],
    ) -> None:
        self._model = model
        self._plan = plan
        self._pack = pack
        self._rows = batch_size
        self._tables: dict[int, rings.Table] = {}
        # Pools do not depend on the length of a chunk: the shortest one's table will do.
        table = self._table(plan.stride)
        # The entries of row after row.
        self._begun = {
            pool.name: np.concatenate([table.initial(pool)] * batch_size)
            for pool in table.pools
        }
        places = np.zeros([batch_size, len(table.lines)], "int32")
        self._buffers = backend.Buffers(model, self._begun, places, self._run)

    def advance(self, chunk: Any) -> Any:
        """Continues all rows.

        Args:
            chunk: as for `StreamedModel.stream`; the number of its steps is known.

        Returns:
            the outputs for these steps, as `StreamedModel.stream` returns them.

        Raises:
            ValueError: the chunk does not fit the model or the rows, or a layer of the model makes
                a mask for one that sees several steps.
        """
        inputs = received.chunks(self._model, chunk, self._plan.stride)
        rows = inputs[0].shape[0]
        if rows != self._rows:
            raise ValueError(
                f"`chunk` must have {self._rows} rows. Received: {rows} rows"
            )
        self._table(inputs[0].shape[1])  # not within a graph
        outputs = self._buffers.advance(inputs)
        return self._pack(outputs)

    def reset(self, rows: Any = None) -> None:
        """Begins rows anew.

        Args:
            rows: bool `[B]`, true where a sequence begins; None: all do.
        """
        if rows is None:
            rows = np.ones([self._rows], "bool")
        anew = received.new_rows(rows, self._rows)
        for name, begun in self._begun.items():
            # A row goes on at the place where it is: before the first step all entries are alike.
            size = len(begun) // self._rows
            self._buffers.overwrite(name, ops.repeat(anew, size), begun)

    def _table(self, steps: int) -> rings.Table:
        """Returns the delay lines as chunks of so many steps read them."""
        if steps not in self._tables:
            self._tables[steps] = line_table(self._plan, steps)
        return self._tables[steps]

    def _run(
        self, read: Read, next_places: Tensor, inputs: list[Tensor]
    ) -> tuple[list[Tensor], dict[str, tuple[Tensor, Tensor]], Tensor]:
        """Runs the model over a chunk.

        Args:
            read: reads the buffers.
            next_places: where the lines go on, `[B, lines]`.
            inputs: the chunk, flat.

        Returns:
            the outputs, flat; by pool the places to write and what to write there; and where the
            lines go on then.
        """
        table = self._table(inputs[0].shape[1])
        past = {
            pool.name: read(
                pool.name, self._places(table, pool, pool.read, next_places)
            )
            for pool in table.pools
        }
        # All is read before anything is written: a chunk writes where the oldest entries stand.
        outputs, made = advance(self._plan, table, inputs, past, self._rows)
        written = {
            pool.name: (
                self._places(table, pool, pool.written, next_places),
                made[pool.name],
            )
            for pool in table.pools
        }
        return outputs, written, table.after(next_places)

    def _places(
        self, table: rings.Table, pool: rings.Pool, part: rings.Part, next_places: Any
    ) -> Tensor:
        """Returns places in the buffer of a pool, in which row stands after row."""
        # One index for rows and lines together: the buffer is `[B * size, ...]`.
        begins = np.arange(self._rows, dtype="int32")[:, None] * pool.size
        places: Tensor = table.places(part, next_places, backend.take)
        return places + begins
