"""Exported models in their formats' own runtimes: the tables in docs/reference/formats.md hold.

The backend is Keras's; `make test` and `make test-torch` run them on each. By default a few cells
are run, most of unknown T with a mask. `FORMATS=all` runs every cell of the backend, which takes
some ten minutes.
"""

import os

import keras
import numpy as np
import pytest

from keras_trellis import EquilibriumTrellisLayer, recurrent
from tests.formats import cells, layers, runtimes, table

pytestmark = [
    runtimes.KERAS_EXPORTS,
    pytest.mark.filterwarnings("ignore"),  # the converters warn of much
]

PAGE = table.PAGE.read_text(encoding="utf-8")
TABLE = table.read(PAGE)
ALL = os.environ.get("FORMATS") == "all"
MASKED, PLAIN = (True,), (False,)
GROUPS = "`EquilibriumTrellisLayer(groups=2, inject_groups=True)`"
DILATED = "`TrellisLayer`: last output, three taps, dilations"
# One of each kind of graph, and what has been wrong. A mask keeps a layer from leaving steps out.
QUICK = {
    "TensorFlow": [
        ("`TrellisLayer`", "LiteRT", "unknown T", MASKED),
        ("`TrellisLayer`", "ONNX", "unknown T", MASKED),
        ("`TrellisLayer`", "OpenVINO", "unknown T", MASKED),
        (DILATED, "ONNX", "unknown T", PLAIN),
        ("`EquilibriumTrellisLayer`", "LiteRT", "unknown T", MASKED),
        ("`EquilibriumTrellisLayer`", "OpenVINO", "unknown T", MASKED),
        (GROUPS, "LiteRT", "known T", MASKED),
        (GROUPS, "ONNX", "unknown T", MASKED),
        ("`IRCGRU`", "ONNX", "unknown T", MASKED),
        ("`IRCGRU`", "OpenVINO", "unknown T", MASKED),
        ("`IRCGRU(unroll=True)`", "LiteRT", "known T", MASKED),
        ("`TLSTM(unroll=True)`", "LiteRT", "known T", MASKED),
        ("`keras.layers.LSTM`", "OpenVINO", "unknown T", MASKED),
    ],
    "JAX": [
        ("`StackedLSTM`", "SavedModel", "unknown T", MASKED),
        ("`TrellisLayer`", "ONNX", "unknown T", MASKED),
        ("`TrellisLayer`", "ONNX", "known T", PLAIN),
        ("`EquilibriumTrellisLayer`", "ONNX", "unknown T", MASKED),
        ("`StackedLSTM`", "ONNX", "unknown T", MASKED),
        ("`IRCTLSTM`", "ONNX", "unknown T", MASKED),
        ("`IRCTLSTM`", "ONNX", "known T", PLAIN),
        ("`TensorizedLSTM`", "ONNX", "unknown T", MASKED),
        ("`keras.layers.LSTM`", "OpenVINO", "known T", PLAIN),
    ],
    "torch": [
        ("`TrellisLayer`", "ONNX", "unknown T", MASKED),
        ("`EquilibriumTrellisLayer`", "ONNX", "known T", PLAIN),
        (GROUPS, "ONNX", "known T", MASKED),
        ("`StackedLSTM`", "ONNX", "known T", MASKED),
        ("`StackedLSTM`", "ONNX", "unknown T", PLAIN),
        ("`IRCTLSTM`", "ONNX", "known T", MASKED),
        ("`TensorizedLSTM`", "ONNX", "known T", MASKED),
        ("`TrellisLayer`", "OpenVINO", "unknown T", MASKED),
        ("`IRCGRU`", "torch.export", "known T", MASKED),
        ("`keras.layers.LSTM`", "SavedModel", "known T", PLAIN),
    ],
}
EVERY = [
    (layer, form, length, (False, True))
    for layer in layers.ROWS
    for form in runtimes.FORMATS
    for length in cells.LENGTHS
    if runtimes.BACKEND in runtimes.backends(form)
]
ON_TENSORFLOW = pytest.mark.skipif(
    runtimes.BACKEND != "TensorFlow", reason="what TensorFlow writes"
)


@pytest.mark.parametrize(
    ("layer", "form", "length", "masks"), EVERY if ALL else QUICK[runtimes.BACKEND]
)
def test_a_cell_of_the_table(layer, form, length, masks):
    _needs(form)
    answer = cells.cell(layer, form, length, masks)
    assert answer == TABLE[form, layer, runtimes.BACKEND][length]


def test_the_table_has_each_layer_and_explains_each_answer():
    """The command writes it in the form in which it is read."""
    assert [*TABLE] == [
        (form, layer, backend)
        for form in runtimes.FORMATS
        for layer in layers.ROWS
        for backend in runtimes.backends(form)
    ]
    assert table.read(table.written(PAGE, TABLE)) == TABLE
    answers = {answer for cell in TABLE.values() for answer in cell.values()}
    assert answers <= {cells.RIGHT, *cells.LIMITS}
    for answer in answers - {cells.RIGHT}:
        assert f"\n- **{answer}**: " in PAGE


@ON_TENSORFLOW
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
    sequences = layers.draw(2, 6)[..., :3]
    after = [np.zeros((2, 4), "float32")] * 2
    outputs = []
    for time in range(6):
        output, *after = run([sequences[:, time : time + 1], *after])
        outputs.append(output)
    expected, *_ = layer(sequences)
    np.testing.assert_allclose(np.concatenate(outputs, 1), expected, atol=1e-6)


@ON_TENSORFLOW
@pytest.mark.parametrize("steps", [5, 200, None])
def test_a_tlstm_runs_in_onnx_in_blocks_of_steps_and_without(steps, tmp_path):
    """From 128 steps on it goes by blocks, of which the last has to be filled."""
    _needs("ONNX")
    inputs = keras.Input((steps, 3))
    model = keras.Model(inputs, recurrent.TLSTM(4)(inputs))
    x = np.random.default_rng(0).normal(size=(2, steps or 300, 3)).astype("float32")
    expected = model(x)
    (outputs,) = runtimes.onnx(model, tmp_path)([x])
    np.testing.assert_allclose(outputs, expected, atol=1e-5)


def _needs(*formats):
    missing = runtimes.missing(formats)
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
