"""Recordings out of a folder of tables: a row for each step, columns by name."""

import hashlib
import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from etils import epath

from trainers.data import tables
from trainers.data.recordings import NO_CLASS, Recording, whole, with_gaps
from trainers.data.sequences import SPLITS
from trainers.data.tables import Place


class Columns(NamedTuple):
    """The columns of the tables by name; "" for one that they lack.

    Attributes:
        channels: those of the values; (): all that have no other meaning.
        series: the name of the series that a row belongs to; "": each file is one.
        time: the time of a row; "": the rows are in order.
        label: what to predict; "": nothing is known of it.
        split: the split of a row.
    """

    channels: tuple[str, ...]
    series: str = ""
    time: str = ""
    label: str = ""
    split: str = ""

    @property
    def others(self) -> tuple[str, ...]:
        """The columns that are not channels."""
        return tuple(filter(None, (self.series, self.time, self.label, self.split)))


class Row(NamedTuple):
    """A step of a series; what the tables do not have is as by default."""

    place: Place
    values: Sequence[float]
    label: Any = None
    seconds: float = 0.0
    time: str = ""
    split: str = ""


class Series(NamedTuple):
    """The rows of one series, in order."""

    name: str
    rows: list[Row]

    @property
    def place(self) -> Place:
        """Where its first row is."""
        return self.rows[0].place

    @property
    def steps(self) -> np.ndarray:
        """The values `[T, p]`; a row with an empty cell is a gap."""
        return with_gaps(np.array([row.values for row in self.rows]))

    def recording(self, target: Any) -> Recording:
        """Returns the recording with a target."""
        times = tuple(row.time for row in self.rows if row.time)
        return Recording(self.name, self.steps, target, times)


class Table(NamedTuple):
    """The series of a folder.

    Attributes:
        channels: the columns of the values.
        series: by name, in the order in which the files have them.
    """

    channels: tuple[str, ...]
    series: dict[str, Series]


def read(flag: str, folder: epath.PathLike, columns: Columns) -> Table:
    """Reads the tables in a folder.

    Args:
        flag: the flag that names the folder, for errors.
        folder: the folder.
        columns: the columns.

    Raises:
        ValueError: a file or a row is not as it must be; the message has the file and the line.
        OSError: a file cannot be read.
    """
    paths = tables.find(flag, folder)
    channels = columns.channels or _remaining(paths[0], columns)
    columns = columns._replace(channels=channels)
    series: dict[str, Series] = {}
    for path in paths:
        for place, cells in tables.rows(path, (*channels, *columns.others)):
            _add(series, columns, place, cells)
    if not series:
        raise ValueError(
            f"--{flag}={folder} must have tables with rows. Received: none"
        )
    for one in series.values():
        if columns.time:
            _order(one)
        if not whole(one.steps).any():
            raise ValueError(
                f"{one.place}: a series must have a row without an empty cell in its "
                f"channels. Received: none of {one.name!r}"
            )
    return Table(channels, series)


def period(table: Table, columns: Columns, tolerance: float) -> float | None:
    """Returns the time between two steps, of all series; None without a column of times.

    Args:
        table: the series.
        columns: their columns.
        tolerance: how far a step may be from it, as a share of it.

    Raises:
        ValueError: the steps are not even; the message has the file and the line.
    """
    steps: list[float] = []
    for series in table.series.values():
        pairs = itertools.pairwise(series.rows)
        steps += [after.seconds - before.seconds for before, after in pairs]
    if not columns.time or not steps:
        return None
    usual = statistics.median(steps)
    check_period(table, columns, usual, tolerance)
    return usual


def check_period(
    table: Table, columns: Columns, usual: float, tolerance: float
) -> None:
    """Raises ValueError if a step is not as long as usual; see `period`."""
    for series in table.series.values():
        for before, after in itertools.pairwise(series.rows):
            step = after.seconds - before.seconds
            if abs(step - usual) > tolerance * usual:
                raise ValueError(
                    f"{after.place}: the times of a series must be {usual:g} apart, as most "
                    f"are, or within {tolerance:.0%} of it (config.data.tolerance). Received: "
                    f"{step:g} after the row before, in {series.name!r}"
                )


