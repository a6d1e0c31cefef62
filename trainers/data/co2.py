"""Weekly carbon dioxide in the air over Mauna Loa, 1958 to 2001: 2,284 weeks, 59 of them missing.

C. D. Keeling and T. P. Whorf (2004), in "Trends: A Compendium of Data on Global Change", Oak Ridge
National Laboratory; public domain. The package statsmodels has it as a CSV file, which is read
without importing the package.
"""

import datetime
import hashlib
import importlib.metadata
import os
from typing import NamedTuple

import numpy as np
from etils import epath

from trainers.data import tables
from trainers.data.stores import to_path

PACKAGE = "statsmodels"
YEAR = 52  # weeks
CHANNELS = ("change over a week", "change over 52 weeks")
UNIT = "ppm"
_FILE = "co2.csv"
_MEMBER = f"{PACKAGE}/datasets/co2/{_FILE}"
_SHA256 = "16695fa2786e53414e5a6b54767a3fdf5de99cfbc68617f69d1362d92776a92f"
_WEEK = datetime.timedelta(days=7)


class Series(NamedTuple):
    """Numbers of consecutive weeks.

    Attributes:
        dates: the last day of each week, T of them.
        values: `[T]`; NaN where a week is missing.
    """

    dates: list[datetime.date]
    values: np.ndarray


def read(data_dir: epath.PathLike | None = None) -> Series:
    """Reads the published series.

    Args:
        data_dir: a folder with co2.csv of statsmodels; None: the installed package.

    Raises:
        ValueError: the file is not there, or is another one.
        OSError: it cannot be read.
    """
    path = _installed() if data_dir is None else to_path(data_dir) / _FILE
    if not path.exists():
        raise ValueError(
            f"--data_dir must be a folder with {_FILE} of {PACKAGE} (or no --data_dir, for the "
            f"installed package). Received: --data_dir={data_dir}"
        )
    received = hashlib.sha256(path.read_bytes()).hexdigest()
    if received != _SHA256:
        raise ValueError(
            f"{os.fspath(path)} must have the SHA-256 {_SHA256}, as in statsmodels. "
            f"Received: {received}"
        )
    return parse(path)


def parse(path: epath.PathLike) -> Series:
    """Reads a table with the columns `date` and `co2`, a row for each week, an empty cell for none.

    Raises:
        ValueError: a row is not as it must be; the message has the file and the line.
    """
    dates: list[datetime.date] = []
    values = []
    for place, (date, value) in tables.rows(to_path(path), ("date", "co2")):
        dates.append(_date(place, date))
        values.append(tables.number(place, "co2", value))
        if len(dates) > 1 and dates[-1] - dates[-2] != _WEEK:
            raise ValueError(
                f"{place}: `date` must be a week after the row before, {dates[-2]}. "
                f"Received: {dates[-1]}"
            )
    if len(dates) <= YEAR:
        raise ValueError(
            f"{os.fspath(path)} must have more than {YEAR} weeks. Received: {len(dates)}"
        )
    return Series(dates, np.array(values))


def filled(values: np.ndarray) -> np.ndarray:
    """Returns `[T]` whose gaps have the number before them; first ones, which have none, stay."""
    places = np.arange(len(values))
    places[np.isnan(values)] = 0
    last = np.maximum.accumulate(places)
    return values[last]


def changes(levels: np.ndarray) -> np.ndarray:
    """Returns what a network reads of filled numbers `[T]`: `[T, 2]` float32.

    The change over a week, and that over 52; NaN in the weeks that have no week so long before.
    """
    rows = np.full((len(levels), 2), np.nan, "float32")
    rows[YEAR:, 0] = levels[YEAR:] - levels[YEAR - 1 : -1]
    rows[YEAR:, 1] = levels[YEAR:] - levels[:-YEAR]
    return rows


def later(values: np.ndarray, levels: np.ndarray, ahead: int) -> np.ndarray:
    """Returns by how much each of the next weeks lies above this one: `[T, ahead]` float32.

    Args:
        values: `[T]`, with gaps, where the result is NaN.
        levels: the same, filled.
        ahead: the number of weeks.
    """
    beyond = np.concatenate([values, np.full(ahead, np.nan)])
    columns = [beyond[h : h + len(values)] - levels for h in range(1, 1 + ahead)]
    return np.stack(columns, 1).astype("float32")


def _installed() -> epath.Path:
    try:
        distribution = importlib.metadata.distribution(PACKAGE)
    except importlib.metadata.PackageNotFoundError as error:
        raise ValueError(
            f"--task=forecast reads the data of the package {PACKAGE}, which is not installed: pip "
            f"install '.[series]'; or --data_dir=DIR with its {_FILE}"
        ) from error
    return epath.Path(os.fspath(distribution.locate_file(_MEMBER)))  # type: ignore[call-overload]


def _date(place: tables.Place, cell: object) -> datetime.date:
    text = str(cell)
    try:
        return datetime.datetime.strptime(text.replace("-", ""), "%Y%m%d").date()
    except ValueError:
        raise ValueError(
            f"{place}: `date` must be a day, as 19580329 or 1958-03-29. Received: {text!r}"
        ) from None
