"""What is known of the rows of `configs/papers.py`."""

import csv
import pathlib

from configs.papers import ROWS, Row

_CURVES = pathlib.Path(__file__).parents[2] / "docs" / "benchmarks"


def expected(row: Row) -> dict[int, float]:
    """Returns the validation losses that are known, in nats, by epoch."""
    if not row.curve:
        return {}
    with open(_CURVES / row.curve, newline="") as file:
        rows = list(csv.DictReader(file))
    return {int(row["epoch"]): float(row["validation_loss"]) for row in rows}


def of_recipe(task: str, preset: str) -> Row | None:
    """Returns the row that a recipe is for, at the paper's size; None if there is none."""
    found = (row for row in ROWS.values() if (row.task, row.preset) == (task, preset))
    return next(found, None)
