"""A run's table, metrics.csv: rows by kind and step, the same however often the run stopped.

A table that an editor or a spreadsheet has changed is never overwritten. It is renamed, and its
readable rows continue in a new table.
"""

import csv
import io
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from etils import epath

from trainers.data.files import read_bytes, set_aside, spare_path, write_atomically

METRICS = "metrics.csv"
INTERVAL, EPOCH, VALIDATION = "train_interval", "train_epoch", "validation"
_KINDS = (INTERVAL, EPOCH, VALIDATION)
_FIRST_FIELDS = ["kind", "step", "epoch"]
Row = dict[str, str]


class Content(NamedTuple):
    """What a table's file holds.

    Attributes:
        fields: its columns.
        rows: the readable rows; cells that should hold a number and do not are empty.
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
        self, path: epath.Path, *, last_step: int, announce: Callable[[str], None] = print
    ):
        """Opens the table of a run that continues after `last_step`.

        Args:
            path: the file.
            last_step: the step of the run's checkpoint.
            announce: takes a line about a problem with the file.
        """
        found = read(path)
        self.path = path
        self.fields = found.fields
        self.rows = [row for row in found.rows if int(row["step"]) <= last_step]
        self._current = False  # whether the file holds `rows`
        self._ours = True  # whether the file may be written
        problem = found.problem
        if not problem and _step(found.half.split(",")) <= last_step:
            problem = "its last line is cut off"  # a killed process leaves a later step
        if problem:
            announce(self._set_aside(problem, found.origin))

    def append(self, row: Mapping[str, Any]) -> None:
        """Adds a row; a field not seen before becomes a column.

        Raises:
            OSError: the row could not be written; the next row or `flush` tries again.
        """
        if any(r["kind"] == row["kind"] and r["step"] == str(row["step"]) for r in self.rows[-3:]):
            return  # the run was stopped between this record and its checkpoint
        self.rows.append({field: str(value) for field, value in row.items()})
        appendable = self._current and set(row) <= set(self.fields)
        self._current = False
        self.fields += [field for field in row if field not in self.fields]
        if not appendable:
            self.flush()
            return
        with self.path.open("a") as file:
            csv.DictWriter(file, self.fields, lineterminator="\n").writerow(self.rows[-1])
        self._current = True

    def flush(self) -> None:
        """Writes the rows that are not written yet, or raises OSError."""
        if self._current or not self._ours or not self.fields:
            return
        text = io.StringIO()
        writer = csv.DictWriter(text, self.fields, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        write_atomically(self.path, lambda file: file.write(text.getvalue().encode()))
        self._current = True

    def _set_aside(self, problem: str, origin: bytes | None) -> str:
        """Keeps the file under another name and begins a new one; returns a line about it."""
        told = f"{self.path} is not as a run writes it ({problem})"
        try:
            if origin is None:
                aside = set_aside(self.path)
            else:  # Copy it: if we are killed now, the rows are still in their place.
                aside = spare_path(self.path)
                write_atomically(aside, lambda file: file.write(origin))
        except OSError as error:
            self._ours = False
            return f"{told} and cannot be set aside ({error}); it stays, and gets no more rows"
        self.fields = _FIRST_FIELDS + [
            field
            for field in dict.fromkeys(self.fields)
            if field not in _FIRST_FIELDS and any(row[field] for row in self.rows)
        ]
        self.rows = [{field: row[field] for field in self.fields} for row in self.rows]
        told += f"; it is set aside as {aside}, and "
        told += f"its {len(self.rows)} readable rows are in a new {self.path.name}"
        try:
            self.flush()
        except OSError as error:
            told += f" once that can be written ({error})"
        return told


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
    text, problems = _decode(origin)
    header, *lines = text.split("\n")
    half = lines.pop() if lines else ""
    separator = next((each for each in ";\t" if header.startswith(f"kind{each}step")), ",")
    if separator != ",":
        problems.append(f"its columns are separated by {separator!r}")
    fields = _cells(header, separator)
    if not set(_FIRST_FIELDS) <= set(fields):
        return Content([], [], half, "it has no header" if text else "it is empty", origin)
    if len(set(fields)) < len(fields) or "" in fields:
        problems.append("two columns have one name, or one has none")
    if '"' in text:
        problems.append("it has quotation marks")
    rows: dict[tuple[str, str], Row] = {}
    for number, line in enumerate(lines, 2):
        row = _row(fields, _cells(line, separator))
        if row is None or (row["kind"], row["step"]) in rows:
            problems.append(f"line {number} is no row of it")
            continue
        rows[row["kind"], row["step"]] = row
        for field in fields:
            if field != "kind" and row[field] and not _is_number(row[field]):
                problems.append(f"line {number} has no number as `{field}`")
                row[field] = ""
    return Content(fields, list(rows.values()), half, next(iter(problems), None), origin)


def _decode(origin: bytes) -> tuple[str, list[str]]:
    """Returns the text with plain line breaks, and its problems."""
    problems = []
    try:
        text = origin.decode()
    except UnicodeDecodeError:
        text = origin.decode(errors="replace")
        problems.append("it is not UTF-8")
    if text.startswith("\ufeff"):
        text = text.removeprefix("\ufeff")
        problems.append("it begins with a byte-order mark")
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        problems.append("its lines end in carriage returns")
    return text, problems


def _cells(line: str, separator: str) -> list[str]:
    """Returns the cells of a line, without the quotation marks of a spreadsheet."""
    cells = [cell.strip('"') for cell in line.split(separator)]
    # A comma that does not separate columns is a decimal comma.
    return cells if separator == "," else [cell.replace(",", ".") for cell in cells]


def _row(fields: Sequence[str], cells: Sequence[str]) -> Row | None:
    if len(cells) != len(fields):
        return None
    row = dict(zip(fields, cells, strict=True))
    if row["kind"] not in _KINDS or _step([row["kind"], row["step"], ""]) == sys.maxsize:
        return None
    return row if _is_number(row["epoch"]) and math.isfinite(float(row["epoch"])) else None


def _step(cells: Sequence[str]) -> int:
    """Returns the step in a line's cells; a very large number if the cell is cut or no number."""
    step = cells[1] if len(cells) > 2 else ""
    return int(step) if step.isascii() and step.isdecimal() and len(step) < 18 else sys.maxsize


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return cell.isascii()
