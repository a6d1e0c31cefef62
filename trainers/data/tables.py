"""Tables in files: CSV, and Parquet where pyarrow is installed. Errors name the file and the line.

The standard library's reader of CSV knows the line of each row; that of pandas does not.
"""

import collections
import csv
import datetime
import io
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from etils import epath

from trainers.data.files import check_regular
from trainers.data.stores import to_path

CSV, PARQUET = ".csv", ".parquet"
_ROWS = 10_000  # of a Parquet file, at once
# Halfway from the largest float32 to the next power of two: rounding takes it, and what is beyond
# it, to infinity.
_BEYOND_FLOAT32 = 2.0**128 - 2.0**103


class Place(NamedTuple):
    """Where a row is.

    Attributes:
        path: the file.
        kind: "line" of a CSV file, or "row" of a Parquet file.
        number: counted from 1; the first line of a CSV file has the columns.
    """

    path: epath.Path
    kind: str
    number: int

    def __str__(self) -> str:
        return f"{os.fspath(self.path)}, {self.kind} {self.number}"


def find(flag: str, folder: epath.PathLike) -> list[epath.Path]:
    """Returns the tables in a folder, by their names.

    Args:
        flag: the flag that names the folder, for errors.
        folder: the folder; the folders in it do not count.

    Raises:
        ValueError: it is no folder, or has no table.
    """
    place = to_path(folder)
    expected = f"--{flag} must be a folder with {CSV} or {PARQUET} files. Received: "
    if not place.is_dir():
        raise ValueError(f"{expected}--{flag}={folder}, which is no folder")
    paths = sorted(path for path in place.iterdir() if _suffix(path) in (CSV, PARQUET))
    if not paths:
        raise ValueError(f"{expected}--{flag}={folder}, which has none")
    for path in paths:
        check_regular(path)
    return paths


def header(path: epath.Path) -> list[str]:
    """Returns the names of a table's columns.

    Raises:
        ValueError: there are none, two columns have one name, or the file is no such table.
    """
    place: Any = os.fspath(path)
    if _suffix(path) == PARQUET:
        names = list(_parquet(path).schema_arrow.names)
    else:
        with path.open("rb") as file:
            line, names = next(_lines(path, file), (1, []))
        place = Place(path, "line", line)
    repeated = first_repeated(names)
    if not names or repeated is not None:
        received = "none" if repeated is None else f"{repeated!r} twice"
        raise ValueError(
            f"{place} must have the names of the columns, each once. Received: {received}"
        )
    return names


def first_repeated(names: Sequence[str]) -> str | None:
    """Returns the first of the names that are there more than once; None if there is none."""
    counts = collections.Counter(names)
    return next((name for name, count in counts.items() if count > 1), None)


def rows(
    path: epath.Path, columns: Sequence[str]
) -> Iterator[tuple[Place, Sequence[Any]]]:
    """Yields the place and some cells of each row: texts of a CSV file, values of a Parquet file.

    Args:
        path: the table.
        columns: the names of the columns.

    Raises:
        ValueError: a column is not there, or a row has more or fewer cells than there are columns.
    """
    names = header(path)
    indices = {name: index for index, name in enumerate(names)}
    for column in columns:
        if column not in indices:
            raise ValueError(
                f"{os.fspath(path)} must have the column {column!r}. "
                f"Received: {', '.join(names)}"
            )
    if _suffix(path) == PARQUET:
        yield from _parquet_rows(path, columns)
        return
    chosen = [indices[column] for column in columns]
    with path.open("rb") as file:
        lines = _lines(path, file)
        next(lines)
        for number, cells in lines:
            place = Place(path, "line", number)
            if len(cells) != len(names):
                raise ValueError(
                    f"{place} must have {len(names)} cells, as the first line. "
                    f"Received: {len(cells)}"
                )
            yield place, [cells[index] for index in chosen]


def number(place: Place, column: str, cell: Any) -> float:
    """Returns the number in a cell, which float32 can hold; NaN for an empty cell.

    Raises:
        ValueError: it holds anything else: NaN, too, and what float32 would take for infinity.
    """
    if is_empty(cell):
        return math.nan
    try:
        value = float(cell)
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    if not -_BEYOND_FLOAT32 < value < _BEYOND_FLOAT32:
        raise ValueError(
            f"{place}: the column {column!r} must have finite float32 numbers, or empty cells. "
            f"Received: {str(cell)!r}"
        )
    return value


