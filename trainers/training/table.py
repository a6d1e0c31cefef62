"""A run's table, metrics.csv: rows by kind and step, the same however often the run stopped.

A table that is not as a run writes it, as after an editor or a spreadsheet, is never written over:
it is set aside under another name, and the rows that can be read go on in a new one.
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
        rows: those that can be read, cells that hold no number empty.
        half: a last line that does not end, as a process leaves it that was killed.
        problem: what no run writes; None where there is nothing such.
        origin: the file as it is; None where there is none, or it cannot be read.
    """

    fields: list[str]
    rows: list[Row]
    half: str = ""
    problem: str | None = None
    origin: bytes | None = None


class Table:
    """A CSV file that rows are appended to, and that drops those of steps computed again.

    Attributes:
        rows: all rows, also those that could not be written yet.
    """

    def __init__(
        self, path: epath.Path, *, last_step: int, announce: Callable[[str], None] = print
    ):
        """Opens the table of a run that goes on after `last_step`.

        Args:
            path: the file.
            last_step: the step of the run's checkpoint.
            announce: is told, in a line, what is wrong with the file.
        """
        found = read(path)
        self.path = path
        self.fields = found.fields
        self.rows = [row for row in found.rows if int(row["step"]) <= last_step]
        self._current = False  # whether the file holds `rows`
        self._ours = True  # whether the file may be written
        problem = found.problem
        if not problem and _step(found.half.split(",")) <= last_step:
            problem = "its last line is cut off"  # that of a killed process has a later step
        if problem:
            announce(self._set_aside(problem, found.origin))

    def append(self, row: Mapping[str, Any]) -> None:
        """Adds a row; a field not seen before becomes a column.

        Raises:
            OSError: it could not be written; it will be with the next row, or by `flush`.
        """
        if any(r["kind"] == row["kind"] and r["step"] == str(row["step"]) for r in self.rows[-3:]):
            return  # of a run that was stopped between a record and its checkpoint
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
        """Writes what is not yet written; raises OSError where that fails."""
        if self._current or not self._ours or not self.fields:
            return
        text = io.StringIO()
        writer = csv.DictWriter(text, self.fields, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        write_atomically(self.path, lambda file: file.write(text.getvalue().encode()))
        self._current = True

    def _set_aside(self, problem: str, origin: bytes | None) -> str:
        """Keeps the file under another name, and begins a new one; returns what there is to say."""
        told = f"{self.path} is not as a run writes it ({problem})"
        try:
            if origin is None:
                aside = set_aside(self.path)
            else:  # A copy: were we killed now, the rows would still stand where they belong.
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
    """Reads a table, and changes nothing; whatever is wrong with it, that is all it says."""
    try:
        return parse(read_bytes(path))
    except FileNotFoundError:
        return Content([], [])
    except OSError as error:
        return Content([], [], problem=f"it cannot be read: {error.strerror or error}")


def parse(origin: bytes) -> Content:
    """Returns what the bytes of a table hold, line by line, so that one costs no other."""
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
    """Returns the text, its lines ending in line breaks, and what is wrong with it."""
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
    """Returns the cells of a line; a spreadsheet may have put them in quotation marks."""
    cells = [cell.strip('"') for cell in line.split(separator)]
    # Where a comma separates no columns, it is what a number's fraction begins with.
    return cells if separator == "," else [cell.replace(",", ".") for cell in cells]


def _row(fields: Sequence[str], cells: Sequence[str]) -> Row | None:
    if len(cells) != len(fields):
        return None
    row = dict(zip(fields, cells, strict=True))
    if row["kind"] not in _KINDS or _step([row["kind"], row["step"], ""]) == sys.maxsize:
        return None
    return row if _is_number(row["epoch"]) and math.isfinite(float(row["epoch"])) else None


def _step(cells: Sequence[str]) -> int:
    """Returns the step of a line's cells, which must be complete; a great one where it has none."""
    step = cells[1] if len(cells) > 2 else ""
    return int(step) if step.isascii() and step.isdecimal() and len(step) < 18 else sys.maxsize


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return cell.isascii()
