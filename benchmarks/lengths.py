"""Time over length: a training step and a streamed step of layers of as many parameters.

    python -m benchmarks.lengths --csv=docs/benchmarks/lengths.csv
    python -m benchmarks.lengths --csv=lengths.csv --time_steps=128,256 --task=stream

It measures processor time at each length, number of channels and task. The layers take turns, each
with or without XLA, whichever is faster. A row is appended to the CSV as soon as it is measured;
the command given again measures what is missing. Where torch is not installed its LSTM is left
out; the command given in an environment that has it adds the rows.
`python -m benchmarks.draw_lengths` draws them.
"""

import csv
import dataclasses
import functools
import itertools
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from absl import app, flags

from benchmarks import report, workers
from benchmarks.length_contenders import CONTENDERS, OURS, TASKS, Case

FLAGS = flags.FLAGS
KEY = ("task", "channels", "time_steps", "batch_size", "contender")
COLUMNS = (
    *KEY,
    *("units", "parameters", "form", "milliseconds"),
    *("ratio_min", "ratio_median", "ratio_max", "peak_mebibytes"),
)
TITLES = {
    "answer": "A training step, one answer",
    "masked": "The same with a mask",
    "outputs": "A training step, all outputs",
    "stream": "A streamed step",
}
# Steps of a contender's choice between its forms; compiling is not counted.
_TRIALS = 4
Row = dict[str, str]
Rows = dict[tuple[str, ...], Row]


def read(path: Path) -> Rows:
    """Returns the rows of a file by their `KEY`; none where there is no file."""
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {tuple(row[name] for name in KEY): row for row in rows}


def append(path: Path, rows: Iterable[Row]) -> None:
    """Adds rows to the end of a file."""
    first = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if first:
            writer.writeheader()
        writer.writerows(rows)


def key(case: Case, name: str) -> tuple[str, ...]:
    """Returns the `KEY` of a contender's row."""
    sizes = (case.channels, case.time_steps, case.batch_size)
    return (case.task, *map(str, sizes), name)


def row(case: Case, name: str, results: workers.Results) -> Row:
    """Returns a contender's row; it has ratios where the LSTM was measured in the same rounds."""
    facts, readings = results[name]
    seconds = statistics.median(reading.processor_seconds for reading in readings)
    values: workers.Facts = dict(zip(KEY, key(case, name), strict=True)) | facts
    values["milliseconds"] = f"{1e3 * seconds / case.repeats:.4g}"
    peak = report.peak(readings)
    values["peak_mebibytes"] = "" if peak is None else round(peak / 2**20)
    if OURS in results:
        ratios = report.processor_ratios(readings, results[OURS].readings)
        values |= {f"ratio_{name}": f"{ratio:.4g}" for name, ratio in ratios.items()}
    return {name: str(values.get(name, "")) for name in COLUMNS}


def wanted(
    case: Case, names: Iterable[str], rows: Rows, before: Case | None
) -> list[str]:
    """Returns the contenders to measure: those without a row that are not too slow.

    Args:
        case: what is measured.
        names: the contenders that may be measured.
        rows: what has been measured.
        before: the case of the length before this one; None for the first one.
    """
    missing = [name for name in names if key(case, name) not in rows]
    if before is None:
        return missing
    return [
        name
        for name in missing
        if _predicted_seconds(case, before, rows.get(key(before, name))) <= FLAGS.bound
    ]


def _predicted_seconds(case: Case, before: Case, row: Row | None) -> float:
    """Returns how long a contender will take, by its row of the length before."""
    if row is None:  # it was too slow already
        return math.inf
    steps = (FLAGS.warmup + FLAGS.rounds + _TRIALS) * case.repeats
    growth = case.time_steps / before.time_steps
    return growth * steps * float(row["milliseconds"]) / 1e3


def table(rows: Rows, cases: Sequence[Case]) -> str:
    """Returns the rows of a task as a Markdown table with a line for each length."""
    measured = [(case, name) for case in cases for name in CONTENDERS]
    measured = [(case, name) for case, name in measured if key(case, name) in rows]
    names = list(dict.fromkeys(name for _, name in measured))
    columns: report.Columns = {
        "T": lambda line: f"{line['T']:,}",
        **{
            CONTENDERS[name][0]: lambda line, name=name: cell(line.get(name))
            for name in names
        },
    }
    lines: list[dict[str, Any]] = []
    for case in cases:
        there = {name: rows.get(key(case, name)) for name in names}
        lines.append({"T": case.time_steps, **there})
    return report.table(lines, columns)


