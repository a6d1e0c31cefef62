"""The table of models that the runtime runs, in docs/notes/serving.md.

By default three cells are run; MATRIX=all runs every cell.
"""

import os

import pytest

from tests.serving import matrix

PAGE = matrix.PAGE.read_text(encoding="utf-8")
TABLE = matrix.read(PAGE)
# A loop over time, levels over whole sequences, a head.
QUICK = [
    ("irc_gru", "language model"),
    ("trellis, gate gru, groups", "classifier"),
    ("head mixture", "language model"),
]
EVERY = [(row, column) for row in matrix.ROWS for column in matrix.COLUMNS]


@pytest.mark.parametrize(
    "row, column", EVERY if os.environ.get("MATRIX") == "all" else QUICK
)
def test_a_cell_of_the_table(row, column):
    assert matrix.cell(row, column) == TABLE[row][column]


def test_the_table_has_each_model():
    assert [*TABLE] == [*matrix.ROWS]
    assert matrix.read(matrix.written(PAGE, TABLE)) == TABLE
    no = [(row, column) for row, column in EVERY if TABLE[row][column] == matrix.NO]
    assert no == [("equilibrium", "classifier")]  # the page says why
