"""Processor seconds of what a process does for the first time.

Each reading is of a process of its own. The seconds are those of all its threads, which other
processes hardly disturb.
"""

import functools
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks import report, workers
from benchmarks.workers import Build, Contender, Facts


class Stopwatch:
    """Processor seconds by name, of one process."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def time(self, name: str, work: Callable[[], Any]) -> Any:
        """Returns what `work` returns, and keeps the seconds that it took."""
        start = time.process_time()
        result = work()
        self.seconds[name] = time.process_time() - start
        return result


def contender(step: Callable[[Stopwatch], None]) -> Contender:
    """Returns a contender whose one step fills a stopwatch."""
    watch = Stopwatch()
    return Contender(lambda: step(watch), {}, lambda: watch.seconds)


def measure(builds: Mapping[str, Build], setting: Any, *, rounds: int, threads: int) -> list[dict]:
    """Returns a row for each contender, with a list of seconds for each name of its stopwatch.

    The contenders take turns.

    Raises:
        RuntimeError: one of them failed.
    """
    found: dict[str, list[Facts]] = {name: [] for name in builds}
    for name in [*builds] * rounds:
        result = workers.once(name, builds[name], setting, threads)
        found[name].append(result.facts)
    return rows(found)


def rows(found: Mapping[str, Sequence[Facts]]) -> list[Facts]:
    """Returns the readings of each contender as its row."""
    rows = []
    for name, readings in found.items():
        row: Facts = {"name": name}
        for each in readings[0]:
            row[each] = [reading[each] for reading in readings]
        rows.append(row)
    return rows


def table(rows: Sequence[report.Row], titles: Mapping[str, str]) -> str:
    """Returns a table of medians, a column for each name of `titles`."""
    columns: dict[str, Callable[[report.Row], str]] = {
        "processor seconds, the median": lambda row: row["name"]
    }
    for name, title in titles.items():
        columns[title] = functools.partial(_median, name)
    return report.table(rows, columns)


def _median(name, row):
    return report.number(statistics.median(row[name]), 2)
