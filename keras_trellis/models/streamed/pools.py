"""The delay lines of a whole model, in pools: what a chunk reads of each, and what it makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from keras_trellis.backend import current as backend
from keras_trellis.formats import rings
from keras_trellis.models.streamed.plan import Plan
from keras_trellis.types import Number, Tensor


def table(plan: Plan, steps: int) -> rings.Table:
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
    outputs, pushed = plan.advance(inputs, past, rows)
    made = {}
    for pool in table.pools:
        lines = [table.lines[number] for number in pool.lines]
        # A chunk may be longer than the line: the line keeps its last entries alone.
        parts = [pushed[line.name][:, -line.kept :] for line in lines]
        made[pool.name] = backend.join(parts, axis=1)
    return outputs, made
