"""The nll by tiles against all logits at once."""

import functools

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_array_equal

from keras_trellis.heads import blockwise
from tests import nests

assert_close = functools.partial(nests.assert_close, tolerance=1e-12)

V, E = 7, 5


@pytest.fixture(
    scope="module", autouse=True, params=[(1, V), (3, 2), (2**24, V)], ids=str
)
def tile(request):
    """The rows and the words of a block."""
    rows, words = request.param
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blockwise, "WORDS", words)
        patch.setattr(blockwise, "BLOCK", rows * words)
        yield


def draw(rows, seed=0):
    rng = np.random.default_rng(seed)
    arrays = rng.normal(size=(rows, E)), rng.normal(size=(V, E)), rng.normal(size=V)
    return [tf.constant(each) for each in arrays], rng.integers(0, V, rows).astype(
        "int32"
    )


def dense(features, targets, words, bias):
    logits = tf.matmul(features, words, transpose_b=True) + bias
    return tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits)


def with_gradients(function, inputs, *others):
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        nll = function(*inputs, *others)
        total = tf.reduce_sum(nll * tf.range(1, tf.shape(nll)[0] + 1, dtype=nll.dtype))
    return nll, tape.gradient(total, inputs)


@pytest.mark.parametrize("rows", [0, 1, 8])
def test_all_rows(rows):
    inputs, targets = draw(rows)

    def run(features, words, bias):
        return blockwise.blockwise_nll(features, targets, words, bias)

    expected = with_gradients(lambda x, w, b: dense(x, targets, w, b), inputs)
    assert_close(with_gradients(run, inputs), expected)


@hypothesis.given(
    of_words=st.sets(st.integers(0, V), min_size=2, max_size=2).map(sorted),
    of_rows=st.tuples(*[st.integers(0, 8)] * 2).map(sorted),
    jit_compile=st.booleans(),
)
@hypothesis.settings(max_examples=6)
def test_some_rows_and_words_whatever_stands_elsewhere(of_words, of_rows, jit_compile):
    """Features and word vectors of NaN and targets of -1 outside of the ranges reach nothing."""
    (features, words, bias), _ = draw(8)
    targets = np.random.default_rng(1).integers(*of_words, 8).astype("int32")
    rows, columns = np.zeros(8, bool), np.zeros(V, bool)
    rows[slice(*of_rows)], columns[slice(*of_words)] = True, True
    initial = np.arange(8.0)
    spoiled = [
        tf.constant(np.where(rows[:, None], features, np.nan)),
        tf.constant(np.where(columns[:, None], words, np.nan)),
        bias,
    ]

    @tf.function(jit_compile=jit_compile)
    def run(inputs, of_rows):
        def added(features, words, bias):
            chain = features, tf.constant(initial), words, bias
            of_rest = np.where(rows, targets, -1), of_words, tf.unstack(of_rows)
            return blockwise.add_blockwise_nll(chain, *of_rest)[1]

        return with_gradients(added, inputs)

    def expected(features, words, bias):
        part = words[slice(*of_words)], bias[slice(*of_words)]
        return initial + tf.where(
            rows, dense(features, targets - of_words[0], *part), 0
        )

    actual = run(spoiled, tf.constant(of_rows))
    assert_close(actual, with_gradients(expected, [features, words, bias]))


def test_one_gradient_of_the_table_for_several_softmaxes():
    """What is handed on collects the gradients of all that comes after."""
    (features, words, bias), targets = draw(8)
    targets = np.sort(targets)
    edge = int(np.searchsorted(targets, 4))

    def chain(features, words, bias):
        handed_on = features, tf.zeros(8, "float64"), words, bias
        handed_on = blockwise.add_blockwise_nll(handed_on, targets, (4, V), (edge, 8))
        features, nll, words, bias = handed_on
        return nll + blockwise.blockwise_nll(features, targets, words, bias)

    def apart(features, words, bias):
        rare = dense(features, np.maximum(targets - 4, 0), words[4:], bias[4:])
        return tf.where(targets >= 4, rare, 0) + dense(features, targets, words, bias)

    inputs = [features, words, bias]
    assert_close(with_gradients(chain, inputs), with_gradients(apart, inputs))


@pytest.mark.parametrize("target", [-1, V])
@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_target_that_is_no_word_is_a_nan(target, jit_compile):
    inputs, targets = draw(3)
    targets[1] = target
    run = tf.function(blockwise.blockwise_nll, jit_compile=jit_compile)
    nll = run(inputs[0], targets, *inputs[1:])
    assert_array_equal(np.isnan(nll), [False, True, False])


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