def text(place: Place, column: str, cell: Any) -> str:
    """Returns the text in a cell, without white space at its ends; "" for an empty cell.

    Raises:
        ValueError: it is NaN, which only a Parquet file can hold as a value.
    """
    if is_empty(cell):
        return ""
    if cell != cell:
        raise ValueError(
            f"{place}: the column {column!r} must have values, or nothing (null). "
            "Received: NaN"
        )
    return str(cell).strip()


def seconds(place: Place, column: str, cell: Any) -> float:
    """Returns the time in a cell: a number as it is, a date and time of ISO 8601 in seconds.

    Raises:
        ValueError: it holds anything else.
    """
    try:
        return _seconds(cell)
    except (TypeError, ValueError):
        raise ValueError(
            f"{place}: the column {column!r} must have times: numbers, or dates as 2024-05-31 or "
            f"2024-05-31T12:00:00. Received: {'' if cell is None else str(cell)!r}"
        ) from None


def is_empty(cell: Any) -> bool:
    """Returns whether a cell holds nothing."""
    return cell is None or (isinstance(cell, str) and not cell.strip())


def _seconds(cell: Any) -> float:
    if isinstance(cell, str):
        try:
            return _finite(float(cell))
        except ValueError:
            # Python 3.10 does not know the letter for UTC.
            cell = datetime.datetime.fromisoformat(cell.strip().replace("Z", "+00:00"))
    if isinstance(cell, datetime.date) and not isinstance(cell, datetime.datetime):
        cell = datetime.datetime(cell.year, cell.month, cell.day)
    if isinstance(cell, datetime.datetime):
        zone = cell.tzinfo or datetime.timezone.utc
        return cell.replace(tzinfo=zone).timestamp()
    return _finite(float(cell))


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError
    return value


def _suffix(path: epath.Path) -> str:
    return path.suffix.lower()


def _lines(path: epath.Path, file: Any) -> Iterator[tuple[int, list[str]]]:
    """Yields the rows of a CSV file that are not empty, each with the number of its last line."""
    # Bytes that are not UTF-8 become surrogates: an error of the decoder, which reads ahead, would
    # not know their line.
    text = io.TextIOWrapper(file, "utf-8-sig", errors="surrogateescape", newline="")
    reader = csv.reader(_checked(path, text), strict=True)
    try:
        for cells in reader:
            if cells:
                yield reader.line_num, cells
    except csv.Error as error:
        raise ValueError(
            f"{Place(path, 'line', reader.line_num)} must be a row of CSV in UTF-8. "
            f"Received: {error}"
        ) from error


def _checked(path: epath.Path, lines: Iterable[str]) -> Iterator[str]:
    """Yields lines; raises ValueError if one has a byte that is not UTF-8."""
    for number, line in enumerate(lines, 1):
        try:
            line.encode()
        except UnicodeEncodeError as error:
            byte = line[error.start].encode(errors="surrogateescape")[0]
            raise ValueError(
                f"{Place(path, 'line', number)} must be a row of CSV in UTF-8. Received: "
                f"the byte {byte:#04x} at character {error.start + 1}"
            ) from None
        yield line


def _parquet(path: epath.Path) -> Any:
    """Returns an open Parquet file."""
    try:
        from pyarrow import lib, parquet
    except ImportError as error:
        raise ImportError(
            f"{os.fspath(path)} needs pyarrow: pip install pyarrow"
        ) from error
    try:
        return parquet.ParquetFile(io.BytesIO(path.read_bytes()))
    except lib.ArrowException as error:
        message = " ".join(str(error).split())
        raise ValueError(
            f"{os.fspath(path)} must be a Parquet file. Received: {message}"
        ) from error


def _parquet_rows(
    path: epath.Path, columns: Sequence[str]
) -> Iterator[tuple[Place, Sequence[Any]]]:
    count = 0
    for batch in _parquet(path).iter_batches(
        _ROWS, columns=list(dict.fromkeys(columns))
    ):
        lists = {name: _python(batch.column(name)) for name in columns}
        for cells in zip(*(lists[name] for name in columns), strict=True):
            count += 1
            yield Place(path, "row", count), cells


def _python(array: Any) -> list[Any]:
    """Returns the values of an array of Arrow; Python has no nanoseconds."""
    import pyarrow

    if pyarrow.types.is_timestamp(array.type):
        array = array.cast(pyarrow.timestamp("us", array.type.tz), safe=False)
    return array.to_pylist()
