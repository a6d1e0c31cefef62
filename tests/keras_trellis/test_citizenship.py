"""What Keras does with a layer of its own, done with `TrellisLayer`."""

import csv
import functools
import inspect
import json
import pathlib
import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from numpy.testing import assert_allclose

from keras_trellis import TrellisLayer
from tests import nests
from tests.formats import runtimes

assert_close = functools.partial(nests.assert_close, tolerance=1e-6)

CHANNELS = 3
UNITS = 6


def draw(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def series_model(**arguments):
    """A model that gives a number at each step, from the same weights each time."""
    keras.utils.set_random_seed(0)
    layer = TrellisLayer(UNITS, 3, return_sequences=True, **arguments)
    return keras.Sequential([keras.Input((None, CHANNELS)), layer, layers.Dense(1)])


# Training


def test_fit_with_callbacks(tmp_path):
    """What they save, restore and log is what `fit` saw."""
    model, x, y = series_model(), draw(32, 7, CHANNELS), draw(32, 7, 1, seed=1)
    held_out = draw(8, 7, CHANNELS, seed=2), draw(8, 7, 1, seed=3)
    model.compile(keras.optimizers.Adam(0.05), "mse")
    callbacks = keras.callbacks
    seen = model.fit(
        x,
        y,
        batch_size=8,
        epochs=5,
        validation_data=held_out,
        verbose=0,
        callbacks=[
            callbacks.BackupAndRestore(tmp_path / "backup"),
            callbacks.CSVLogger(tmp_path / "log.csv"),
            callbacks.EarlyStopping(patience=9, restore_best_weights=True),
            callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.9),
            callbacks.ModelCheckpoint(tmp_path / "best.keras", save_best_only=True),
            callbacks.ReduceLROnPlateau(patience=1),
            callbacks.TerminateOnNaN(),
        ],
    ).history
    best = min(seen["val_loss"])
    assert seen["loss"][-1] < 0.9 * seen["loss"][0] and best < seen["val_loss"][-1]
    for each in (model, keras.models.load_model(tmp_path / "best.keras")):
        assert_allclose(each.evaluate(*held_out, verbose=0), best, rtol=1e-5)
    with open(tmp_path / "log.csv", encoding="utf-8") as log:
        logged = [float(row["val_loss"]) for row in csv.DictReader(log)]
    assert_allclose(logged, seen["val_loss"])


@functools.cache
def fitted(dtype, jit_compile):
    """The losses of a model's epochs."""
    x, y = draw(32, 7, CHANNELS), draw(32, 7, 1, seed=1)
    model = series_model(dtype=dtype)
    model.compile(keras.optimizers.Adam(0.02), "mse", jit_compile=jit_compile)
    losses = model.fit(x, y, batch_size=8, epochs=4, shuffle=False, verbose=0).history[
        "loss"
    ]
    assert {each.dtype for each in model.trainable_variables} == {"float32"}
    return losses


@pytest.mark.parametrize(
    "dtype, jit_compile, tolerance",
    [("float32", True, 1e-4), ("mixed_bfloat16", False, 0.03)],
)
def test_fit_compiled_and_in_mixed_precision(dtype, jit_compile, tolerance):
    expected = fitted("float32", False)
    assert expected[-1] < 0.9 * expected[0]
    assert_allclose(fitted(dtype, jit_compile), expected, rtol=tolerance)


def test_fit_on_ragged_sequences_is_fit_on_masked_ones():
    x, y, lengths = draw(8, 7, CHANNELS), draw(8, UNITS, seed=1), np.arange(8)
    padded = np.where(np.arange(7)[None, :, None] < lengths[:, None, None], x, 0.0)
    weights = []
    for inputs, before in (
        (padded, [layers.Masking()]),
        (tf.RaggedTensor.from_tensor(x, lengths), []),
    ):
        keras.utils.set_random_seed(0)
        model = keras.Sequential([*before, TrellisLayer(UNITS, 3)])
        model.compile("sgd", "mse")
        model.fit(inputs, y, batch_size=4, shuffle=False, verbose=0)
        weights.append(model.get_weights())
    assert_close(*weights)


