"""What the commands share: flags, the machine, rows and tables, and the result as JSON."""

import json
import os
import platform
import re
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from absl import app, flags

from benchmarks import workers
from benchmarks.workers import Build, Facts, Reading, Results

FLAGS = flags.FLAGS
Row = Mapping[str, Any]
# From a column's title to what it shows of a row.
Columns = Mapping[str, Callable[[Row], str]]
# From a contender's name to its title and to what builds it.
Contenders = Mapping[str, tuple[str, Build]]


# Flags


def define_flags(*, rounds: int | None, warmup: int | None = None) -> None:
    """Defines the flags of all commands; not on import, so that a test may import a command."""
    flags.DEFINE_integer(
        "threads", None, "Threads of each contender; all cores by default."
    )
    if rounds is not None:
        flags.DEFINE_integer("rounds", rounds, "Rounds that count.", lower_bound=1)
    if warmup is not None:
        flags.DEFINE_integer(
            "warmup", warmup, "Rounds that do not count.", lower_bound=0
        )
    flags.DEFINE_string("json", None, "A file for the result and every reading.")


def define_only(contenders: Contenders, ours: str) -> None:
    """Defines the flag that selects contenders."""
    names = list(contenders)
    flags.DEFINE_multi_enum(
        "only", None, names, f"Contenders beside {ours}; all by default."
    )


def define_reference() -> None:
    """Defines the flag of the authors' code."""
    flags.DEFINE_string(
        "reference_dir", None, "A clone of github.com/locuslab/trellisnet."
    )


def define_case() -> None:
    """Defines the flag that selects cases."""
    flags.DEFINE_string(
        "case", "", "Part of the titles of the cases that are measured."
    )


def selected(cases: Sequence[Any]) -> list[Any]:
    """Returns the cases that --case asks for, by their `title`.

    Raises:
        app.UsageError: there is none.
    """
    chosen = [case for case in cases if FLAGS.case in case.title]
    if not chosen:
        titles = "\n".join(case.title for case in cases)
        raise app.UsageError(
            f"`case` must be part of a title. Received: --case={FLAGS.case}; there are\n{titles}"
        )
    return chosen


def values(names: Sequence[str]) -> Facts:
    """Returns the values of flags by name."""
    return {name: FLAGS[name].value for name in names}


def threads() -> int:
    """Returns the number of threads that --threads asks for, by default all cores.

    Raises:
        app.UsageError: the machine has fewer cores.
    """
    cores = available_cores()
    count = cores if FLAGS.threads is None else FLAGS.threads
    if not 1 <= count <= cores:
        raise app.UsageError(
            f"`threads` must be from 1 to {cores}, the cores here. Received: --threads={count}"
        )
    return count


def integers(name: str) -> tuple[int, ...]:
    """Returns a list flag's value as numbers above zero.

    Raises:
        app.UsageError: it has none, or something else.
    """
    words = FLAGS[name].value
    if not words or not all(re.fullmatch("[1-9][0-9]*", word) for word in words):
        raise app.UsageError(
            f"`{name}` must be numbers like 1,2,4. Received: --{name}={','.join(words)}"
        )
    return tuple(map(int, words))


# From the first line of a command to its last


def begin(argv: Sequence[str]) -> Facts:
    """Refuses stray arguments; returns what the figures depend on, and prints it in one line."""
    if len(argv) > 1:
        raise app.UsageError(
            f"arguments must be flags, --FLAG=VALUE. Received: {' '.join(argv[1:])}"
        )
    here = {"command": sys.orig_argv, **machine(), "threads": threads()}
    versions = ", ".join(
        f"{name} {version}" for name, version in here["versions"].items()
    )
    print(
        f"{here['processor']}, {here['threads']} threads, load average {here['load_average']} "
        f"before; {versions}.",
        flush=True,
    )
    return here


def machine() -> Facts:
    """Returns the machine and its software."""
    versions = {}
    for name in ("tensorflow", "keras", "keras-tcn", "torch"):
        for distribution in metadata.distributions(name=name):
            versions[name] = distribution.version
    return {
        "processor": _processor(),
        "cores": available_cores(),
        "load_average": round(os.getloadavg()[0], 2),  # before: what others do
        "python": platform.python_version(),
        "versions": versions,
    }


