"""A run's table, metrics.csv: rows by kind and step, the same however often the run stopped.

A table that an editor or a spreadsheet has changed is never overwritten. It is renamed, and its
readable rows continue in a new table.
"""

import csv
import io
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from etils import epath

from trainers.data.files import read_bytes, set_aside, spare_path, write_atomically
from trainers.data.stores import is_store

METRICS = "metrics.csv"
INTERVAL, EPOCH, VALIDATION = "train_interval", "train_epoch", "validation"
_KINDS = (INTERVAL, EPOCH, VALIDATION)
_FIRST_FIELDS = ["kind", "step", "epoch"]
# An object store appends nothing: each row would send the table again.
_SECONDS_IN_STORE = 60
Row = dict[str, str]


class Content(NamedTuple):
    """What a table's file holds.

    Attributes:
        fields: its columns.
        rows: the readable rows.
        half: a last line without an end, as a killed process leaves it.
        problem: what no run would write, or None.
        origin: the file's bytes; None if it does not exist or cannot be read.
    """

    fields: list[str]
    rows: list[Row]
    half: str = ""
    problem: str | None = None
    origin: bytes | None = None


class Table:
    """A CSV file to append rows to; it drops rows of steps that will be computed again.

    Attributes:
        rows: all rows, those not written yet included.
    """

    def __init__(
        self,
        path: epath.Path,
        *,
        last_step: int,
        announce: Callable[[str], None] = print,
    ):
        """Opens the table of a run that continues after `last_step`.

        Args:
            path: the file.
            last_step: the step of the run's checkpoint.
            announce: takes a line about a problem with the file.
        """
        content = read(path)
        self.path = path
        self.fields = content.fields
        self.rows = [row for row in content.rows if int(row["step"]) <= last_step]
        self._current = False  # whether the file holds `rows`
        self._ours = True  # whether the file may be written
        self._written = -math.inf  # when, by `time.monotonic`
        problem = content.problem
        if not problem and _step(content.half.split(",")) <= last_step:
            problem = "its last line is cut off"  # a killed process leaves a later step
        if problem:
            announce(self._set_aside(problem, content.origin))

    def has(self, kind: str, step: int) -> bool:
        """Returns whether the last step has a row of a kind."""
        # A step has a row of each kind at the most.
        return any(
            row["kind"] == kind and row["step"] == str(step)
            for row in self.rows[-len(_KINDS) :]
        )

    def append(self, row: Mapping[str, Any]) -> None:
        """Adds a row; a field not seen before becomes a column.

        In an object store it is written by `flush`, or after a minute.

        Raises:
            OSError: the row could not be written; the next row or `flush` tries again.
        """
        self.rows.append({field: str(value) for field, value in row.items()})
        appendable = self._current and set(row) <= set(self.fields)
        self._current = False
        self.fields += [field for field in row if field not in self.fields]
        if is_store(self.path):
            if time.monotonic() - self._written > _SECONDS_IN_STORE:
                self.flush()
            return
        if not appendable:
            self.flush()
            return
        with self.path.open("a") as file:
            csv.DictWriter(file, self.fields, lineterminator="\n").writerow(
                self.rows[-1]
            )
        self._current = True

    def flush(self) -> None:
        """Writes the rows that are not written yet, or raises OSError."""
        if self._current or not self._ours or not self.fields:
            return
        text = io.StringIO()
        writer = csv.DictWriter(text, self.fields, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        self._written = time.monotonic()
        write_atomically(self.path, lambda file: file.write(text.getvalue().encode()))
        self._current = True

    def _set_aside(self, problem: str, origin: bytes | None) -> str:
        """Keeps the file under another name and begins a new one; returns a line about it."""
        message = f"{self.path} is not as a run writes it ({problem})"
        try:
            if origin is None:
                aside = set_aside(self.path)
            else:  # Copy it: if we are killed now, the rows are still in their place.
                aside = spare_path(self.path)
                write_atomically(aside, lambda file: file.write(origin))
        except OSError as error:
            self._ours = False
            return f"{message} and cannot be set aside ({error}); it stays, and gets no more rows"
        message += f"; it is set aside as {aside}, and "
        message += f"its {len(self.rows)} readable rows are in a new {self.path.name}"
        try:
            self.flush()
        except OSError as error:
            message += f" once that can be written ({error})"
        return message


def read(path: epath.Path) -> Content:
    """Reads a table, changes nothing, and never raises: the content names a problem."""
    try:
        return parse(read_bytes(path))
    except FileNotFoundError:
        return Content([], [])
    except OSError as error:
        return Content([], [], problem=f"it cannot be read: {error.strerror or error}")


def parse(origin: bytes) -> Content:
    """Parses the bytes of a table line by line, so that a bad line costs no other."""
    text = origin.decode("utf-8-sig", errors="replace").replace("\r\n", "\n")
    header, *lines = text.split("\n")
    half = lines.pop() if lines else ""
    fields = header.split(",")
    is_header = fields[:3] == _FIRST_FIELDS and "" not in fields
    if not is_header or len(set(fields)) < len(fields):
        return Content(
            [], [], half, "it has no header" if text else "it is empty", origin
        )
    problems = []
    if len(text.encode()) != len(origin):
        problems.append("it has a byte-order mark, carriage returns or bad UTF-8")
    rows: dict[tuple[str, str], Row] = {}
    for number, line in enumerate(lines, 2):
        row = _row(fields, line.split(","))
        if row is None or (row["kind"], row["step"]) in rows:
            problems.append(f"line {number} is no row of it")
        else:
            rows[row["kind"], row["step"]] = row
    return Content(
        fields, list(rows.values()), half, next(iter(problems), None), origin
    )


def _row(fields: Sequence[str], cells: Sequence[str]) -> Row | None:
    if (
        len(cells) != len(fields)
        or cells[0] not in _KINDS
        or _step(cells) == sys.maxsize
    ):
        return None
    try:
        numbers = [float(cell) for cell in cells[2:] if cell]
    except ValueError:
        return None
    if not cells[2] or not math.isfinite(numbers[0]):
        return None
    return dict(zip(fields, cells, strict=True))


def _step(cells: Sequence[str]) -> int:
    """Returns the step in a line's cells; a very large number if the cell is cut or no number."""
    step = cells[1] if len(cells) > 2 else ""
    if step.isascii() and step.isdecimal() and len(step) < 18:
        return int(step)
    return sys.maxsize
