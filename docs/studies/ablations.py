r"""The paper's ablations at a small size, for docs/notes/ablations.md.

    python -m docs.studies.ablations RUNS --seeds=3 --jobs=2

It trains a small trellis network on Python's own reference text by `trainers.lm`, on one core, with
all that the paper ablates, and once without each part; all rows with seed 1 first. The same command
goes on where it stopped. Then it prints a table beside the paper's numbers, and writes those of the
finished runs to docs/studies/ablations.csv. A run that stands there is not trained again, even if
its folder is gone; delete its line to train it.

The text is small, so that a few minutes are ten passes over it, and what keeps a network from
learning it by heart has an effect.
"""

import functools
import itertools
import json
import pathlib
import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

from docs.studies import running

TABLE = pathlib.Path(__file__).with_suffix(".csv")
# The preset has neither weight dropout nor an auxiliary loss nor long sequences, which are windows
# whose first outputs are not scored, so that the others have their whole past.
WHOLE = {
    "model.weight_dropout": 0.2,
    "model.auxiliary_weight": 0.05,
    "data.batch_size": 8,
    "data.window": 76,
    "data.horizon": 12,
    "data.history": "zero",
}


class Row(NamedTuple):
    """A row of the table.

    Attributes:
        name: what is trained.
        changes: the fields of `WHOLE` and of the preset that differ.
        paper: the paper's perplexity of the Penn Treebank; None: it has no such row.
    """

    name: str
    changes: dict[str, Any]
    paper: float | None


ROWS = (
    Row("all", {}, 56.97),
    Row("no hidden dropout", {"model.recurrent_dropout": 0.0}, 64.69),
    Row("no weight dropout", {"model.weight_dropout": 0.0}, 63.82),
    Row("no auxiliary loss", {"model.auxiliary_weight": 0.0}, 57.99),
    Row(
        "no long sequences",
        {"data.window": 64, "data.horizon": 0, "data.history": "carried"},
        57.35,
    ),
    # as many parameters
    Row("mixed group convolution", {"model.groups": 2, "model.units": 494}, 59.18),
    Row("input at every 2nd level", {"model.inject_every": 2}, 57.44),
    Row("input at every 5th level", {"model.inject_every": 5}, 59.75),
    Row("input at every 10th level", {"model.inject_every": 10}, 60.70),
    # of twelve levels, at the first alone
    Row("input at every 20th level", {"model.inject_every": 20}, 74.91),
    # as many parameters: both gates have four blocks; all networks of the paper have an LSTM's
    Row("a GRU's gate", {"model.gate": "gru"}, None),
)


def train(runs: pathlib.Path, row: Row, seed: int) -> None:
    """Trains a row with a seed, or goes on with it."""
    fields = {**WHOLE, **row.changes, "seed": seed}
    flags = [f"--config.{name}={value}" for name, value in fields.items()]
    running.train(
        run_folder(runs, row, seed),
        ["trainers.lm", "--task=pydoc", "--preset=small", *flags],
    )


def run_folder(runs: pathlib.Path, row: Row, seed: int) -> pathlib.Path:
    """Returns the folder of a run."""
    return runs / row.name.replace(" ", "_") / str(seed)


def read(runs: pathlib.Path, row: Row, seed: int) -> dict[str, Any] | None:
    """Returns the numbers of a run, or None if it has not finished."""
    folder = run_folder(runs, row, seed)
    path = folder / "result.json"
    if not path.exists():
        return None
    result = json.loads(path.read_text())
    scores = {
        split: round(score["exact"]["perplexity"], 2)
        for split, score in result["scores"].items()
    }
    return {
        "row": row.name,
        "seed": seed,
        "parameters": result["parameters"],
        "best_epoch": result["best_epoch"],
        **scores,
        "seconds": round(running.processor_seconds(folder)),
    }


def table(results: Sequence[dict[str, Any]]) -> str:
    """Returns the table: the test perplexity, and what each part is worth, seed by seed."""
    tests = {(result["row"], result["seed"]): result["test"] for result in results}
    whole = ROWS[0]
    lines = [
        "| network | test | seeds | change | the paper's change |",
        "|---|---:|---:|---:|---:|",
    ]
    for row in ROWS:
        seeds = [seed for name, seed in tests if name == row.name]
        paired = [seed for seed in seeds if (whole.name, seed) in tests]
        if not paired:
            continue
        scores = [tests[row.name, seed] for seed in seeds]
        changes = [
            100 * (tests[row.name, seed] / tests[whole.name, seed] - 1)
            for seed in paired
        ]
        cells = [row.name, _mean_and_deviation(scores), str(len(seeds))]
        cells += (
            ["", ""]
            if row is whole
            else [
                f"{_mean_and_deviation(changes, '+')} %",
                _change(row.paper, whole.paper),
            ]
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _change(value: float | None, whole: float | None) -> str:
    if value is None or whole is None:
        return ""
    return f"{100 * (value / whole - 1):+.1f} %"


def _mean_and_deviation(values: Sequence[float], sign: str = "") -> str:
    mean = f"{statistics.mean(values):{sign}.1f}"
    return f"{mean} ± {statistics.stdev(values):.1f}" if len(values) > 1 else mean


def main(argv: Sequence[str]) -> None:
    """Trains what is not finished, and prints the table."""
    _, folder = argv
    runs, keys = pathlib.Path(folder), ("row", "seed")
    pairs = [(row, seed) for seed, row in itertools.product(running.seeds(), ROWS)]
    there = running.with_table(TABLE, (), keys)
    running.train_all(
        [
            functools.partial(train, runs, row, seed)
            for row, seed in pairs
            if (row.name, seed) not in there
        ]
    )
    rows = [result for row, seed in pairs if (result := read(runs, row, seed))]
    numbers = list(running.with_table(TABLE, rows, keys).values())
    running.write_table(TABLE, numbers)
    print(table(numbers))


if __name__ == "__main__":
    running.main(main)
