"""The adaptive softmax against NumPy."""

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from keras_trellis import heads
from tests.numpy_reference import adaptive_softmax, nll_of
from tests.refusals import refuses

V, E, CUTOFFS = 12, 4, (3, 5, 9)
NAMES = ("bias", "tail_vectors", "tail_bias")


def draw(*shape, seed=1):
    return np.random.default_rng(seed).normal(size=shape)


def make(cutoffs=CUTOFFS, words=V, **arguments):
    head = heads.AdaptiveSoftmax(cutoffs, **{"dtype": "float64", **arguments})
    head.build((None, None, E), (words, E))
    for seed, variable in enumerate(head.trainable_variables):
        variable.assign(draw(*variable.shape, seed=seed))
    return head


def reference(head, features, table):
    variables = {name: getattr(head, name).numpy() for name in NAMES}
    return adaptive_softmax(features, table, cutoffs=head.cutoffs, **variables)


TABLE = draw(V, E, seed=20)


@hypothesis.given(
    shape=st.lists(st.integers(0, 4), min_size=1, max_size=3),
    cutoffs=st.sets(st.integers(1, 11), min_size=1).map(sorted),
    least=st.integers(0, 11),
)
@hypothesis.settings(max_examples=20)
def test_adaptive_softmax(shape, cutoffs, least):
    """Two steps: log p(w) = log softmax([table_0; tails] h)_j + log softmax(table_j h)_w."""
    head, features = make(cutoffs), draw(*shape, E)
    targets = np.random.default_rng(3).integers(least, V, shape)
    expected = np.log(reference(head, features, TABLE))
    features = tf.constant(features)
    log_probs = head.log_probs(features, TABLE)
    assert_allclose(log_probs, expected, atol=1e-12)
    assert_allclose(np.exp(log_probs).sum(-1), 1, atol=1e-12)
    nll = head.nll(features, tf.constant(targets), TABLE)
    assert_allclose(nll, nll_of(expected, targets), atol=1e-12)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_clusters_without_targets_are_not_read(jit_compile):
    """Their word vectors may be NaN: neither nll nor gradients know."""
    head = make()
    table = np.where((np.arange(V) >= 5)[:, None], np.nan, TABLE)
    targets = np.array([0, 2, 3, 4, 1])

    @tf.function(jit_compile=jit_compile)
    def run(features, table):
        with tf.GradientTape() as tape:
            tape.watch([features, table])
            nll = head.nll(features, targets, table)
        return nll, tape.gradient(nll, [features, table])

    nll, (of_features, of_table) = run(tf.constant(draw(5, E)), tf.constant(table))
    expected = nll_of(np.log(reference(head, draw(5, E), TABLE)), targets)
    assert_allclose(nll, expected, atol=1e-12)
    assert np.isfinite(of_features).all()
    of_table = np.asarray(tf.convert_to_tensor(of_table))
    assert np.all(of_table[5:] == 0) and np.all(of_table[:5] != 0)


@pytest.mark.parametrize(
    "cutoffs", [(), (0, 3), (3, 3), (5, 3), (2.5,), 7, "ab"], ids=str
)
def test_bad_cutoffs(cutoffs):
    with refuses("`cutoffs` must be .* increasing.*Received: cutoffs="):
        heads.AdaptiveSoftmax(cutoffs)


def test_sizes_that_do_not_fit():
    with refuses(r"vocabulary's size, 9. Received: cutoffs=\(3, 5, 9\)"):
        make(words=9)
    with refuses("output_units=5, embedding_units=4"):
        heads.AdaptiveSoftmax(CUTOFFS).build((None, None, 5), (V, E))
