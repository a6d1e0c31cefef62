"""Dynamic evaluation and the continuous cache against their equations, and against time."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from ml_collections import ConfigDict
from numpy.testing import assert_allclose, assert_array_equal

from keras_trellis import TrellisLayer, TrellisLM
from keras_trellis.heads import Head, MixtureOfSoftmaxes
from trainers.language import adaptation, evaluation
from trainers.language.adaptation import ContinuousCache, DynamicEvaluation

VOCABULARY = 11
DYNAMIC = DynamicEvaluation(rate=2e-3, decay=0.3)
CACHE = ContinuousCache(size=7, theta=2.0, weight=0.4)


class Bilinear(Head):
    """A head without logits: the log-probabilities of one softmax after a square matrix."""

    def build(self, features_shape, table_shape):
        self.square = self.add_weight(shape=(features_shape[-1], table_shape[-1]))

    def log_probs(self, features, table, training=False):
        products = tf.einsum(
            "...e,ef,vf->...v", features, self.square, tf.convert_to_tensor(table)
        )
        return tf.nn.log_softmax(products)


def trellis(head="tied"):
    layer = TrellisLayer(
        6, depth=4, dilation_rate=(1, 2), output_units=5, dtype="float64", seed=3
    )
    return TrellisLM(
        VOCABULARY, layer, embedding_units=5, head=head, dtype="float64", seed=3
    )


def over(layer):
    layers = [layer(units, seed=units, dtype="float64") for units in (6, 5)]
    return TrellisLM(VOCABULARY, layers, embedding_units=5, dtype="float64", seed=3)


MODELS = {
    "trellis": trellis,
    "another head": lambda: trellis(Bilinear(dtype="float64")),
    "lstm": lambda: over(keras.layers.LSTM),
    "gru": lambda: over(keras.layers.GRU),
}


@pytest.fixture(scope="module")
def model():
    return trellis()


@pytest.fixture(scope="module")
def ids():
    return np.random.default_rng(0).integers(0, VOCABULARY, 38).astype(np.int32)


@pytest.fixture(scope="module")
def train():
    return np.random.default_rng(1).integers(0, VOCABULARY, 400).astype(np.int32)


@pytest.fixture(scope="module", autouse=True)
def _few_streams():
    """Of 400 tokens; gradients of 8 streams of 50 tokens are 10 batches, of which 6 count."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adaptation, "STREAMS", 8)
        patch.setattr(adaptation, "BATCHES", 6)
        yield


def evaluator(model, train, chunk=16, **adaptations):
    return adaptation.AdaptiveEvaluator(model, train, chunk, **adaptations)


def recalled(cache, nll, features, targets):
    """The equation of `ContinuousCache`, a step and a word at a time."""
    mixed = []
    for t, word in enumerate(targets):
        past = range(max(0, t - cache.size), t)
        scores = {
            i: math.exp(cache.theta * float(features[t] @ features[i])) for i in past
        }
        p = math.exp(-nll[t])
        if past:
            same = sum(score for i, score in scores.items() if targets[i] == word)
            p = (1 - cache.weight) * p + cache.weight * same / sum(scores.values())
        mixed.append(-math.log(p))
    return np.array(mixed)


@given(
    size=st.integers(1, 12),
    theta=st.floats(0, 3),
    weight=st.floats(0, 0.99),
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    seed=st.integers(0, 1000),
)
@settings(max_examples=60)
def test_continuous_cache(size, theta, weight, lengths, seed):
    """In chunks of any lengths."""
    cache = ContinuousCache(size, theta, weight)
    random = np.random.default_rng(seed)
    steps = 0
    features = random.normal(size=(sum(lengths), 3))
    nll = random.exponential(size=sum(lengths))
    targets = random.integers(0, 4, sum(lengths)).astype(np.int32)
    memory = adaptation.Recent(
        tf.zeros([size, 3], "float64"), tf.zeros([size], "int32"), 0
    )
    found = []
    for length in lengths:
        chunk = slice(steps, steps + length)
        mixed, memory = adaptation.recall(
            cache,
            memory,
            *map(tf.constant, (nll[chunk], features[chunk], targets[chunk])),
        )
        found.append(mixed)
        steps += length
    expected = recalled(cache, nll, features, targets)
    assert_allclose(np.concatenate(found), expected, rtol=1e-10, atol=1e-12)


def gradients_of(model):
    """Returns a function of rows [B, n + 1] and a state.

    It gives the gradients of their mean nll, the nll, the features and the state.
    """

    @tf.function(
        autograph=False
    )  # Keras traces its LSTM and GRU anew at each eager call
    def differentiated(rows, state):
        with tf.GradientTape() as tape:
            features, state = model.stream(rows[:, :-1], state)
            nll = model.head.nll(features, rows[:, 1:], model.embedding.embeddings)
            loss = tf.reduce_mean(nll)
        gradients = tape.gradient(loss, [w.value for w in model.trainable_weights])
        return list(map(tf.convert_to_tensor, gradients)), nll, features, state

    return differentiated


