"""Exported models in their formats' own runtimes: the table in docs/reference/formats.md holds.

By default a few cells are run, most of unknown T with a mask. `FORMATS=all` runs every cell, which
takes some ten minutes.
"""

import os

import keras
import numpy as np
import pytest

from keras_trellis import EquilibriumTrellisLayer
from tests.formats import cells, layers, runtimes, table

pytestmark = [
    runtimes.KERAS_EXPORTS,
    pytest.mark.filterwarnings("ignore"),  # the converters warn of much
]

PAGE = table.PAGE.read_text(encoding="utf-8")
TABLE = table.read(PAGE)
ALL = os.environ.get("FORMATS") == "all"
MASKED, PLAIN = (True,), (False,)
# One of each kind of graph, and what has been wrong. A mask keeps a layer from leaving steps out.
QUICK = [
    ("`TrellisLayer`", "LiteRT", "unknown T", MASKED),
    ("`TrellisLayer`", "ONNX", "unknown T", MASKED),
    ("`TrellisLayer`", "OpenVINO", "unknown T", MASKED),
    ("`TrellisLayer`: last output, three taps, dilations", "ONNX", "unknown T", PLAIN),
    ("`EquilibriumTrellisLayer`", "LiteRT", "unknown T", MASKED),
    ("`EquilibriumTrellisLayer`", "OpenVINO", "unknown T", MASKED),
    (
        "`EquilibriumTrellisLayer(groups=2, inject_groups=True)`",
        "LiteRT",
        "known T",
        MASKED,
    ),
    (
        "`EquilibriumTrellisLayer(groups=2, inject_groups=True)`",
        "ONNX",
        "unknown T",
        MASKED,
    ),
    ("`IRCGRU`", "ONNX", "unknown T", MASKED),
    ("`IRCGRU`", "OpenVINO", "unknown T", MASKED),
    ("`IRCGRU(unroll=True)`", "LiteRT", "known T", MASKED),
    ("`TLSTM(unroll=True)`", "LiteRT", "known T", MASKED),
    ("`keras.layers.LSTM`", "OpenVINO", "unknown T", MASKED),
]
EVERY = [
    (layer, form, length, (False, True))
    for layer in layers.ROWS
    for form in runtimes.FORMATS
    for length in cells.LENGTHS
]


@pytest.mark.parametrize(("layer", "form", "length", "masks"), EVERY if ALL else QUICK)
def test_a_cell_of_the_table(layer, form, length, masks):
    _needs(form)
    assert cells.cell(layer, form, length, masks) == TABLE[layer][form][length]


def test_the_table_has_each_layer_and_explains_each_answer():
    """The command writes it in the form in which it is read."""
    assert [*TABLE] == [*layers.ROWS]
    _needs(*runtimes.FORMATS)
    rows = table.read(table.written(PAGE, TABLE))
    assert rows == TABLE
    answers = {
        answer
        for row in TABLE.values()
        for cell in row.values()
        for answer in cell.values()
    }
    assert answers <= {cells.RIGHT, *cells.LIMITS}
    for answer in answers - {cells.RIGHT}:
        assert f"\n- **{answer}**: " in PAGE


def test_a_stack_of_groups_steps_on_litert(tmp_path):
    """With one time step it has no loop; its state is all that it needs of its past."""
    _needs("LiteRT")
    step = keras.Input((1, 3), name="a")
    state = [keras.Input((4,), name=name) for name in "bc"]
    layer = EquilibriumTrellisLayer(
        4, groups=2, inject_groups=True, return_sequences=True, return_state=True
    )
    model = keras.Model([step, *state], layer(step, initial_state=state))
    run = runtimes.litert(model, tmp_path)
    sequences, _ = layers.draw(2, 6)
    after = [np.zeros((2, 4), "float32")] * 2
    outputs = []
    for time in range(6):
        output, *after = run([sequences[:, time : time + 1], *after])
        outputs.append(output)
    expected, *_ = layer(sequences)
    np.testing.assert_allclose(np.concatenate(outputs, 1), expected, atol=1e-6)


def _needs(*formats):
    missing = runtimes.missing(formats)
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
