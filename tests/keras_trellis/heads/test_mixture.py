"""The mixture of softmaxes against NumPy."""

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from keras_trellis import heads
from tests.numpy_reference import mixture_of_softmaxes, nll_of
from tests.refusals import refuses

V, UNITS, E, K = 11, 6, 4, 3
NAMES = ("bias", "prior_kernel", "prior_bias", "latent_kernel", "latent_bias")


def draw(*shape, seed=1):
    return np.random.default_rng(seed).normal(size=shape)


def make(experts=K, units=UNITS, table_shape=(V, E), **arguments):
    head = heads.MixtureOfSoftmaxes(experts, **{"dtype": "float64", **arguments})
    head.build((None, None, units), table_shape)
    for seed, variable in enumerate(head.trainable_variables):
        variable.assign(draw(*variable.shape, seed=seed))
    return head


def reference(head, features, table, latent_mask=1.0):
    variables = {name: getattr(head, name).numpy() for name in NAMES}
    return mixture_of_softmaxes(features, table, latent_mask=latent_mask, **variables)


TABLE = draw(V, E, seed=20)


@hypothesis.given(
    shape=st.lists(st.integers(0, 3), min_size=1, max_size=3),
    experts=st.integers(1, 4),
    units=st.integers(1, 5),
    table_shape=st.tuples(st.integers(1, 6), st.integers(1, 4)),
    epsilon=st.sampled_from([0.0, 1e-8, 0.1]),
)
@hypothesis.settings(max_examples=20)
def test_mixture_of_softmaxes(shape, experts, units, table_shape, epsilon):
    """The mixture: p = sum_k pi_k softmax(table tanh(h W_k + b_k) + bias) + epsilon."""
    head = make(experts, units, table_shape, epsilon=epsilon)
    features, table = draw(*shape, units), draw(*table_shape, seed=21)
    targets = np.random.default_rng(3).integers(0, table_shape[0], shape)
    expected = np.log(reference(head, features, table) + epsilon)
    features = tf.constant(features)
    assert_allclose(head.log_probs(features, table), expected, atol=1e-11)
    assert_allclose(head.logits(features, table), expected, atol=1e-11)
    nll = head.nll(features, tf.constant(targets), table)
    assert_allclose(nll, nll_of(expected, targets), atol=1e-11)


@pytest.mark.parametrize("rows", [(2,), (2, 3)])
def test_latent_dropout_is_one_mask_for_all_steps(rows):
    """Features that do not change with time have one distribution then, another one a row."""
    head = make(latent_dropout=0.5, seed=1)
    features = np.broadcast_to(draw(UNITS), (*rows, 4, UNITS))
    dropped = np.exp(head.log_probs(tf.constant(features), TABLE, training=True))
    assert_allclose(dropped, np.broadcast_to(dropped[..., :1, :], dropped.shape))
    of_rows = dropped[..., 0, :].reshape(-1, V)
    assert len(np.unique(of_rows.round(9), axis=0)) == len(of_rows)
    assert_allclose(
        head.log_probs(tf.constant(features), TABLE),
        np.log(reference(head, features, TABLE)),
    )


def test_latent_dropout_drops_channels_before_the_tanh():
    """With one channel an expert there are but 2^K masks: the distribution is one of theirs."""
    head = make(table_shape=(V, 1), latent_dropout=0.25, seed=3)
    features, table = draw(40, 1, UNITS), draw(V, 1, seed=20)
    dropped = np.exp(head.log_probs(tf.constant(features), table, training=True))
    masks = np.array(np.meshgrid(*[[0, 1 / 0.75]] * K)).reshape(K, -1).T
    possible = [reference(head, features, table, mask) for mask in masks]
    fits = np.isclose(dropped, np.array(possible), atol=1e-12).all(axis=(-2, -1))
    assert_array_equal(fits.sum(axis=0), 1)
    kept = (masks[fits.argmax(axis=0)] > 0).mean()
    assert 0.6 < kept < 0.9


def test_dropout_follows_the_seed_and_the_mask_of_the_nll_is_that_of_the_distribution():
    features, targets = tf.constant(draw(2, 5, UNITS)), np.zeros((2, 5), int)
    one, same, other = (make(latent_dropout=0.3, seed=seed) for seed in (1, 1, 2))
    nll = one.nll(features, targets, TABLE, training=True)
    log_probs = same.log_probs(features, TABLE, training=True)
    assert_allclose(nll, -log_probs[..., 0], atol=1e-12)
    assert np.any(other.nll(features, targets, TABLE, training=True) != nll)
    assert np.any(one.nll(features, targets, TABLE, training=True) != nll)


def test_latent_dropout_may_be_set_at_any_time():
    head, features = make(seed=1), tf.constant(draw(2, 5, UNITS))
    before = head.log_probs(features, TABLE, training=True)
    head.latent_dropout = 0.3
    assert head.get_config()["latent_dropout"] == 0.3
    dropped = make(latent_dropout=0.3, seed=1).log_probs(features, TABLE, training=True)
    assert_array_equal(head.log_probs(features, TABLE, training=True), dropped)
    assert np.any(dropped != before)
    with refuses("`latent_dropout` must be"):
        head.latent_dropout = 1


def test_epsilon_may_be_set_at_any_time_and_for_one_call():
    head, features = make(), tf.constant(draw(5, UNITS))
    before = head.log_probs(features, TABLE)
    assert_allclose(np.exp(before).sum(-1), 1)
    once = head.log_probs(features, TABLE, epsilon=1e-3)
    nll = head.nll(features, tf.range(5), TABLE, epsilon=1e-3)
    assert_allclose(nll, -np.diag(once))
    head.epsilon = 1e-3
    assert_array_equal(head.log_probs(features, TABLE), once)
    assert_array_equal(head.log_probs(features, TABLE, epsilon=0.0), before)
    with refuses("`epsilon` must be.*-1"):
        head.log_probs(features, TABLE, epsilon=-1.0)
    assert_allclose(np.exp(head.log_probs(features, TABLE)).sum(-1), 1 + V * 1e-3)
    assert head.get_config()["epsilon"] == 1e-3
    head.epsilon = 0.0
    assert_array_equal(head.log_probs(features, TABLE), before)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("epsilon", [0.0, 1e-8])
def test_finite_in_half_precision_where_probabilities_are_not(policy, epsilon):
    """A probability of e^-150 is zero in float32; its logarithm and its gradients are there."""
    head = make(dtype=policy, epsilon=epsilon)
    head.bias.assign(np.where(np.arange(V) == 0, 0.0, 150.0))
    features = tf.cast(draw(6, UNITS), head.compute_dtype)
    variables = [v.value for v in head.trainable_variables]
    with tf.GradientTape() as tape:
        nll = head.nll(features, tf.zeros(6, tf.int32), tf.constant(TABLE, tf.float32))
    assert nll.dtype == head.log_probs(features, TABLE).dtype == tf.float32
    expected = -np.log(epsilon) if epsilon else 150.0
    assert_allclose(nll, expected, rtol=0.1)
    assert_allclose(head.log_probs(features, TABLE)[:, 0], -nll, rtol=0.01)
    assert all(np.isfinite(g).all() for g in tape.gradient(nll, variables))


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"experts": 0}, "`experts`.*experts=0"),
        ({"latent_dropout": 1.0}, "`latent_dropout`.*1.0"),
        ({"epsilon": -1e-8}, "`epsilon`.*-1e-08"),
    ],
)
def test_bad_arguments(arguments, message):
    with refuses(message):
        heads.MixtureOfSoftmaxes(**{"experts": 2, **arguments})