def test_fit_on_two_replicas_ends_with_the_weights_of_one(forks):
    done = forks.run("-m", "tests.keras_trellis.fit_on_replicas")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["replicas"] == 2
    one, two = result["weights"]
    for first, second in zip(one, two, strict=True):
        assert_allclose(second, first, rtol=1e-8, atol=1e-10)


def test_a_frozen_layer_stays_as_it_is():
    model, x, y = series_model(dropout=0.1), draw(8, 5, CHANNELS), draw(8, 5, 1, seed=1)
    layer, dense = model.layers
    before = layer.get_weights()
    layer.trainable = False
    assert layer.trainable_variables == [] and len(model.trainable_variables) == 2
    model.compile("sgd", "mse", jit_compile=False)
    kernel = dense.get_weights()[0]
    model.fit(x, y, verbose=0)
    assert all(map(np.array_equal, layer.get_weights(), before))
    assert not np.array_equal(dense.get_weights()[0], kernel)
    layer.trainable = True
    model.compile("sgd", "mse", jit_compile=False)
    model.fit(x, y, verbose=0)
    assert not any(map(np.array_equal, layer.get_weights(), before))


def test_a_shared_layer_learns_from_each_of_its_places():
    """Its gradient is the sum of those of two layers that hold the same weights."""
    layer, twin = (TrellisLayer(UNITS, 3) for _ in range(2))
    first, second = keras.Input((None, CHANNELS)), keras.Input((None, CHANNELS))
    shared = keras.Model(
        [first, second], layers.subtract([layer(first), layer(second)])
    )
    apart = keras.Model([first, second], layers.subtract([layer(first), twin(second)]))
    twin.set_weights(layer.get_weights())
    x = [draw(2, 4, CHANNELS), draw(2, 6, CHANNELS, seed=1)]
    with tf.GradientTape(persistent=True) as tape:
        losses = [tf.reduce_sum(model(x) ** 2) for model in (shared, apart)]
    assert len(shared.trainable_variables) == 3
    gradients = tape.gradient(losses[0], shared.trainable_variables)
    parts = tape.gradient(
        losses[1], [layer.trainable_variables, twin.trainable_variables]
    )
    assert_close(
        gradients,
        [one + other for one, other in zip(*parts, strict=True)],
        tolerance=1e-5,
    )


# One step at a time


class OneStep(layers.Layer):
    """The equations of a `TrellisLayer` with the LSTM gate as a cell of `layers.RNN`.

    Its states are the inputs and, for each level, the h and c below it: of each the last steps
    that are still read, in one row.
    """

    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        dilations = layer.dilation_rate
        self.dilations = [dilations[i % len(dilations)] for i in range(layer.depth)]
        taps = layer.kernel_size - 1
        self.channels = [CHANNELS] + 2 * layer.depth * [layer.units]
        widths = [taps * max(self.dilations)]
        widths += [max(taps, 1) * dilation for dilation in self.dilations for _ in "hc"]
        self.state_size = [w * c for w, c in zip(widths, self.channels, strict=True)]

    def convolve(self, kernel, steps, dilation):
        """The convolution's value at the last of some steps."""
        kernel = np.asarray(kernel)
        taps = [steps[:, -1 - j * dilation] for j in reversed(range(len(kernel)))]
        return sum(tap @ weights for tap, weights in zip(taps, kernel, strict=True))

    def call(self, x, states):
        layer, h = self.layer, tf.zeros([tf.shape(x)[0], self.layer.units])
        c, after = h, []

        def append(step):
            channels = self.channels[len(after)]
            past = tf.reshape(states[len(after)], [tf.shape(x)[0], -1, channels])
            steps = tf.concat([past, tf.expand_dims(step, 1)], 1)
            after.append(
                tf.reshape(steps[:, 1:], [tf.shape(x)[0], self.state_size[len(after)]])
            )
            return steps

        inputs = append(x)
        for dilation in self.dilations:
            below, cells = append(h), append(c)
            total = self.convolve(layer.kernel, inputs, dilation) + np.asarray(
                layer.bias
            )
            total += self.convolve(layer.recurrent_kernel, below, dilation)
            i, f, g, o = tf.split(total, 4, axis=-1)
            c = tf.sigmoid(f) * cells[:, -1 - dilation] + tf.sigmoid(i) * tf.tanh(g)
            h = tf.sigmoid(o) * tf.tanh(c)
        return h, after


