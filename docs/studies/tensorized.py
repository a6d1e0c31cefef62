"""Trains tensorized LSTMs on two algorithms beside other layers, for docs/notes/tensorized.md.

    python -m docs.studies.tensorized RUNS --seeds=3 --jobs=2

It trains each row of `ROWS` with each seed by `trainers.pixels` on one core, all rows with seed 1
first. The same command goes on where it stopped; with `--notrain` it takes the runs as they are.
Then it prints tables of the finished runs, and writes their numbers to docs/studies/tensorized.csv.
A run that stands there is not trained again, even if its folder is gone; delete its line to train
it.
"""

import csv
import functools
import itertools
import json
import pathlib
import statistics
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from docs.studies import running

SOLVED = 99.0  # percent of the symbols
TABLE = pathlib.Path(__file__).with_suffix(".csv")
_TENSORIZED = "--config.model.tensorized."


class Row(NamedTuple):
    """A row of a table.

    Attributes:
        task: the task.
        name: what is trained.
        flags: flags of `trainers.pixels`.
    """

    task: str
    name: str
    flags: tuple[str, ...]


def _compared(task: str) -> Iterator[Row]:
    layers = {
        "tensorized LSTM": "small_tensorized",
        "LSTM": "small_lstm",
        "trellis": "small",
    }
    for name, preset in layers.items():
        yield Row(task, name, (f"--preset={preset}",))


def _ablated(task: str) -> Iterator[Row]:
    """Yields the forms of the tensorized LSTM but for that which has everything."""
    switches = {
        "memory convolution": "memory_convolution=False",
        "feedback": "kernel_size=2",
        "normalisation": "channel_normalization=False",
    }
    for present in itertools.product((True, False), repeat=len(switches)):
        pairs = list(zip(switches, switches.values(), present, strict=True))
        names = [name for name, _, there in pairs if there]
        flags = [_TENSORIZED + flag for _, flag, there in pairs if not there]
        if flags:
            title = ", ".join(names) or "none of them"
            yield Row(task, title, ("--preset=small_tensorized", *flags))


COMPARED = [*_compared("memorization"), *_compared("addition")]
ABLATED = [COMPARED[0], *_ablated("memorization")]
# The short runs first.
ROWS = [
    *COMPARED[:3],
    *sorted(ABLATED[1:], key=lambda row: len(row.flags)),
    *COMPARED[3:],
]


def run_folder(runs: pathlib.Path, row: Row, seed: int) -> pathlib.Path:
    """Returns the folder of a run."""
    name = row.name.replace(", ", "-").replace(" ", "_")
    return runs / row.task / name / str(seed)


def train(folder: pathlib.Path, row: Row, seed: int) -> None:
    """Trains a run to its end, or goes on with it."""
    task = ("trainers.pixels", f"--task={row.task}")
    running.train(folder, [*task, *row.flags, f"--config.seed={seed}"])


def read(runs: pathlib.Path, row: Row, seed: int) -> dict[str, Any] | None:
    """Returns the numbers of a run, or None if it has not finished."""
    folder = run_folder(runs, row, seed)
    if not (folder / "result.json").exists():
        return None
    result = json.loads((folder / "result.json").read_text())
    batch_size = json.loads((folder / "config.json").read_text())["data"]["batch_size"]
    with (folder / "metrics.csv").open() as file:
        lines = [line for line in csv.DictReader(file) if line["kind"] == "validation"]
    examples = [batch_size * int(line["step"]) for line in lines]
    accuracy = [float(line["accuracy"]) for line in lines]
    score = result["scores"]["test"]["exact"]
    return {
        "task": row.task,
        "layer": row.name,
        "seed": seed,
        "parameters": result["parameters"],
        "right_symbols": score["accuracy"],
        "right_answers": score["right_answers"],
        "examples": examples[-1],
        "examples_to_99": _first(examples, accuracy),
        "processor_seconds": round(running.processor_seconds(folder), 1),
    }


def _first(examples: Sequence[int], accuracy: Sequence[float]) -> int | None:
    """Returns how many examples had been seen when the task was solved, or None."""
    solved = (
        seen for seen, share in zip(examples, accuracy, strict=True) if share >= SOLVED
    )
    return next(solved, None)


def numbers_by_run(
    rows: Sequence[dict[str, Any]],
) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Returns the numbers of runs, and of those in the table, by task, layer and seed."""
    return running.with_table(TABLE, rows, ("task", "layer", "seed"))


def table(results: Sequence[dict[str, Any]], rows: Sequence[Row]) -> str:
    """Returns a table: for each row the mean and the range over its seeds."""
    lines = [
        "| task | layer | parameters | right symbols, % | right answers, % "
        "| examples to 99 % | processor seconds to 99 % | solved |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        row_results = [
            result for result in results if (result["task"], result["layer"]) == row[:2]
        ]
        if row_results:
            lines.append(_line(row, row_results))
    return "\n".join(lines)


def _line(row: Row, results: Sequence[dict[str, Any]]) -> str:
    solved = [result for result in results if result["examples_to_99"]]
    examples, seconds = "-", "-"
    if solved:
        seen = [result["examples_to_99"] for result in solved]
        examples = f"{statistics.mean(seen):,.0f} ({min(seen):,} to {max(seen):,})"
        seconds = f"{statistics.mean(map(_seconds, solved)):,.0f}"
    symbols = statistics.mean(result["right_symbols"] for result in results)
    answers = statistics.mean(result["right_answers"] for result in results)
    return (
        f"| `{row.task}` | {row.name} | {results[0]['parameters']:,} | {symbols:.2f} "
        f"| {answers:.2f} | {examples} | {seconds} | {len(solved)} of {len(results)} |"
    )


def _seconds(numbers: dict[str, Any]) -> float:
    """Returns the run's processor seconds until it was solved, as if all examples took as long."""
    share = numbers["examples_to_99"] / numbers["examples"]
    return share * numbers["processor_seconds"]


def main(argv: Sequence[str]) -> None:
    """Trains what is not finished, and prints the tables."""
    _, folder = argv
    runs = pathlib.Path(folder)
    seeds = running.seeds()
    there = numbers_by_run(())
    calls = [
        functools.partial(train, run_folder(runs, row, seed), row, seed)
        for seed, row in itertools.product(seeds, ROWS)
        if (row.task, row.name, seed) not in there
    ]
    running.train_all(calls)
    every = [read(runs, row, seed) for row, seed in itertools.product(ROWS, seeds)]
    finished = [numbers for numbers in every if numbers]
    numbers = list(numbers_by_run(finished).values())
    running.write_table(TABLE, numbers)
    print(table(numbers, COMPARED), table(numbers, ABLATED), sep="\n\n")


if __name__ == "__main__":
    running.main(main)
