"""Streamed models in their formats' own runtimes, chunk by chunk: equal to one pass in Keras."""

import importlib
import os

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_trellis import EquilibriumTrellisLayer, StreamedModel, TrellisLayer
from keras_trellis.formats import rings
from tests.contract.blocks import CHANNELS, KINDS, drawn_steps, with_random_weights
from tests.formats import runtimes

pytestmark = [
    pytest.mark.skipif(
        runtimes.BACKEND != "TensorFlow", reason="StreamedModel exports from it alone"
    ),
    pytest.mark.filterwarnings("ignore"),  # the converters warn of much
]

STEPS = 6


# Some of each kind of graph; FORMATS=all takes all layers, in a minute.
QUICK = (
    "trellis",
    "linear attention",
    "tensorized",
    "lstm",
    "strided conv",
    "normalization",
    "last of a stack",
    "last of an rnn",
    "largest",
)
OTHERS = {
    # With a loop over levels.
    "deep": lambda: TrellisLayer(2, 20, return_sequences=True),
    "settling": lambda: EquilibriumTrellisLayer(2, tolerance=1e-6),
}
# Keras runs a grouped convolution by XLA; tests/keras_trellis/models has what is said of it.
NOT_IN_ONNX = ("grouped conv", "settling")


def kinds_in(form):
    """Returns the layers to try in a format."""
    if os.environ.get("FORMATS") == "all":
        kinds = KINDS | OTHERS
    elif form == "tf_saved_model":  # what runs it has made it
        kinds = {name: KINDS[name] for name in QUICK[:4]}
    else:
        kinds = {name: KINDS[name] for name in QUICK} | OTHERS
    left_out = NOT_IN_ONNX if form == "onnx" else ()
    return {name: make for name, make in kinds.items() if name not in left_out}


def model_of(kinds):
    """Returns one model of layers side by side."""
    inputs = keras.Input((None, CHANNELS), name="x")
    outputs = [keras.tree.flatten(make()(inputs))[0] for make in kinds.values()]
    return StreamedModel(with_random_weights(keras.Model(inputs, outputs)))


def saved_model(path):
    run = tf.saved_model.load(path).signatures["serving_default"]

    def call(feed):
        outputs = run(**{name: tf.constant(value) for name, value in feed.items()})
        return {name: tensor.numpy() for name, tensor in outputs.items()}

    return call


def litert(path):
    interpreter = importlib.import_module("ai_edge_litert.interpreter")
    run = interpreter.Interpreter(path).get_signature_runner()
    return lambda feed: run(**feed)


def onnx(path):
    session = importlib.import_module("onnxruntime").InferenceSession(path)
    names = [output.name.removeprefix("next_") for output in session.get_outputs()]
    return lambda feed: dict(zip(names, session.run(None, feed), strict=True))


RUNTIMES = {
    "tf_saved_model": ("SavedModel", saved_model),
    "litert": ("LiteRT", litert),
    "onnx": ("ONNX", onnx),
}


class Cache:
    """The past as the graph keeps it."""

    def __init__(self, streamed, path):
        begun = streamed.get_initial_cache(1)
        self._cache = {name: np.zeros_like(value) for name, value in begun.items()}

    def read(self):
        return self._cache

    def push(self, found):
        self._cache = {name: found[name] for name in self._cache}


class Host(rings.Rings):
    """The past as a program beside the graph keeps it."""

    def __init__(self, streamed, path):
        super().__init__(rings.Table.of_export(path), 1)


# A graph of one chunk for the whole is another one where a host keeps the past.
@pytest.mark.parametrize(
    ("form", "kept", "steps"),
    [
        ("tf_saved_model", Cache, 2),
        ("litert", Cache, 2),
        ("litert", Host, 2),
        ("onnx", Cache, 2),
        ("onnx", Host, 6),
    ],
)
def test_layers_in_the_runtime_of_a_format(form, kept, steps, tmp_path):
    name, load = RUNTIMES[form]
    if runtimes.missing([name]):
        pytest.skip(f"{name} is not installed")
    kinds = kinds_in(form)
    streamed = model_of(kinds)
    path = tmp_path / "model"
    cache = "host" if kept is Host else "graph"
    streamed.export(path, form, steps=steps, cache=cache)
    run = load(str(path))
    # One row, without a step of zeros, whose direction LiteRT has as NaN.
    x = drawn_steps(STEPS)[0][1:2]
    past = kept(streamed, path)
    chunks = []
    for first in range(0, STEPS, steps):
        found = run({"x": x[:, first : first + steps], **past.read()})
        past.push(found)
        chunks.append([found[name] for name in streamed.output_names])
    parts = zip(*chunks, strict=True)
    for kind, part, expected in zip(kinds, parts, streamed.model(x), strict=True):
        has_time = expected.shape.rank == 3 and expected.shape[1] > 1
        result = np.concatenate(part, axis=1) if has_time else part[-1]
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5, err_msg=kind)