def available_cores() -> int:
    """Returns how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _processor():
    information = Path("/proc/cpuinfo")
    if information.exists():
        name = re.search(r"model name\s*: (.*)", information.read_text())
        if name:
            return name[1]
    return platform.processor()


def compare(
    contenders: Contenders,
    ours: str,
    setting: Any,
    here: Row,
    *,
    always: Iterable[str] = (),
) -> tuple[Results, dict[str, str]]:
    """Measures the contenders that --only selects; see `workers.measure`.

    Args:
        contenders: all of them.
        ours: the one that is always measured.
        setting: what they are built for.
        here: what `begin` returned.
        always: others that are measured whatever --only says.

    Returns:
        the results by name, and the reasons of those left out, by title.
    """
    wanted = {ours, *always, *(FLAGS.only or contenders)}
    results, left_out = workers.measure(
        {name: build for name, (_, build) in contenders.items() if name in wanted},
        setting,
        threads=here["threads"],
        warmup=FLAGS.warmup,
        rounds=FLAGS.rounds,
    )
    return results, by_title(left_out, contenders)


def by_title(left_out: dict[str, str], contenders: Contenders) -> dict[str, str]:
    """Returns the reasons of those left out, by title instead of by name."""
    return {contenders[name][0]: reason for name, reason in left_out.items()}


def rows(contenders: Contenders, ours: str, results: Results) -> list[Facts]:
    """Returns a row for each contender: its facts, its readings, and its times to `ours`."""
    table_rows = []
    for name, (facts, readings) in results.items():
        row = {"name": name, "title": contenders[name][0], **facts}
        row["seconds"] = [reading.seconds for reading in readings]
        row["processor_seconds"] = [reading.processor_seconds for reading in readings]
        row["median"] = statistics.median(row["seconds"])
        row["peak_bytes"] = peak(readings)
        if ours in results:
            others = results[ours].readings
            row["time_to_ours"] = ratios(readings, others)
            row["processor_to_ours"] = processor_ratios(readings, others)
        table_rows.append(row)
    return table_rows


def show(
    contenders: Contenders, ours: str, sizes: Any, here: Facts, columns: Columns
) -> None:
    """Compares contenders of one size, and prints a table with a row for each."""
    results, left_out = compare(contenders, ours, sizes, here)
    table_rows = rows(contenders, ours, results)
    result = {**here, "sizes": vars(sizes), "left_out": left_out, "rows": table_rows}
    end(result, table(table_rows, columns))


def end(result: Facts, text: str) -> None:
    """Prints the tables and who was left out, and writes the result where --json says."""
    for title, reason in result["left_out"].items():
        print(f"Left out: {title}: {reason}")
    print(text)
    if FLAGS.json:
        text = json.dumps(result, indent=2)
        Path(FLAGS.json).write_text(f"{text}\n", encoding="utf-8")


# Tables


def table(rows: Sequence[Row], columns: Columns) -> str:
    """Returns a Markdown table without the columns that are empty, the first one to the left."""
    filled = {}
    for title, show in columns.items():
        column = [show(row) for row in rows]
        if any(column):
            filled[title] = column
    rule = ["---", *["---:"] * (len(filled) - 1)]
    lines = [[*filled], rule, *zip(*filled.values(), strict=True)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def number(value: float | None, digits: int = 0) -> str:
    """Returns a number as a cell; an empty one for None."""
    return "" if value is None else f"{value:,.{digits}f}"


def title(row: Row) -> str:
    """Returns the title of a row as a cell."""
    return row["title"]


def milliseconds(row: Row) -> str:
    """Returns the median time of a row as a cell."""
    return number(1e3 * row["median"], 1)


def time_to_ours(row: Row) -> str:
    """Returns the spread of a row's time to ours as a cell; an empty one without ours."""
    return spread_cell("time_to_ours", row)


def processor_to_ours(row: Row) -> str:
    """Returns the spread of a row's processor time to ours as a cell; an empty one without ours."""
    return spread_cell("processor_to_ours", row)


def times_to(ours: str) -> Columns:
    """Returns the columns of times over those of `ours`, by the clock and of the processor."""
    return {
        f"time to {ours}: min, median, max": time_to_ours,
        "of the processor": processor_to_ours,
    }


def spread_cell(name: str, row: Row) -> str:
    """Returns a spread of a row as a cell; an empty one if the row does not have it."""
    values = row.get(name)
    return "{min:.2f}, **{median:.2f}**, {max:.2f}".format(**values) if values else ""


def peak_mebibytes(row: Row) -> str:
    """Returns the most memory of a row as a cell; an empty one where it cannot be read."""
    size = row["peak_bytes"]
    return "" if size is None else number(size / 2**20)


def parameters(row: Row) -> str:
    """Returns the number of a row's parameters as a cell."""
    return number(row["parameters"])


# Readings


def spread(values: Sequence[float]) -> dict[str, float]:
    """Returns the least, the median and the greatest."""
    return {
        "min": min(values),
        "median": statistics.median(values),
        "max": max(values),
    }


def ratios(readings: Sequence[Reading], others: Sequence[Reading]) -> dict[str, float]:
    """Returns the spread of times over another contender's, round by round."""
    pairs = zip(readings, others, strict=True)
    return spread([one.seconds / other.seconds for one, other in pairs])


def processor_ratios(
    readings: Sequence[Reading], others: Sequence[Reading]
) -> dict[str, float]:
    """Returns the spread of processor times over another contender's, round by round."""
    pairs = zip(readings, others, strict=True)
    return spread(
        [one.processor_seconds / other.processor_seconds for one, other in pairs]
    )


def peak(readings: Sequence[Reading]) -> int | None:
    """Returns the most memory of any step; None where it cannot be read."""
    peaks = [reading.bytes for reading in readings if reading.bytes is not None]
    return max(peaks, default=None)
