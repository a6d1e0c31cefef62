"""A row of a paper's table: a published number, and the recipe that aims at it."""

import csv
import pathlib
from typing import NamedTuple

from configs import papers

_CURVES = pathlib.Path(__file__).parents[2] / "docs" / "benchmarks"


class Row(NamedTuple):
    """A row; `configs/papers.py` has them.

    Attributes:
        table: the paper's table.
        what: the model, in words.
        published: the result on test data, in the task's measure; None: the paper has none.
        task: the task's name.
        preset: the preset at the paper's size.
        small: the preset of the small form.
        curve: the file with the validation losses of a run that was seen; "": none was.
    """

    table: str
    what: str
    published: float | None
    task: str
    preset: str
    small: str
    curve: str

    def expected(self) -> dict[int, float]:
        """Returns the validation losses that are known, in nats, by epoch."""
        if not self.curve:
            return {}
        with open(_CURVES / self.curve, newline="") as file:
            rows = list(csv.DictReader(file))
        return {int(row["epoch"]): float(row["validation_loss"]) for row in rows}


ROWS = {name: Row(*values) for name, values in papers.ROWS.items()}
"""The rows by the value of `--row`."""


def of_recipe(task: str, preset: str) -> Row | None:
    """Returns the row that a recipe is for, at the paper's size; None if there is none."""
    found = (row for row in ROWS.values() if (row.task, row.preset) == (task, preset))
    return next(found, None)
