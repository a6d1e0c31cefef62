"""The nll by blocks against all logits at once."""

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import tensorflow as tf

from keras_trellis.heads import blockwise

V, E = 7, 5


@pytest.fixture(scope="module", autouse=True, params=[1, 3, 2**24], ids="{} rows a block".format)
def rows_a_block(request):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blockwise, "BLOCK", request.param * V)
        yield request.param


def draw(rows, seed=0):
    rng = np.random.default_rng(seed)
    arrays = rng.normal(size=(rows, E)), rng.normal(size=(V, E)), rng.normal(size=V)
    return [tf.constant(each) for each in arrays], rng.integers(0, V, rows).astype("int32")


def dense(features, targets, words, bias):
    logits = tf.matmul(features, words, transpose_b=True) + bias
    return tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits)


def with_gradients(function, inputs, *others):
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        nll = function(*inputs, *others)
        total = tf.reduce_sum(nll * tf.range(1, tf.shape(nll)[0] + 1, dtype=nll.dtype))
    return nll, tape.gradient(total, inputs)


def assert_close(actual, expected):
    for a, e in zip(tf.nest.flatten(actual), tf.nest.flatten(expected), strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("rows", [0, 1, 8])
def test_all_rows(rows):
    inputs, targets = draw(rows)

    def run(features, words, bias):
        return blockwise.blockwise_nll(features, targets, words, bias)

    expected = with_gradients(lambda x, w, b: dense(x, targets, w, b), inputs)
    assert_close(with_gradients(run, inputs), expected)


@hypothesis.given(edges=st.tuples(*[st.integers(0, 8)] * 2).map(sorted), jit_compile=st.booleans())
@hypothesis.settings(max_examples=6)
def test_a_range_of_rows_whatever_stands_elsewhere(edges, jit_compile):
    """Features of NaN and targets of -1 outside of the range reach nothing."""
    (features, words, bias), targets = draw(8)
    start, stop = edges
    inside = (np.arange(8) >= start) & (np.arange(8) < stop)
    spoiled = np.where(inside[:, None], features, np.nan)
    initial = np.arange(8.0)

    @tf.function(jit_compile=jit_compile)
    def run(features, start, stop):
        return with_gradients(
            lambda x, w, b: blockwise.add_blockwise_nll(
                x, tf.constant(initial), np.where(inside, targets, -1), w, b, start, stop
            )[1],
            [features, words, bias],
        )

    expected = with_gradients(
        lambda x, w, b: initial + tf.where(inside, dense(x, targets, w, b), 0),
        [features, words, bias],
    )
    assert_close(run(tf.constant(spoiled), tf.constant(start), tf.constant(stop)), expected)


def test_second_derivatives():
    inputs, targets = draw(4)

    def norm_of_gradients(function):
        def norm(*inputs):
            _, gradients = with_gradients(function, list(inputs))
            return sum(tf.reduce_sum(gradient**2) for gradient in gradients)[None]

        return with_gradients(norm, inputs)

    assert_close(
        norm_of_gradients(lambda x, w, b: blockwise.blockwise_nll(x, targets, w, b)),
        norm_of_gradients(lambda x, w, b: dense(x, targets, w, b)),
    )