def cell(row: Mapping[str, str] | None) -> str:
    """Returns a row's time over the LSTM's, or its time where it has none to compare with."""
    if row is None:
        return "not measured"
    form = f" {row['form']}".rstrip()
    if row["contender"] == OURS or not row["ratio_median"]:
        milliseconds = float(row["milliseconds"])
        digits = ",.0f" if milliseconds >= 100 else ".3g"
        return f"{milliseconds:{digits}} ms{form}"
    ratios = [float(row[f"ratio_{name}"]) for name in ("min", "median", "max")]
    least, median, most = (f"{x:.2f}" if x >= 0.1 else f"{x:.3f}" for x in ratios)
    return f"{least}, **{median}**, {most}{form}"


def measure(
    processes: workers.Processes,
    case: Case,
    names: Sequence[str],
    rows: Rows,
    plain: set[str],
) -> tuple[list[Row], dict[str, str]]:
    """Measures contenders beside the LSTM; returns their rows, and who was left out.

    Args:
        processes: those of the contenders.
        case: what is measured.
        names: the contenders.
        rows: what has been measured.
        plain: the contenders that run without XLA. One that fails with XLA is added, and then all
            are measured again.
    """
    beside = [OURS] if key(case, OURS) in rows else []
    builds = {name: CONTENDERS[name][1] for name in [*beside, *names]}
    for name in plain & builds.keys():
        builds[name] = functools.partial(_without_xla, builds[name])
    results, left_out = processes.measure(
        builds, case, warmup=FLAGS.warmup, rounds=FLAGS.rounds
    )
    reasons = (workers.DIED, workers.FAILED)
    failed = {name for name in left_out if left_out[name].startswith(reasons)}
    if failed - plain:
        plain |= failed
        return measure(processes, case, names, rows, plain)
    new = [row(case, name, results) for name in names if name in results]
    return new, report.by_title(left_out, CONTENDERS)


def _without_xla(build: workers.Build, case: Case) -> workers.Contender:
    """Builds a contender without XLA.

    With XLA a training step of an LSTM needs memory that grows with the weights times the time
    steps: 17 GB for 607 units and 1,024 steps.
    """
    return build(dataclasses.replace(case, xla=False))


def define_flags() -> None:
    """Defines the flags."""
    lengths = [str(2**power) for power in range(7, 15)]
    flags.DEFINE_string("csv", None, "The file of all rows.", required=True)
    flags.DEFINE_list("time_steps", lengths, "The lengths, from the shortest.")
    flags.DEFINE_list("channels", ["64", "256"], "Channels of input and network.")
    flags.DEFINE_multi_enum("task", TASKS, TASKS, "What a step is.")
    flags.DEFINE_integer("batch_size", 2, "B.", lower_bound=1)
    flags.DEFINE_float(
        "bound",
        300.0,
        "Processor seconds that a contender may take at a length, by its time at the last one.",
    )
    report.define_only(CONTENDERS, OURS)
    report.define_flags(rounds=5, warmup=1)


def main(argv: Sequence[str]) -> int:
    """Measures what is missing, and prints the tables; returns the exit status."""
    here = report.begin(argv)
    path = Path(FLAGS.csv)
    rows = read(path)
    lengths = sorted(report.integers("time_steps"))
    names = [name for name in CONTENDERS if name in {OURS, *(FLAGS.only or CONTENDERS)}]
    all_left_out: dict[str, str] = {}
    texts = []
    for task, channels in itertools.product(FLAGS.task, report.integers("channels")):
        title = f"{TITLES[task]}, {channels} channels"
        sizes = (channels, FLAGS.batch_size, here["threads"])
        cases = [Case(task, steps, *sizes) for steps in lengths]
        plain: set[str] = set()
        with workers.Processes(here["threads"]) as processes:
            for before, case in zip([None, *cases], cases, strict=False):
                missing = wanted(case, names, rows, before)
                if not missing:
                    continue
                print(f"{title}, T {case.time_steps:,}", flush=True)
                new, left_out = measure(processes, case, missing, rows, plain)
                all_left_out |= left_out
                append(path, new)
                rows |= {tuple(line[name] for name in KEY): line for line in new}
        texts.append(f"{title}\n\n{table(rows, cases)}")
    result = {**here, "left_out": all_left_out, "rows": list(rows.values())}
    report.end(result, "\n\n".join(texts))
    return 0


if __name__ == "__main__":
    define_flags()
    app.run(main)
