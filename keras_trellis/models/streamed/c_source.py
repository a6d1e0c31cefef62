"""A chunk's pass as C99 source: rings of a fixed size, no allocation, the C library alone.

What is written is the graph that `cache="host"` gives ONNX, for one row. All of its sizes are
known, so that an operation becomes plain loops.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keras_trellis.formats import rings
from keras_trellis.models.streamed.c_arrays import TYPES, identifier, literal
from keras_trellis.models.streamed.c_operations import Program

_FILES = ("support.h", "main.c", "Makefile")
"""What is the same for every model, in the folder `c`."""


def sources(
    graph: Any,
    table: rings.Table,
    inputs: Sequence[str],
    outputs: Sequence[str],
    prefix: str,
) -> dict[str, str]:
    """Returns the files of a model: `model.h`, `model.c`, `weights.h`, and those of every model.

    Args:
        graph: the pass over a chunk of one row, of ONNX.
        table: its delay lines.
        inputs: the names of the chunk's inputs.
        outputs: those of its outputs.
        prefix: what the functions' names begin with.

    Raises:
        UnknownOperationError: the graph has an operation that this lacks.
    """
    program = Program(graph, inputs)
    declarations, work = program.declarations()
    pools = [_Pool(pool, table, program) for pool in table.pools]
    given = [(identifier(name), program[name]) for name in inputs]
    answers = [program[name] for name in outputs]
    begins = _places([view.size for _, view in given])
    ends = _places([view.size for view in answers])
    body = [
        *(
            f"const float *const {name} = chunk + {place};"
            for (name, _), place in zip(given, begins, strict=False)
        ),
        *declarations,
        *(pool.read for pool in pools),
        *program.statements,
        *(
            f"memcpy(outputs + {place}, {view.pointer}, sizeof(float) * {view.size});"
            for view, place in zip(answers, ends, strict=False)
        ),
        *(pool.write for pool in pools),
    ]
    lines = max(len(table.lines), 1)
    header = _HEADER.format(
        prefix=prefix,
        inputs=begins[-1],
        outputs=ends[-1],
        fields="".join(f"  {pool.field}\n" for pool in pools),
        lines=lines,
        work=work,
    )
    source = _SOURCE.format(
        prefix=prefix,
        lengths=", ".join(map(str, table.lengths)) or "1",
        pushed=", ".join(map(str, table.pushed)) or "0",
        lines=lines,
        tables="".join(text for pool in pools for text in pool.tables()),
        begins="".join(f"  {pool.begin}\n" for pool in pools if pool.begin),
        body="".join(f"  {statement}\n" for statement in body),
    )
    weights = "".join(_array(*each) for each in program.weights.items())
    folder = Path(__file__).parent / "c"
    shared = {
        name: (folder / name).read_text().replace("MODEL", prefix) for name in _FILES
    }
    return {"model.h": header, "model.c": source, "weights.h": weights} | shared


def _places(sizes: Sequence[int]) -> list[int]:
    """Returns where each of some arrays begins that stand one after the other, and the end."""
    return [*itertools.accumulate([0, *sizes])]


class _Pool:
    """What the source has for the delay lines of one shape and dtype.

    Attributes:
        field: of the stream.
        begin: what begins it; empty where that is zeros.
        read: gets what the chunk reads.
        write: keeps what it made.
    """

    def __init__(self, pool: rings.Pool, table: rings.Table, program: Program) -> None:
        self._pool = pool
        self._table = table
        self._first = table.initial(pool)
        name, kind = pool.name, TYPES[pool.dtype]
        width = math.prod(pool.shape)
        self.field = f"{kind} {name}[{pool.size * width}];"
        self.begin = ""
        if self._first.any():
            self.begin = f"memcpy(stream->{name}, first_{name}, sizeof first_{name});"
        made = program[rings.new(name)].pointer
        ends = "stream->next, lengths);"
        self.read = (
            f"read_lines((char *){name}, (const char *)stream->{name}, sizeof({kind}) * {width}, "
            f"read_{name}, {len(pool.read.line)}, {ends}"
        )
        self.write = (
            f"write_lines((char *)stream->{name}, (const char *)({made}), sizeof({kind}) * "
            f"{width}, write_{name}, {len(pool.written.line)}, {ends}"
        )

    def tables(self) -> Iterator[str]:
        """Yields the tables that it needs."""
        name, lengths = self._pool.name, self._table.lengths
        yield _entries(f"read_{name}", self._pool.read, lengths)
        yield _entries(f"write_{name}", self._pool.written, lengths)
        if self.begin:
            yield _array(f"first_{name}", self._first)


def _array(name: str, values: np.ndarray) -> str:
    """Returns a table of numbers."""
    kind = TYPES[values.dtype.name]
    numbers = [literal(value) for value in values.reshape(-1)] or ["0"]
    rows = [
        ", ".join(numbers[begin : begin + 8]) for begin in range(0, len(numbers), 8)
    ]
    body = ",\n  ".join(rows)
    return f"static const {kind} {name}[{len(numbers)}] = {{\n  {body}\n}};\n"


def _entries(name: str, part: rings.Part, lengths: np.ndarray) -> str:
    offsets = part.offset % lengths[part.line]
    rows = [
        f"{{{line}, {base}, {offset}}}"
        for line, base, offset in zip(part.line, part.base, offsets, strict=True)
    ]
    return f"static const entry {name}[{len(rows)}] = {{{', '.join(rows)}}};\n"


_HEADER = """/* Written by keras_trellis: a streamed model, a chunk at a time. */
#include <stdint.h>

#define {prefix}_INPUTS {inputs} /* the numbers of a chunk: step after step, of each input */
#define {prefix}_OUTPUTS {outputs} /* those that it answers */

/* A stream: what it has read, and space to compute in. */
typedef struct {{
{fields}  int32_t next[{lines}];
  float work[{work}];
}} {prefix}_stream;

/* Begins a stream. */
void {prefix}_begin({prefix}_stream *stream);

/* Reads the next chunk. */
void {prefix}_advance({prefix}_stream *stream, const float *chunk, float *outputs);
"""

_SOURCE = """#include "model.h"

#include "support.h"
#include "weights.h"

static const int32_t lengths[{lines}] = {{{lengths}}};
static const int32_t pushed[{lines}] = {{{pushed}}};
{tables}
void {prefix}_begin({prefix}_stream *stream) {{
  memset(stream, 0, sizeof *stream);
{begins}}}

void {prefix}_advance({prefix}_stream *stream, const float *chunk, float *outputs) {{
{body}  for (int line = 0; line < {lines}; line++)
    stream->next[line] = (stream->next[line] + pushed[line]) % lengths[line];
}}
"""
