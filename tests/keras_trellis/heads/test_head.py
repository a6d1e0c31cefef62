"""What every head has from the interface, and heads by name."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from keras_trellis import TrellisLayer, TrellisLM, heads
from tests.refusals import refuses

V, E = 11, 4
HEADS = {
    "tied": heads.TiedSoftmax,
    "mixture": functools.partial(heads.MixtureOfSoftmaxes, 3, epsilon=1e-8),
    "adaptive": functools.partial(heads.AdaptiveSoftmax, (3, 5, 9)),
    "adaptive, two words ahead": functools.partial(heads.AdaptiveSoftmax, (2,)),
    "adaptive, one word behind": functools.partial(heads.AdaptiveSoftmax, (1, 10)),
}


def draw(*shape, seed=1):
    return np.random.default_rng(seed).normal(size=shape)


def make(name, dtype):
    """A head with variables of random numbers."""
    head = HEADS[name](dtype=dtype)
    head.build((None, None, E), (V, E))
    for seed, variable in enumerate(head.trainable_variables):
        variable.assign(draw(*variable.shape, seed=seed))
    return head


@pytest.fixture(params=HEADS)
def head(request):
    return make(request.param, "float64")


def test_auxiliary_outputs_share_their_targets(head):
    features, table = draw(2, 3, 5, E), draw(V, E, seed=20)
    targets = np.random.default_rng(3).integers(0, V, (2, 5))
    together = head.nll(tf.constant(features), targets[:, None], table)
    levels = tf.unstack(tf.constant(features), axis=1)
    apart = [head.nll(level, targets, table) for level in levels]
    assert_allclose(together, np.stack(apart, axis=1), atol=1e-12)


def test_gradients_of_the_nll_are_those_of_the_distribution(head):
    features, table = tf.constant(draw(2, 5, E)), tf.constant(draw(V, E, seed=20))
    targets = np.random.default_rng(3).integers(0, V, (2, 5))
    inputs = [features, table, *(v.value for v in head.trainable_variables)]
    gradients = []
    for nll in (head.nll, super(type(head), head).nll):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            total = tf.reduce_sum(nll(features, targets, table) * draw(2, 5, seed=9))
        gradients.append(tape.gradient(total, inputs))
    for one, other in zip(*gradients, strict=True):
        assert_allclose(tf.convert_to_tensor(one), other, atol=1e-12)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("name", ["tied", "adaptive"])
def test_softmax_in_float32_under_mixed_precision(name, policy):
    """The product is in half precision, the softmax is not: its sum is 1 to float32's precision."""
    head, table = make(name, policy), draw(V, E, seed=20)
    features = tf.cast(30 * draw(6, E), head.compute_dtype)
    log_probs, targets = head.log_probs(features, table), np.arange(6)
    nll = head.nll(features, targets, table)
    assert (
        log_probs.dtype == nll.dtype == head.logits(features, table).dtype == "float32"
    )
    assert_allclose(np.exp(log_probs).sum(-1), 1, atol=1e-6)
    assert_allclose(nll, -np.asarray(log_probs)[targets, targets], 1e-5)


@keras.saving.register_keras_serializable("tests")
class Uniform(heads.Head):
    """A head without logits or an nll of its own."""

    def log_probs(self, features, table, training=False):
        log_probs = tf.constant(-np.log(V), features.dtype)
        return tf.fill(tf.concat([tf.shape(features)[:-1], [V]], 0), log_probs)


def test_a_head_needs_log_probs_alone():
    head = Uniform()
    features = tf.zeros((2, 3, 5, E))
    assert_allclose(head.nll(features, tf.zeros((2, 1, 5), tf.int32), None), np.log(V))
    assert_allclose(head.logits(features, None), head.log_probs(features, None))


def test_a_new_head_is_a_class_and_a_name(monkeypatch, tmp_path):
    monkeypatch.setitem(heads.NAMES, "uniform", Uniform)
    layer = TrellisLayer(E, 2, output_units=E)
    model = TrellisLM(V, layer, embedding_units=E, head="uniform")
    assert isinstance(model.head, Uniform) and model.head.name == "head"
    nll, _ = model.score([[1, 2]], [[2, 3]])
    assert_allclose(nll, np.log(V), rtol=1e-6)
    model.save(tmp_path / "model.keras")
    assert isinstance(keras.models.load_model(tmp_path / "model.keras").head, Uniform)


def test_a_target_that_is_no_word_is_a_nan_under_xla():
    head = Uniform()
    nll = tf.function(
        lambda targets: head.nll(tf.zeros((3, E)), targets, None), jit_compile=True
    )
    assert_array_equal(np.isnan(nll(tf.constant([-1, V, 2]))), [True, True, False])


@pytest.mark.parametrize(
    "shape",
    [(), (3,), (5,), (2, 5), (2, 1, 1), (2, 1, 4), (1, 1, 5), (2, 2, 5), (2, 3, 5, 1)],
    ids=str,
)
def test_targets_share_the_axis_of_levels_and_no_other(shape):
    features, targets = tf.zeros((2, 3, 5, E)), np.zeros(shape, "int32")
    message = r"`targets` must be of the shape of `features` without its last axis"
    with refuses(message):
        Uniform().nll(features, targets, None)
    unknown = [None] * len(shape)
    nll = tf.function(
        lambda features, targets: Uniform().nll(features, targets, None),
        input_signature=[
            tf.TensorSpec([None] * 3 + [E]),
            tf.TensorSpec(unknown, tf.int32),
        ],
    )
    message += "|Input to reshape is a tensor with"  # TensorFlow's own, where no shape is known
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match=message):
        nll(features, targets)


def test_get():
    head = heads.TiedSoftmax(name="mine", dtype="float64")
    assert heads.get(head) is head
    assert isinstance(heads.get("tied", name="head"), heads.TiedSoftmax)
    copy = heads.get(keras.saving.serialize_keras_object(head))
    assert copy.get_config() == head.get_config()
    mixture = heads.get("mixture", experts=3, dtype="float64")
    assert isinstance(mixture, heads.MixtureOfSoftmaxes) and mixture.experts == 3
    with refuses(r"`head` must have the arguments of Mixture.*'experts'"):
        heads.get("mixture", name="head")
    for wrong in ("softmax", None, 3, keras.layers.Dense(3)):
        with refuses("`head` must be one of .*Received: head="):
            heads.get(wrong)
