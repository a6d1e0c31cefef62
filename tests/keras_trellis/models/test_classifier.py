"""TrellisClassifier against the equations, and what Keras users do with it."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from keras_trellis import StreamedModel, TrellisClassifier, TrellisLayer
from tests import numpy_reference
from tests.refusals import refuses

CLASSES, UNITS, STEPS, CHANNELS = 4, 6, 8, 2
ORDER = (3, 1, 7, 0, 2, 6, 5, 4)


def make(**arguments):
    """A classifier in float64 whose variables are random."""
    of_model = {"dtype": "float64"}
    for name in ("dropout", "dtype", "output_dropout", "permutation", "stem", "seed"):
        if name in arguments:
            of_model[name] = arguments.pop(name)
    arguments = dict(depth=3, dilation_rate=(1, 2, 4), output_units=CLASSES) | arguments
    layer = TrellisLayer(UNITS, **arguments, dtype=of_model["dtype"])
    model = TrellisClassifier(CLASSES, layer, **of_model)
    model.build((None, STEPS, CHANNELS))
    generator = np.random.default_rng(0)
    for variable in model.trainable_variables:
        variable.assign(0.5 * generator.normal(size=variable.shape))
    return model


def draw(batch=3, steps=STEPS):
    return np.random.default_rng(1).normal(size=(batch, steps, CHANNELS))


def test_it_is_the_dense_layer_of_the_last_output():
    model, x = make(output_units=5, permutation=ORDER), draw()
    layer = model.trellis
    *_, (hidden, _) = numpy_reference.levels(
        x[:, ORDER],
        np.asarray(layer.kernel),
        np.asarray(layer.recurrent_kernel),
        np.asarray(layer.bias),
        depth=3,
        dilations=(1, 2, 4),
    )
    outputs = hidden[:, -1, -5:]
    expected = outputs @ np.asarray(model.dense.kernel) + np.asarray(model.dense.bias)
    assert_allclose(model(x), expected, rtol=1e-12)
    assert model.receptive_field == 8


def test_input_dropout_drops_elements():
    """What is dropped has no gradient; what is not is scaled, elements and rows each by itself."""
    model, x = make(dropout=0.25, seed=3), tf.constant(draw(batch=200))
    with tf.GradientTape() as tape:
        tape.watch(x)
        total = tf.reduce_sum(tf.square(model(x, training=True)))
    dropped = tape.gradient(total, x).numpy() == 0
    assert 0.22 < dropped.mean() < 0.28
    assert len({row.tobytes() for row in dropped}) > 150
    assert (dropped[..., 0] != dropped[..., 1]).any()


def test_output_dropout_drops_logits():
    model, x = make(output_dropout=0.25), draw(batch=300)
    logits, dropped = np.asarray(model(x)), np.asarray(model(x, training=True))
    kept = dropped != 0
    assert_allclose(dropped[kept], logits[kept] / 0.75, rtol=1e-12)
    assert 0.7 < kept.mean() < 0.8


def test_no_dropout_at_evaluation():
    rates = dict(
        dropout=0.5, output_dropout=0.5, recurrent_dropout=0.5, weight_dropout=0.5
    )
    assert np.array_equal(make(**rates)(draw()), make()(draw()))


@pytest.mark.parametrize("permutation", [None, ORDER])
def test_masked_steps_are_nothing(permutation):
    model, x = make(permutation=permutation), draw()
    mask = np.random.default_rng(2).random((3, STEPS)) < 0.6
    spoiled = np.where(mask[..., None], x, np.nan)
    plain, order = make(), ORDER if permutation else range(STEPS)
    for row, logits in enumerate(np.asarray(model(spoiled, mask=mask))):
        valid = [step for step in order if mask[row, step]]
        assert_allclose(logits, plain(x[row : row + 1, valid])[0], rtol=1e-12)


STEM = [(5, 4, 2), (7, 3, 2)]


@pytest.mark.parametrize("permutation", [None, ORDER])
def test_a_stem_is_convolutions_before_the_layer(permutation):
    model, x = make(stem=STEM, permutation=permutation), draw()
    features = x[:, permutation] if permutation else x
    for part in model.convolutions:
        padded = np.pad(features, [(0, 0), (part.kernel_size[0] - 1, 0), (0, 0)])
        taps = np.lib.stride_tricks.sliding_window_view(padded, part.kernel_size[0], 1)
        taps = taps[:, :: part.strides[0]]  # [B, T', C, K]
        kernel, bias = np.asarray(part.kernel), np.asarray(part.bias)
        features = np.maximum(np.einsum("btck,kco->bto", taps, kernel) + bias, 0)
    expected = model.dense(model.trellis(features))
    np.testing.assert_allclose(model(x), expected, rtol=1e-12)
    assert features.shape == (3, 2, 7)
    assert model.receptive_field == 4 + 2 * (3 - 1) + 2 * 2 * (8 - 1)


def test_masked_steps_are_nothing_to_a_stem():
    model, x = make(stem=STEM), draw()
    mask = np.random.default_rng(2).random((3, STEPS)) < 0.6
    spoiled = np.where(mask[..., None], x, np.nan)
    for row, logits in enumerate(np.asarray(model(spoiled, mask=mask))):
        alone = model(x[row : row + 1, mask[row]])[0]
        np.testing.assert_allclose(logits, alone, rtol=1e-12)


def test_a_stem_streams_and_is_saved(tmp_path):
    model, x = make(stem=STEM), draw(steps=12)
    inputs = keras.Input((None, CHANNELS), dtype="float64")
    streamed = StreamedModel(keras.Model(inputs, model(inputs)))
    assert streamed.stride == 4
    cache, running = streamed.get_initial_cache(3), streamed.start(3)
    for start in (0, 4, 8):
        chunk = x[:, start : start + 4]
        logits, cache = streamed.stream(chunk, cache)
        expected = model(x[:, : start + 4])
        np.testing.assert_allclose(logits, expected, rtol=1e-12)
        np.testing.assert_allclose(running.advance(chunk), expected, rtol=1e-12)
    with pytest.raises(ValueError, match="`mask` must be None for a classifier with a"):
        streamed.stream(x[:, :4], cache, np.ones((3, 4), bool))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(x), model(x))


@pytest.mark.parametrize(
    "stem, message",
    [
        ([(5, 4)], r"`stem` must have \(filters, kernel_size, strides\) of each"),
        ([(5, 4, 0)], "`strides` must be a positive integer"),
    ],
)
def test_a_stem_that_is_none_is_refused(stem, message):
    with pytest.raises(ValueError, match=message):
        make(stem=stem)


def test_without_a_loss_it_trains_cross_entropy_and_its_penalties():
    model = make(kernel_regularizer=keras.regularizers.L2(0.1))
    x, labels = draw(batch=20), np.arange(20) % CLASSES
    model.compile("adam", metrics=["accuracy"])
    weights = np.linspace(0, 2, 20)
    logits = np.asarray(model(x))
    log_probabilities = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    nll = -log_probabilities[np.arange(20), labels]
    penalty = 0.1 * np.square(np.asarray(model.trellis.kernel)).sum()
    loss, accuracy = model.evaluate(
        x, labels, sample_weight=weights, batch_size=20, verbose=0
    )
    assert loss == pytest.approx((weights * nll).mean() + penalty, rel=1e-5)
    assert accuracy == pytest.approx((logits.argmax(1) == labels).mean())
    before = model.evaluate(x, labels, verbose=0)[0]
    model.fit(x, labels, epochs=3, verbose=0)
    assert model.evaluate(x, labels, verbose=0)[0] < before


def test_a_loss_of_the_users_own_is_the_one_that_trains():
    model, x = make(), draw(batch=5)
    model.compile("adam", loss="mse", jit_compile=False)
    targets = np.zeros((5, CLASSES))
    expected = np.square(np.asarray(model(x))).mean()
    assert model.evaluate(x, targets, verbose=0) == pytest.approx(expected, rel=1e-5)


def test_training_without_labels_is_refused():
    model = make()
    model.compile("adam")
    with refuses("Received: y=None"):
        model.fit(draw(), verbose=0)


@pytest.fixture(scope="module")
def trained():
    """A model whose `fit` and `evaluate` have been traced."""
    model = make()
    model.compile(keras.optimizers.SGD(0.0), jit_compile=False)
    model.fit(draw(batch=4), np.arange(4) % CLASSES, verbose=0)
    return model


def test_labels_and_weights_may_be_columns(trained):
    x, labels, weights = draw(batch=4), np.arange(4) % CLASSES, np.linspace(0, 2, 4)
    expected = trained.evaluate(x, labels, sample_weight=weights, verbose=0)
    found = trained.evaluate(
        x, labels[:, None], sample_weight=weights[:, None], verbose=0
    )
    assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    "labels, weights, message",
    [
        (np.eye(4, CLASSES), None, r"`y` must be integer labels of shape \[B\]"),
        (np.zeros((4, 4)), None, r"`y` must be integer labels of shape \[B\]"),
        ([0, 0, 0, CLASSES], None, f"`y` must be in .0, {CLASSES}., an integer label"),
        ([0, 0, 0, -1], None, f"`y` must be in .0, {CLASSES}., an integer label"),
        (
            [0, 0, 0, 0],
            np.ones((4, 4)),
            r"`sample_weight` must be weights of shape \[B\]",
        ),
    ],
)
def test_labels_and_weights_are_one_a_sequence(labels, weights, message, trained):
    refused = (ValueError, tf.errors.InvalidArgumentError)
    for call in (trained.fit, trained.evaluate):
        with pytest.raises(refused, match=message):
            call(draw(batch=4), np.array(labels), sample_weight=weights, verbose=0)


def test_the_permutation_is_saved_and_exported(tmp_path):
    model, x = make(permutation=ORDER, dtype="float32"), draw().astype("float32")
    expected = np.asarray(model(x))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.permutation == ORDER
    assert_allclose(loaded(x), expected, rtol=1e-6)
    model.export(tmp_path / "exported", verbose=False)
    exported = tf.saved_model.load(tmp_path / "exported")
    assert_allclose(exported.serve(x), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"permutation": (0, 2)}, r"`permutation` must be .*\(0, 2\)"),
        ({"permutation": (1, 1, 0)}, "`permutation` must be"),
        ({"permutation": ()}, "`permutation` must be"),
        ({"permutation": (0.0, 1.0)}, "`permutation` must be"),
        ({"output_dropout": 1.0}, "`output_dropout` must be .*1.0"),
        ({"dropout": -0.1}, "`dropout` must be .*-0.1"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with refuses(message):
        TrellisClassifier(CLASSES, TrellisLayer(UNITS, 2), **arguments)


def test_sequences_of_another_length_than_the_permutation_are_refused():
    model = make(permutation=ORDER)
    with refuses("as the permutation, 8. Received: sequences with 7 steps"):
        model(draw(steps=7))
    unknown = tf.function(
        model, input_signature=[tf.TensorSpec([None, None, CHANNELS], "float64")]
    )
    with pytest.raises(tf.errors.InvalidArgumentError):
        unknown(draw(steps=9))