def by_column(table: Table) -> dict[str, list[Series]]:
    """Returns the series of each split, by the column of splits.

    Raises:
        ValueError: a series has two splits, or a cell names none, or a split has no series.
    """
    parts: dict[str, list[Series]] = {split: [] for split in SPLITS}
    for series in table.series.values():
        first = series.rows[0]
        for place, *_, split in series.rows:
            if split not in parts:
                raise ValueError(
                    f"{place}: a split must be one of {', '.join(SPLITS)}. Received: {split!r}"
                )
            if split != first.split:
                raise ValueError(
                    f"{place}: a series must be in one split. Received: {series.name!r} in "
                    f"{split!r}, and in {first.split!r} in {first.place}"
                )
        parts[first.split].append(series)
    return _filled(parts, "config.data.split_column")


def by_series(
    table: Table, shares: Mapping[str, float], seed: int
) -> dict[str, list[Series]]:
    """Deals series to the splits, in the order of a hash of the seed and their names.

    Args:
        table: the series.
        shares: the share of the series that "validation" and "test" have, at least one each.
        seed: the seed.

    Raises:
        ValueError: there are fewer series than splits.
    """

    def order(name: str) -> bytes:
        return hashlib.sha256(f"{seed} {name}".encode()).digest()

    names = sorted(table.series, key=order)
    return _dealt([table.series[name] for name in names], shares)


def by_start(table: Table, shares: Mapping[str, float]) -> dict[str, list[Series]]:
    """Deals whole series to the splits by the time of their first row: the latest are tested.

    Args:
        table: the series.
        shares: as for `by_series`.

    Raises:
        ValueError: as `by_series`.
    """
    latest = sorted(table.series.values(), key=lambda series: -series.rows[0].seconds)
    return _dealt(latest, shares)


def by_time(table: Table, shares: Mapping[str, float]) -> dict[str, list[Series]]:
    """Cuts each series in three: what is before a time trains, the last part tests.

    Args:
        table: the series.
        shares: the share of all rows that "validation" and "test" have, about.

    Raises:
        ValueError: a split has no row.
    """
    every = itertools.chain.from_iterable(one.rows for one in table.series.values())
    times = sorted(row.seconds for row in every)
    test = times[_place(len(times), shares["test"])]
    validation = times[_place(len(times), shares["test"] + shares["validation"])]
    parts: dict[str, list[Series]] = {split: [] for split in SPLITS}
    for series in table.series.values():
        cut = {split: Series(series.name, []) for split in SPLITS}
        for row in series.rows:
            held_out = "test" if row.seconds >= test else "validation"
            split = held_out if row.seconds >= validation else "train"
            cut[split].rows.append(row)
        for split, part in cut.items():
            if part.rows and whole(part.steps).any():
                parts[split].append(part)
    return _filled(parts, "config.data.split")


def class_names(train: Sequence[Series], label: str) -> tuple[str, ...]:
    """Returns the labels of training series, sorted.

    Args:
        train: the series.
        label: the column of the labels.

    Raises:
        ValueError: there is only one class, or none; or a label is NaN.
    """
    labels = {
        tables.text(row.place, label, row.label)
        for series in train
        for row in series.rows
    }
    labels.discard("")
    if len(labels) < 2:
        raise ValueError(
            f"{train[0].place}: the training series must have labels of at least two classes. "
            f"Received: {', '.join(sorted(labels)) or 'none'}"
        )
    return tuple(sorted(labels))


def recordings(
    series: Sequence[Series],
    classes: Sequence[str],
    label: str,
    every_step: bool,
) -> list[Recording]:
    """Returns recordings of series, with their targets.

    Args:
        series: the series of a split.
        classes: the classes' names; empty where numbers are predicted.
        label: the column of the labels.
        every_step: whether each step has a label; else a series has one.

    Raises:
        ValueError: a label is missing, unknown, or no number; or a series has two.
    """
    dtype = "int32" if classes else "float32"
    result = []
    for one in series:
        targets = [_target(row, classes, label) for row in one.rows]
        target: Any = targets if every_step else _only(one, label, targets)
        result.append(one.recording(np.array(target, dtype)))
    return result


def _target(row: Row, classes: Sequence[str], label: str) -> float:
    """Returns a row's class by its place, or its number, or what stands for none."""
    if tables.is_empty(row.label):
        return NO_CLASS if classes else math.nan
    if not classes:
        return tables.number(row.place, label, row.label)
    if (name := tables.text(row.place, label, row.label)) not in classes:
        raise ValueError(
            f"{row.place}: a label must be one of the classes of the training series, "
            f"{', '.join(classes)}. Received: {name!r}"
        )
    return classes.index(name)