@pytest.mark.parametrize(
    "kernel_size, dilation_rate", [(2, 1), (3, (1, 2)), (1, (2, 1))]
)
def test_stream_is_a_cell_stepped_by_keras(kernel_size, dilation_rate):
    arguments = dict(kernel_size=kernel_size, dilation_rate=dilation_rate)
    layer = TrellisLayer(UNITS, 3, return_sequences=True, **arguments)
    layer.build((None, None, CHANNELS))
    layer.bias.assign(draw(4 * UNITS))
    stepped = layers.RNN(OneStep(layer), return_sequences=True, stateful=True)
    x, mask = draw(2, 9, CHANNELS), np.random.default_rng(0).random((2, 9)) < 0.7
    cache = layer.get_initial_cache(2)
    for piece in (slice(0, 4), slice(4, 5), slice(5, 9)):
        outputs, cache = layer.stream(x[:, piece], cache)
        assert_close(outputs, stepped(x[:, piece]), tolerance=1e-5)
    stepped.reset_state()
    outputs, _ = layer.stream(x, layer.get_initial_cache(2), mask)
    assert_close(outputs, stepped(x, mask=tf.constant(mask)), tolerance=1e-5)


# Out of Python


def sequence_model(steps=None, **arguments):
    inputs = keras.Input((steps, CHANNELS))
    return keras.Model([inputs], TrellisLayer(UNITS, 3, **arguments)(inputs))


def word_model():
    words = keras.Input((None,), dtype="int32")
    embedded = layers.Embedding(11, 4, mask_zero=True)(words)
    both = layers.Bidirectional(TrellisLayer(UNITS, 4, return_sequences=True))(embedded)
    return keras.Model([words], TrellisLayer(UNITS, 3)(both))


def model_with_state_and_mask():
    inputs = keras.Input((None, CHANNELS), name="a")
    state = keras.Input((UNITS,), name="b"), keras.Input((UNITS,), name="c")
    mask = keras.Input((None,), dtype="bool", name="d")
    layer = TrellisLayer(
        UNITS, 4, kernel_size=3, dilation_rate=(1, 2), return_sequences=True
    )
    return keras.Model(
        [inputs, *state, mask], layer(inputs, initial_state=state, mask=mask)
    )


MODELS = {
    "the last output": lambda: sequence_model(
        gate="gru", groups=2, weight_normalization=True
    ),
    "a known number of steps": lambda: sequence_model(
        7, inject_every=2, dilation_rate=(1, 9)
    ),
    "words, masked, bidirectional": word_model,
    "a state and a mask": model_with_state_and_mask,
}


@pytest.fixture(params=MODELS)
def model(request):
    model = MODELS[request.param]()
    for seed, variable in enumerate(model.trainable_variables):
        variable.assign(0.4 * draw(*variable.shape, seed=seed))
    return model


def draw_for(model, batch, steps):
    """Inputs of a model, with every kind of padding where it takes some."""
    rng = np.random.default_rng(steps)
    values = []
    for each in model.inputs:
        shape = [batch, *(size or steps for size in each.shape[1:])]
        if each.dtype == "float32":
            values.append(rng.normal(size=shape).astype("float32"))
        else:
            values.append(
                rng.integers(0, 2 if each.dtype == "bool" else 11, shape, each.dtype)
            )
    return values


