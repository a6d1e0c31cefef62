"""A model's functions as ONNX, and the weights that they share."""

import os

import numpy as np
import onnx
import onnxruntime
import pytest
import tensorflow as tf
from onnx import helper, numpy_helper

from keras_trellis.backend.tensorflow import ONNX_OPSET
from keras_trellis.export import lowering, onnx_weights
from keras_trellis.export.saving import Companions, described
from keras_trellis.formats import manifest
from keras_trellis.serving import runtime

SPECS = {"x": tf.TensorSpec([None], tf.float32, "x")}
EXAMPLE = {"x": np.array([0.5, 2], np.float32)}


def companions(call, expected):
    function = lowering.Function(call, SPECS, EXAMPLE, {"y": np.float32(expected)})
    return Companions(
        kind="language_model",
        fingerprint=7,
        texts={"tokenizer.json": "{}"},
        functions=lambda: {"step": function, "chunk": function},
        scales=[],
        entries={"cache": {}, "vocabulary_size": 2},
    )


@pytest.mark.parametrize(
    "call, expected, message",
    [
        (
            lambda x: {"y": tf.math.bessel_i0(x)},
            [1.06, 2.28],
            "`step` cannot be converted",
        ),
        (lambda x: {"y": 2 * x}, [1, 5], "`step` has another `y` in ONNX Runtime"),
    ],
)
def test_what_has_no_form_is_said_and_not_run(tmp_path, call, expected, message):
    beside = companions(call, expected)
    with pytest.warns(UserWarning, match=message):
        written = beside.write(tmp_path)
    assert message in written["refused"] and message in described(tmp_path, written)
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer.json"]
    beside.finish(tmp_path, written)
    with pytest.raises(manifest.ManifestError, match=f"TensorFlow alone: .*{message}"):
        runtime.load(tmp_path)


def test_what_has_a_form_is_written(tmp_path):
    beside = companions(lambda x: {"y": tf.math.erfc(x)}, [0.479500, 0.004678])
    written = beside.write(tmp_path)
    graphs = ["step.onnx", "chunk.onnx"]
    assert written["files"] == ["tokenizer.json", *graphs, "weights.bin"]
    beside.finish(tmp_path, written)
    manifest.check(tmp_path, manifest.read(tmp_path))


def of_constants(**constants):
    """Returns a model whose outputs are these constants."""
    outputs = [
        helper.make_tensor_value_info(f"{name}_out", 1, value.shape)
        for name, value in constants.items()
    ]
    nodes = [
        helper.make_node("Identity", [name], [f"{name}_out"]) for name in constants
    ]
    tensors = [
        numpy_helper.from_array(value, name) for name, value in constants.items()
    ]
    graph = helper.make_graph(nodes, "g", [], outputs, tensors)
    opset = helper.make_opsetid("", ONNX_OPSET)
    return helper.make_model(graph, opset_imports=[opset], ir_version=10)


def test_weights_are_stored_once_and_as_small_as_is_exact(tmp_path):
    random = np.random.default_rng(0)
    whole = random.integers(-127, 128, [40, 24]).astype(np.float32)
    scale = random.random(24).astype(np.float32)
    full = random.normal(size=[40, 24]).astype(np.float32)
    columns = whole * scale
    rows = whole.T * scale[:, None]
    half = full.astype(np.float16).astype(np.float32)
    constants = {"full": full, "columns": columns, "half": half, "few": full[0]}
    one = of_constants(**constants)
    # In the other model some stand the other way round.
    other = of_constants(turned=full.T.copy(), same=half, rows=rows)
    expected = {**constants, "turned": full.T, "same": half, "rows": rows}
    with open(tmp_path / onnx_weights.NAME, "wb") as file:
        onnx_weights.move([one, other], file, [scale])
    size = (tmp_path / onnx_weights.NAME).stat().st_size
    elements = 40 * 24
    assert size == (4 + 1 + 2) * elements  # multiples of the alignment
    found = {}
    for index, model in enumerate((one, other)):
        path = tmp_path / f"{index}.onnx"
        onnx.save(model, path)
        assert path.stat().st_size < 2_000
        session = onnxruntime.InferenceSession(str(path))
        names = [value.name for value in session.get_outputs()]
        found |= dict(zip(names, session.run(names, {}), strict=True))
    for name, value in expected.items():
        np.testing.assert_array_equal(found[f"{name}_out"], value, err_msg=name)


def test_an_export_has_onnxruntime_report_to_nobody(monkeypatch):
    monkeypatch.delenv("ORT_DISABLE_TELEMETRY", raising=False)
    lowering.check_requirements()
    assert os.environ["ORT_DISABLE_TELEMETRY"] == "1"
    monkeypatch.setenv("ORT_DISABLE_TELEMETRY", "0")
    lowering.check_requirements()
    assert os.environ["ORT_DISABLE_TELEMETRY"] == "0"
