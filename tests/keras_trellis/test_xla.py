"""XLA changes nothing: neither the caller's `jit_compile=True`, nor that of parts of our own."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from keras_trellis import TrellisClassifier, TrellisLayer, TrellisLM
from keras_trellis.engine import convolution

BATCH, CHANNELS = 2, 3
TOLERANCE = {"float32": 2e-5, "mixed_bfloat16": 0.1}


@pytest.fixture
def compiled_parts(monkeypatch):
    """Has parts of the smallest training step compiled."""
    monkeypatch.setattr(convolution, "_STEP_UNITS", 0)


@st.composite
def layers(draw):
    """Draws a layer and how it is run: (constructor's arguments, arguments of `propagate`)."""
    depth = draw(st.sampled_from([1, 2, 5, 9]))
    dilations = draw(st.sampled_from([1, 2, [1, 2], [1, 2, 4]]))
    arguments = {
        "depth": depth,
        "kernel_size": draw(st.integers(1, 3)),
        "dilation_rate": dilations[:depth]
        if isinstance(dilations, list)
        else dilations,
        "gate": draw(st.sampled_from(["lstm", "gru"])),
        "inject_every": draw(st.sampled_from([1, 3])),
        "use_bias": draw(st.booleans()),
        "recompute": draw(st.booleans()),
        "weight_normalization": draw(st.booleans()),
        "dtype": draw(st.sampled_from(["float32", "float32", "mixed_bfloat16"])),
        "return_sequences": draw(st.booleans()),
    }
    return arguments, {
        "every": draw(st.sampled_from([None, max(1, depth // 4)])),
        "discard": draw(st.sampled_from([0, 7])),
        "masked": draw(st.booleans()),
        "state": draw(st.booleans()),
    }


def runs(layer, *, every, discard, masked, state):
    """Returns the function of sequences that is compiled: results, and gradients of their sum."""
    mask = np.random.default_rng(0).random((BATCH, 12)) < 0.7

    def run(x):
        kept = {"training": True}
        if state:  # constants, as users who have no state of their own pass them
            kept["initial_state"] = layer.get_initial_state(BATCH)
        if masked:
            kept["mask"] = tf.constant(mask)
        if not layer.return_sequences:
            return [layer(x, **kept)]
        outputs, states, auxiliary = layer.propagate(
            x, auxiliary_every=every, discard=discard, **kept
        )
        return [outputs, *states, *([] if auxiliary is None else [auxiliary])]

    def both(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            results = run(x)
            total = tf.add_n(
                [tf.reduce_sum(tf.cast(each, tf.float32) ** 2) for each in results]
            )
        variables = [variable.value for variable in layer.trainable_variables]
        return results, tape.gradient(total, [x, *variables])

    return both


def assert_same(got, expected, tolerance):
    for one, other in zip(tf.nest.flatten(got), tf.nest.flatten(expected), strict=True):
        one = tf.cast(one, tf.float32).numpy()
        other = tf.cast(other, tf.float32).numpy()
        scale = max(1.0, np.abs(other).max(initial=0.0))
        assert_allclose(one, other, rtol=0, atol=tolerance * scale)


@settings(
    max_examples=2,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(drawn=layers(), known=st.booleans())
@example(({"depth": 5, "return_sequences": False}, {}), True)
@example(({"depth": 5, "return_sequences": True}, {"every": 2}), True)
@example(
    (
        {"depth": 9, "return_sequences": True, "recompute": True},
        {"every": 4, "state": True},
    ),
    False,
)
def test_compiled_or_not_all_results_and_gradients_are_the_same(
    compiled_parts, drawn, known
):
    arguments, how = drawn
    layer = TrellisLayer(4, **arguments, seed=0)
    layer.build([None, None, CHANNELS])
    how = {"every": None, "discard": 0, "masked": False, "state": False} | how
    both = runs(layer, **how)
    x = tf.random.stateless_normal([BATCH, 12, CHANNELS], [0, 1])
    spec = [tf.TensorSpec([None, 12 if known else None, CHANNELS])]
    plain = both(x)
    tolerance = TOLERANCE[arguments.get("dtype", "float32")]
    for jit_compile in (False, True):
        got = tf.function(both, input_signature=spec, jit_compile=jit_compile)(x)
        assert_same(got, plain, tolerance)


def bidirectional():
    return keras.layers.Bidirectional(TrellisLayer(4, depth=5, gate="gru"))


FITTED = {
    "last": lambda: TrellisLayer(4, depth=8),
    "dilations": lambda: TrellisLayer(4, depth=12, dilation_rate=[1, 2]),
    "bidirectional": bidirectional,
    "classifier": lambda: TrellisClassifier(3, TrellisLayer(8, depth=8)),
}


@pytest.mark.parametrize("name", FITTED)
def test_fit_compiled_ends_with_the_same_weights(name):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(8, 9, CHANNELS)).astype(np.float32), rng.integers(0, 3, 8)
    weights = {}
    for jit_compile in (False, True):
        keras.utils.set_random_seed(0)
        model = FITTED[name]()
        if not isinstance(model, keras.Model):
            model = keras.Sequential(
                [keras.Input([9, CHANNELS]), model, keras.layers.Dense(3)]
            )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        steps = 2 if name == "last" else 1
        model.compile("sgd", loss, jit_compile=jit_compile, steps_per_execution=steps)
        model.fit(x, y, batch_size=4, shuffle=False, verbose=0)
        weights[jit_compile] = model.get_weights()
    assert_same(weights[True], weights[False], 1e-5)


def test_a_language_model_of_the_papers_depth_is_fitted_compiled():
    ids = np.random.default_rng(0).integers(0, 9, (2, 20))
    losses = []
    for jit_compile in (False, True):
        keras.utils.set_random_seed(0)
        layer = TrellisLayer(6, 55, output_units=4)
        model = TrellisLM(
            9, layer, embedding_units=4, auxiliary_weight=0.05, auxiliary_every=16
        )
        model.compile("sgd", jit_compile=jit_compile)
        history = model.fit(ids[:, :-1], ids[:, 1:], verbose=0, epochs=2)
        losses.append(history.history["loss"])
    assert losses[0][1] < losses[0][0]
    assert_allclose(losses[1], losses[0], rtol=1e-5)


def test_chunks_of_a_stream_under_xla():
    layer = TrellisLayer(4, depth=3, dilation_rate=[1, 2], return_sequences=True)
    x = tf.random.stateless_normal([BATCH, 5, CHANNELS], [0, 1])
    expected = layer(x)
    stream = tf.function(layer.stream, jit_compile=True)
    cache, got = layer.get_initial_cache(BATCH), []
    for chunk in tf.split(x, [4, 1], axis=1):
        outputs, cache = stream(chunk, cache)
        got.append(outputs)
    assert_allclose(tf.concat(got, axis=1), expected, atol=1e-6)


def test_gradients_of_gradients_under_xla():
    layer = TrellisLayer(4, depth=5)
    x = tf.random.stateless_normal([BATCH, 6, CHANNELS], [0, 1])
    layer(x)

    def second(x):
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as tape:
                tape.watch(x)
                total = tf.reduce_sum(layer(x, training=True) ** 2)
            squared = tf.reduce_sum(tape.gradient(total, x) ** 2)
        return outer.gradient(squared, x)

    expected = second(x)
    assert np.abs(expected).max() > 1e-3
    assert_allclose(tf.function(second, jit_compile=True)(x), expected, atol=1e-6)


@pytest.mark.usefixtures("compiled_parts")
def test_an_exported_model_needs_no_xla(tmp_path):
    """Known lengths are what we compile for."""
    model = keras.Sequential([keras.Input([9, CHANNELS]), TrellisLayer(4, depth=2)])
    model.export(tmp_path / "model", verbose=False)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        graph = tf.compat.v1.saved_model.load(
            session, ["serve"], str(tmp_path / "model")
        ).graph_def
    assert graph.library.function
    assert not any(each.attr["_XlaMustCompile"].b for each in graph.library.function)