def sizes(model):
    steps = model.inputs[0].shape[1]
    return [(1, steps or 1), (3, steps or 20), (2, steps or 7)]


def test_exported_and_read_as_a_layer(tmp_path, model):
    model.export(tmp_path / "model", verbose=False)
    layer = layers.TFSMLayer(tmp_path / "model", call_endpoint="serve")
    for batch, steps in sizes(model):
        values = draw_for(model, batch, steps)
        assert_close(layer(values), model(values))


@runtimes.KERAS_EXPORTS
def test_litert(tmp_path, model):
    """The converted model runs on LiteRT's own operations, at whatever size."""
    pytest.importorskip("ai_edge_litert")
    run = runtimes.litert(model, tmp_path)
    for batch, steps in sizes(model):
        values = draw_for(model, batch, steps)
        (found,) = run(values)
        assert_close(found, model(values))


# What an LSTM has, and what Keras refuses

ROOT = pathlib.Path(__file__).parents[2]
SWAP = (ROOT / "docs/howto/drop_in.md").read_text(encoding="utf-8")
PROOFS = (ROOT / "docs/reference/in_keras.md").read_text(encoding="utf-8")


def test_the_tests_that_the_page_names_are_there():
    sources = "".join(
        path.read_text(encoding="utf-8") for path in ROOT.glob("tests/**/test_*.py")
    )
    named = re.findall(r"`(test_\w+)`", PROOFS)
    assert named and not [name for name in named if f"def {name}(" not in sources]


def names_in_tables(after="## The arguments of an LSTM"):
    """The names in the first column of the tables of the page's section on the LSTM."""
    section = SWAP.partition(after)[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (`[^|]*) \|", section, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


def parameters(function):
    return dict(inspect.signature(function).parameters)


def public_names(layer):
    return {name for name in dir(layer) if not name.startswith("_")}


def test_what_an_lstm_takes_is_taken_or_explained():
    theirs, ours = parameters(layers.LSTM), parameters(TrellisLayer)
    for name, parameter in theirs.items():
        if name in ours:
            default = ours[name].default
            if default == "auto":  # what the gate has
                default = getattr(TrellisLayer(4, 2).gate, name).__name__
            differs = parameter.default != default
            assert differs == (f"`{name}` is `{default}` unless" in SWAP), name
        elif parameter.kind is not parameter.VAR_KEYWORD:
            TrellisLayer(4, 2, **{name: parameter.default})
            assert name in names_in_tables()
    missing = public_names(layers.LSTM(4)) - public_names(TrellisLayer(4, 2))
    assert missing and missing <= names_in_tables()
    named = names_in_tables(after="These attributes are missing:")
    assert named and not named & public_names(TrellisLayer(4, 2))


def test_call_takes_what_an_lstm_takes():
    theirs, ours = parameters(layers.LSTM.call), parameters(TrellisLayer.call)
    assert [*ours][: len(theirs)] == [*theirs]
    assert all(ours[name].default == each.default for name, each in theirs.items())


def test_quantization_leaves_it_as_it_is():
    model = keras.Sequential([keras.Input((None, CHANNELS)), TrellisLayer(UNITS, 3)])
    model.add(layers.Dense(2))
    layer, dense = model.layers
    x = draw(2, 5, CHANNELS)
    expected = np.asarray(layer(x))
    with pytest.warns(
        UserWarning, match="TrellisLayer does not have a `quantize` method"
    ):
        model.quantize("int8")
    assert np.array_equal(layer(x), expected)
    assert dense.kernel.dtype == "int8"


def test_activity_regularizer_acts_and_is_saved():
    layer = TrellisLayer(UNITS, 3, activity_regularizer=keras.regularizers.L2(0.5))
    outputs = layer(draw(1, 5, CHANNELS))
    assert_close(layer.losses, [0.5 * np.sum(np.square(outputs))])
    copy = TrellisLayer.from_config(layer.get_config())
    assert copy.activity_regularizer.l2 == 0.5
