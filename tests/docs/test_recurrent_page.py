"""docs/notes/recurrent.md: its formulas of parameters are those of the layers."""

import re

import pytest

from keras_trellis import recurrent
from tests import ROOT

PAGE = (ROOT / "docs" / "notes" / "recurrent.md").read_text()
EQUATIONS = (ROOT / "docs" / "understand" / "gated_layers.md").read_text()
ROW = re.compile(
    r"^\| `(\w+)(\(projected=True\))?` \| ([^|]*np[^|]*) \| ([^|]*)\|$", re.M
)
ROWS = ROW.findall(PAGE)


def value(formula, inputs, units):
    """The value of a formula such as 4np + p², with the page's n and p."""
    formula = formula.strip().replace("²", "**2")
    product = re.sub(r"(?<=[\dnp])(?=[np])", "*", formula)
    return eval(product, {"n": units, "p": inputs})


def parameters(name, inputs, units, **arguments):
    layer = getattr(recurrent, name)(units, **arguments)
    layer.build((None, None, inputs))
    return layer.count_params()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0] + row[1])
def test_parameters(row):
    name, projected, paper, released = row
    inputs, units = (
        (5, 5) if f"`{name}` (p = n)" in EQUATIONS or name == "SRU" else (3, 5)
    )
    arguments = {"projected": True} if projected else {}
    assert parameters(name, inputs, units, **arguments) == value(paper, inputs, units)
    has_released = "released" in getattr(recurrent, name).cell_class.biases
    assert bool(released.strip()) == (has_released and not projected)
    if released.strip():
        found = parameters(name, inputs, units, variant="released")
        assert found == value(released, inputs, units)


def test_the_table_has_all_layers():
    layers = {name for name in recurrent.__all__ if not name.endswith("Cell")}
    # The first has a page of its own, the second is layers of Keras.
    assert {row[0] for row in ROWS} == layers - {"TensorizedLSTM", "StackedLSTM"}
