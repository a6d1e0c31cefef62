"""The tied softmax against NumPy."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from keras_trellis import heads
from tests.numpy_reference import log_softmax, nll_of

V, E = 11, 4


def make(dtype="float64"):
    head = heads.TiedSoftmax(dtype=dtype)
    head.build((None, None, E), (V, E))
    head.bias.assign(np.random.default_rng(0).normal(size=V))
    return head


def draw(*shape, seed=1):
    return np.random.default_rng(seed).normal(size=shape)


TABLE = draw(V, E, seed=2)


@pytest.mark.parametrize("shape", [(3,), (2, 5), (2, 3, 5), (0, 5), (2, 0)])
def test_tied_softmax_against_numpy(shape):
    """Logits = features table^T + bias, for features of any rank."""
    head, features = make(), draw(*shape, E)
    logits = features @ TABLE.T + head.bias.numpy()
    targets = np.random.default_rng(3).integers(0, V, shape)
    expected = nll_of(log_softmax(logits), targets)
    assert_allclose(head.logits(tf.constant(features), TABLE), logits, atol=1e-12)
    assert_allclose(
        head.log_probs(tf.constant(features), TABLE), log_softmax(logits), atol=1e-12
    )
    nll = head.nll(tf.constant(features), tf.constant(targets), TABLE)
    assert_allclose(nll, expected, atol=1e-12)


def test_bias_keeps_its_precision_within_a_mixed_precision_call():
    head = make("mixed_bfloat16")
    head.bias.assign(np.full(V, 1 + 2**-12))
    features = tf.zeros((1, E), tf.bfloat16)
    assert_array_equal(head(features, tf.constant(TABLE)), np.full((1, V), 1 + 2**-12))


def test_call_is_logits_and_works_in_a_functional_model():
    features, table = keras.Input((None, E)), keras.Input(batch_shape=(V, E))
    outputs = heads.TiedSoftmax()(features, table)
    assert outputs.shape == (None, None, V)
    model = keras.Model([features, table], outputs)
    x = draw(V, 3, E).astype("float32")
    assert_allclose(model([x, TABLE.astype("float32")]), x @ TABLE.T, atol=1e-5)


def test_sizes_that_do_not_fit():
    with pytest.raises(ValueError, match="output_units=5, embedding_units=4"):
        heads.TiedSoftmax().build((None, None, 5), (V, 4))
