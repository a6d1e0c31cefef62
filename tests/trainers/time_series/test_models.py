"""Models of recordings: streamed as whole, gaps left out, and the classifier of an export."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from trainers.data.recordings import Facts
from trainers.sequences import models as sequences
from trainers.tasks import config as configs
from trainers.time_series import models

MEAN, DEVIATION = (5.0, -2.0), (3.0, 0.5)


def facts(every_step, classes=("x", "y", "z")):
    numbers = {} if classes else {"offset": (7.0, 8.0), "scale": 2.0}
    outputs = len(classes) or 2
    return Facts(
        ("a", "b"), MEAN, DEVIATION, outputs, every_step, 8, True, classes, **numbers
    )


@functools.cache
def built(layer, every_step, classes=("x", "y", "z"), stem=False):
    config = configs.load("csv", "small")
    config.model.update(units=6, output_units=6, depth=2, dilation_rate=(1, 3))
    config.model.update(kernel_size=3, layer=layer, output_dropout=0.2)
    if layer == "sru":
        config.model.embedding_units = 6
    if stem:
        config.model.stem.update(filters=(6, 5), kernel_size=(3, 2), strides=(2, 1))
    model = models.build(config, facts(every_step, classes))
    count = sum(int(np.prod(v.shape)) for v in model.trainable_variables)
    assert sequences.parameters(config, 2, len(classes) or 2) == count
    return model, models.Runner(model, facts(every_step, classes), 3)


def recording(steps, seed, gaps=0.0):
    generator = np.random.default_rng(seed)
    values = generator.normal(MEAN, DEVIATION, (steps, 2)).astype("float32")
    values[generator.random(steps) < gaps] = np.nan
    return values


def whole_pass(model, values):
    """One call of the model on a recording, its gaps left out; the outputs at the other steps."""
    there = np.isfinite(values).all(1)
    outputs = np.full((len(values), model.output_shape[-1]), np.nan)
    if there.any():
        outputs[there] = model(values[there][None], training=False)[0]
    return outputs


LENGTHS = st.lists(st.integers(1, 30), min_size=1, max_size=5)


@pytest.mark.parametrize("layer", ["trellis", "gru", "sru"])
@settings(max_examples=4)
@given(lengths=LENGTHS, seed=st.integers(0, 2**32))
def test_a_stream_is_one_pass_without_the_gaps(layer, lengths, seed):
    model, runner = built(layer, True)
    values = [recording(n, seed + i, gaps=0.2) for i, n in enumerate(lengths)]
    for read, outputs in zip(values, runner.streams(values), strict=True):
        expected = whole_pass(model, read)
        there = np.isfinite(read).all(1)
        assert_allclose(outputs[there], expected[there], atol=1e-5)


@pytest.mark.parametrize("stem", [False, True])
def test_padding_and_gaps_reach_no_answer_and_no_gradient(stem):
    model, runner = built("trellis", False, stem=stem)
    short = recording(5, 0)
    padded = np.full((2, 8, 2), np.nan, "float32")
    padded[0, :5] = padded[1, 3:] = short
    alone = model(short[None], training=False).numpy()
    assert_allclose(runner.windows(padded), alone.repeat(2, 0), atol=1e-5)
    with tf.GradientTape() as tape:
        outputs = models.run_windows(model, tf.constant(padded), True, training=True)
        loss = tf.reduce_sum(outputs)
    gradients = tape.gradient(loss, [v.value for v in model.trainable_variables])
    assert all(np.isfinite(gradient).all() for gradient in gradients)


def test_the_end_of_a_window_is_left_out():
    windows = np.stack([recording(8, seed) for seed in range(2)])
    windows[1, 5:] = np.nan  # padding
    cut = models.without_end(tf.constant(windows), tf.constant([[0.5], [0.35]])).numpy()
    assert np.isfinite(cut).all(-1).sum(1).tolist() == [4, 4]
    np.testing.assert_array_equal(cut[:, :4], windows[:, :4])


def test_numbers_come_in_their_own_unit():
    model, _ = built("trellis", True, ())
    dense, units = model.get_layer("dense"), model.get_layer("units")
    kernel, bias = dense.get_weights()
    dense.set_weights([np.zeros_like(kernel), np.array([1.0, -1.0])])
    assert_allclose(model(recording(4, 0)[None])[0, 0], [9.0, 6.0])
    dense.set_weights([kernel, bias])
    assert units.get_config()["scale"] == 2.0


@pytest.mark.parametrize("stem", [False, True])
@pytest.mark.parametrize("layer", ["trellis", "sru"])
def test_a_classifier_of_scaled_sequences_is_the_model(layer, stem):
    model, _ = built(layer, False, stem=stem)
    sequences = np.stack([recording(8, seed) for seed in range(3)])
    classifier, scaled = models.classifier(model, facts(False))
    assert_allclose(classifier(scaled(sequences)), model(sequences), atol=1e-5)