def dynamic_evaluation(model, train, ids, dynamic):
    """The equations of `DynamicEvaluation`; returns nll [N - 1] and features [N - 1, E]."""
    trained = [w.numpy() for w in model.trainable_weights]
    streams = train.reshape(8, 50)
    state, squares, differentiated = model.get_initial_cache(8), [], gradients_of(model)
    for k in range(6):
        rows = tf.constant(streams[:, 5 * k : 5 * k + 6])
        gradients, *_, state = differentiated(rows, state)
        squares.append([gradient.numpy() ** 2 for gradient in gradients])
    rms = [np.sqrt(np.mean(each, 0)) for each in zip(*squares, strict=True)]
    mean = np.mean([np.mean(each) for each in rms])
    state, nlls, kept = model.get_initial_cache(1), [], []
    for start in range(0, len(ids) - 1, 5):
        segment = tf.constant(ids[None, start : start + 6])
        gradients, nll, features, state = differentiated(segment, state)
        nlls.append(nll[0].numpy())
        kept.append(features[0].numpy())
        for weight, first, r, gradient in zip(
            model.trainable_weights, trained, rms, gradients, strict=True
        ):
            now = weight.numpy()
            decay = np.minimum(dynamic.decay * r / mean, 1)
            weight.assign(
                now
                - dynamic.rate * gradient.numpy() / (r + 2e-5)
                + decay * (first - now)
            )
    for weight, first in zip(model.trainable_weights, trained, strict=True):
        weight.assign(first)
    return np.concatenate(nlls), np.concatenate(kept)


@pytest.mark.parametrize(
    "name, cache", [("trellis", None), *((name, CACHE) for name in MODELS)]
)
def test_dynamic_evaluation(name, cache, train, ids):
    model = MODELS[name]()
    expected, features = dynamic_evaluation(model, train, ids, DYNAMIC)
    if cache:
        expected = recalled(cache, expected, features, ids[1:])
    found = evaluator(model, train, dynamic=DYNAMIC, cache=cache).nll(ids)
    assert_allclose(found, expected, rtol=1e-9 if model.dtype == "float64" else 2e-5)


def test_dynamic_evaluation_learns(train):
    """A text that says the same again and again, to a model that has never seen it."""
    # Untrained weights: from some, so few steps learn less.
    keras.utils.set_random_seed(0)
    ids = np.resize([1, 4, 2, 8, 5, 7], 361).astype(np.int32)
    nll = evaluator(trellis(), train, dynamic=DynamicEvaluation(1e-3, 0.0)).nll(ids)
    assert nll[-60:].mean() < 0.5 * nll[:60].mean()


def test_a_cache_is_the_same_in_any_chunks(model, train, ids):
    one, many = (
        evaluator(model, train, chunk, cache=CACHE).nll(ids) for chunk in (37, 5)
    )
    assert_allclose(many, one, rtol=1e-9)


@pytest.fixture(scope="module")
def adaptive(model, train):
    return evaluator(model, train, dynamic=DYNAMIC, cache=CACHE)


@pytest.fixture(scope="module")
def adapted(adaptive, ids):
    return adaptive.nll(ids)


@given(place=st.integers(1, 36), word=st.integers(1, VOCABULARY - 1))
@settings(max_examples=12)
def test_a_target_depends_on_what_is_before_it_alone(
    adaptive, adapted, place, word, ids
):
    changed = ids.copy()
    changed[place:] = (changed[place:] + word) % VOCABULARY
    one, two = adapted, adaptive.nll(changed)
    assert_array_equal(one[: place - 1], two[: place - 1])
    assert (one[place - 1 :] != two[place - 1 :]).all()


def test_what_adapts_to_nothing_scores_as_one_pass(train, ids):
    """Whatever epsilon a mixture was trained with, as the protocol `exact` has it."""
    mixture = MixtureOfSoftmaxes(2, epsilon=0.1, dtype="float64", seed=1)
    model = trellis(mixture)
    one_pass = ConfigDict({"exact_batch_size": 1, "exact_chunk": 16})
    static = evaluation.Evaluator(model, None, one_pass).exact(ids)
    none = dict(
        dynamic=DynamicEvaluation(1e-30, 0.0), cache=ContinuousCache(3, 1.0, 0.0)
    )
    found = evaluator(model, train, **none).exact(ids)
    assert found.tokens == static.tokens == 37
    assert_allclose(found.nll, static.nll, rtol=1e-6)
    assert mixture.epsilon == 0.1


@pytest.mark.parametrize("interrupted", [False, True])
def test_the_weights_are_those_trained_afterwards(train, ids, monkeypatch, interrupted):
    model = trellis()
    before = [variable.numpy() for variable in model.variables]
    scorer = evaluator(model, train, dynamic=DYNAMIC)
    first = scorer.nll(ids)
    if interrupted:
        call, calls = scorer._call, []

        def failing(*arguments):
            calls.append(arguments)
            if len(calls) == 3:
                raise KeyboardInterrupt
            return call(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(scorer, "_call", failing)
            with pytest.raises(KeyboardInterrupt):
                scorer.nll(ids)
    for variable, value in zip(model.variables, before, strict=True):
        assert_array_equal(variable.numpy(), value)
    assert_array_equal(scorer.nll(ids), first)
