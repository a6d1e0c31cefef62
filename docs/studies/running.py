"""What studies share: runs of the trainers on one core, side by side, and their tables."""

import ast
import contextlib
import csv
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent import futures
from typing import Any

from absl import app, flags

FLAGS = flags.FLAGS

_ONE_CORE = {
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "-1",
}


def main(study: Callable[[Sequence[str]], None]) -> None:
    """Runs a study of runs with its flags, which whoever imports its module does not get."""
    flags.DEFINE_integer("seeds", 3, "How many seeds each row has.", lower_bound=1)
    flags.DEFINE_integer("jobs", 1, "How many runs go at a time.", lower_bound=1)
    flags.DEFINE_bool("train", True, "Whether runs go on; else they are only told.")
    app.run(study)


def seeds() -> range:
    """Returns the seeds of each row."""
    return range(1, FLAGS.seeds + 1)


def changes(fields: Iterable[str]) -> dict[str, Any]:
    """Returns the values of fields of a config from texts such as "model.depth=6"."""
    pairs = (field.split("=", 1) for field in fields)
    return {name: ast.literal_eval(value) for name, value in pairs}


def train(folder: pathlib.Path, arguments: Sequence[str]) -> None:
    """Trains a run to its end, or goes on with it.

    Its output goes to a file beside its folder, and its processor seconds to another one.

    Args:
        folder: the run's folder.
        arguments: the command's module and its flags, but for `--workdir`.
    """
    if (folder / "result.json").exists():
        return
    command = [sys.executable, "-m", *arguments, f"--workdir={folder}"]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".log").open("a") as log:
        environment = os.environ | _ONE_CORE
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
    with folder.with_suffix(".seconds").open("a") as seconds:
        seconds.write(f"{usage.ru_utime + usage.ru_stime}\n")
    if status:
        raise RuntimeError(f"a run has failed; {folder.with_suffix('.log')} says why")


def processor_seconds(folder: pathlib.Path) -> float:
    """Returns the processor seconds of all processes of a run, their start included."""
    lines = folder.with_suffix(".seconds").read_text().split()
    return sum(map(float, lines))


def train_all(calls: Sequence[Callable[[], None]]) -> None:
    """Calls functions that train, `--jobs` at a time; raises what one of them has raised."""
    if not FLAGS.train:
        return
    with futures.ThreadPoolExecutor(FLAGS.jobs) as pool:
        trained = [pool.submit(call) for call in calls]
    for future in trained:
        future.result()


def with_table(
    path: pathlib.Path, rows: Iterable[dict[str, Any]], names: Sequence[str]
) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Returns rows, and those of a CSV file, if it is there, that are of other runs.

    Args:
        path: the file.
        rows: rows; they count more than those of the file.
        names: the columns that name a run.

    Returns:
        each row by the values of those columns.
    """
    lines: list[dict[str, str]] = []
    if path.exists():
        with path.open(newline="") as file:
            lines = list(csv.DictReader(file))
    known = [{name: _number(text) for name, text in line.items()} for line in lines]
    return {tuple(row[name] for name in names): row for row in [*known, *rows]}


def _number(text: str) -> str | float:
    for convert in (int, float):
        with contextlib.suppress(ValueError):
            return convert(text)
    return text


def write_table(path: pathlib.Path, rows: Sequence[dict[str, object]]) -> None:
    """Writes rows as CSV; without rows the file stays as it is."""
    if not rows:
        return
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
