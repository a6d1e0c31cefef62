"""The LSTM language model: its sizes, its state, and what the trainers ask of it."""

import numpy as np
import pytest
import tensorflow as tf
from ml_collections import ConfigDict

from trainers.language import evaluation, modeling
from trainers.language.baselines import LSTMLanguageModel
from trainers.tasks import config
from trainers.training import runs

VOCABULARY = 19


@pytest.fixture(scope="module")
def model():
    return LSTMLanguageModel(
        VOCABULARY, 7, 2, embedding_units=5, embedding_dropout=0.2, dropout=0.3, output_dropout=0.3
    )


@pytest.fixture(scope="module")
def ids():
    return np.random.default_rng(1).integers(0, VOCABULARY, 301).astype(np.int32)


def test_the_presets_to_be_compared_have_as_many_parameters():
    trellis, lstm = (
        runs.parameters(modeling.build(config.load("ptb", preset), 10_000))
        for preset in ("small", "small_lstm")
    )
    assert abs(trellis - lstm) < 0.001 * trellis


def test_nll_is_that_of_the_logits(model, ids):
    inputs, targets = ids[None, :20], ids[None, 1:21]
    nll, _ = model.score(inputs, targets)
    expected = tf.nn.sparse_softmax_cross_entropy_with_logits(targets, model(inputs))
    np.testing.assert_allclose(nll, expected, rtol=1e-6)
    terms, _ = model.loss_terms(inputs, targets, discard=8)
    np.testing.assert_allclose(terms.prediction, np.mean(nll[:, 8:]), rtol=1e-6)
    assert [float(term) for term in terms[1:]] == [0.0, 0.0, 0.0]


def test_chunks_with_the_state_carried_are_one_pass(model, ids):
    whole, _ = model.score(ids[None, :-1], ids[None, 1:])
    settings = ConfigDict({"batch_size": 4, "exact_batch_size": 4, "exact_chunk": 32})
    data = ConfigDict({"window": 10, "horizon": 0, "history": "carried"})
    score = evaluation.Evaluator(model, data, settings).exact(ids)
    assert score.tokens == 300
    np.testing.assert_allclose(score.nll, np.sum(whole), rtol=1e-5)


def test_masks_are_drawn_in_training_only_and_anew_each_call(model, ids):
    inputs, targets = ids[None, :50], ids[None, 1:51]

    def loss(training):
        return float(model.loss_terms(inputs, targets, training=training)[0].prediction)

    assert loss(False) == loss(False)
    assert len({loss(True), loss(True), loss(False)}) == 3