def without_labels(table: Table) -> list[Recording]:
    """Returns the recordings of series of which nothing is known but their values."""
    unknown = np.array(math.nan, "float32")
    return [series.recording(unknown) for series in table.series.values()]


def _only(series: Series, label: str, targets: Sequence[float]) -> float:
    """Returns the one target of a series, which some of its rows may not repeat."""
    pairs = zip(series.rows, targets, strict=True)
    given = [(row, target) for row, target in pairs if not tables.is_empty(row.label)]
    if not given:
        raise ValueError(
            f"{series.place}: a series must have a label in {label!r}. Received: none of "
            f"{series.name!r}"
        )
    first, target = given[0]
    for row, value in given:
        if value != target:
            raise ValueError(
                f"{row.place}: a series must have one label in {label!r} "
                "(config.data.answer=step takes one a step). Received: "
                f"{str(row.label)!r} of {series.name!r}, and {str(first.label)!r} in {first.place}"
            )
    return target


def _remaining(path: epath.Path, columns: Columns) -> tuple[str, ...]:
    """Returns the columns of a table that have no other meaning."""
    names, others = tables.header(path), columns.others
    channels = tuple(name for name in names if name not in others)
    if not channels:
        raise ValueError(
            f"{Place(path, 'line', 1)} must have columns of channels. Received: "
            f"{', '.join(names)}, which all have another meaning"
        )
    return channels


def _add(
    series: dict[str, Series], columns: Columns, place: Place, cells: Sequence[Any]
) -> None:
    """Adds a row to its series."""
    count = len(columns.channels)
    values = [
        tables.number(place, channel, cell)
        for channel, cell in zip(columns.channels, cells[:count], strict=True)
    ]
    other = dict(zip(columns.others, cells[count:], strict=True))
    name = place.path.stem
    if columns.series:
        name = tables.text(place, columns.series, other[columns.series])
    if not name:
        raise ValueError(
            f"{place}: the column {columns.series!r} must name the row's series. "
            "Received: an empty cell"
        )
    row = Row(place, values, other.get(columns.label))
    if columns.time:
        cell = other[columns.time]
        seconds = tables.seconds(place, columns.time, cell)
        row = row._replace(seconds=seconds, time=str(cell))
    if columns.split:
        row = row._replace(
            split=tables.text(place, columns.split, other[columns.split])
        )
    series.setdefault(name, Series(name, [])).rows.append(row)


def _order(series: Series) -> None:
    """Puts a series in the order of time; raises ValueError if two rows have one time."""
    series.rows.sort(key=lambda row: row.seconds)
    for before, after in itertools.pairwise(series.rows):
        if before.seconds == after.seconds:
            raise ValueError(
                f"{after.place}: a series must have each time once. Received: "
                f"{after.time} of {series.name!r}, as in {before.place}"
            )


def _place(count: int, share: float) -> int:
    """Returns the place at which the last share of `count` sorted values begins."""
    return min(count - 1, round(count * (1 - share)))


def _dealt(
    ordered: Sequence[Series], shares: Mapping[str, float]
) -> dict[str, list[Series]]:
    """Deals the first series to "test", the next to "validation", the others to "train"."""
    if len(ordered) < len(SPLITS):
        raise ValueError(
            f"there must be at least {len(SPLITS)} series, for training, validation and test. "
            f"Received: {len(ordered)}, such as {ordered[0].name!r}, of {ordered[0].place}"
        )
    count = len(ordered)
    test = max(1, round(shares["test"] * count))
    test = min(test, count - 2)
    validation = max(1, round(shares["validation"] * count))
    validation = min(validation, count - 1 - test)
    return {
        "train": list(ordered[test + validation :]),
        "validation": list(ordered[test : test + validation]),
        "test": list(ordered[:test]),
    }


def _filled(parts: dict[str, list[Series]], field: str) -> dict[str, list[Series]]:
    """Returns the splits; raises ValueError if one is empty."""
    empty = [split for split, series in parts.items() if not series]
    if empty:
        raise ValueError(
            f"each of {', '.join(SPLITS)} must have a series by {field}. "
            f"Received: none in {' and '.join(empty)}"
        )
    return parts
