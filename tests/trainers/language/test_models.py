"""Language models over each layer: their sizes, what starts them, and what a config must fit."""

import ml_collections
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from trainers.language import evaluation, models
from trainers.models.layers import LAYERS
from trainers.tasks import config as configs
from trainers.training import variables

VOCABULARY, STEPS = 19, 12


def built(layer, **fields):
    config = configs.load("text", "small")
    config.model.update(
        layer=layer, units=8, depth=3, layers=2, output_units=5, embedding_units=5
    )
    if getattr(LAYERS[layer], "square", False):
        config.model.units = 5
    config.model.update(fields)
    return models.build(config, VOCABULARY)


@pytest.fixture(scope="module", params=LAYERS)
def model(request):
    return built(request.param, embedding_dropout=0.2, dropout=0.3, output_dropout=0.3)


@pytest.fixture(scope="module")
def ids():
    """Four streams of 31, which are three whole windows of ten."""
    return np.random.default_rng(1).integers(0, VOCABULARY, 124).astype(np.int32)


@pytest.mark.parametrize(
    "task, words", [("ptb", 10_000), ("ptb_char", 50), ("pydoc", 1_593)]
)
def test_the_presets_to_be_compared_have_as_many_parameters(task, words):
    first, *others = (
        models.parameters(configs.load(task, preset), words)
        for preset in ("small_stacked_lstm", "small_lstm", "small_skip_lstm")
    )
    assert all(abs(first - other) < 0.0015 * first for other in others)


def test_the_presets_have_the_parameters_they_had():
    """As release 0.1 printed them, of models that it built."""
    assert models.parameters(configs.load("ptb", "small_lstm"), 10_000) == 2_945_490
    assert (
        variables.parameters(models.build(configs.load("ptb", "small"), 10_000))
        == 2_945_314
    )


def test_both_protocols_score_each_layer(model, ids):
    """The exact protocol's score is that of one pass, however the text is cut."""
    settings = ml_collections.ConfigDict(
        {"batch_size": 4, "exact_batch_size": 4, "exact_chunk": 32}
    )
    data = ml_collections.ConfigDict({"window": 10, "horizon": 0, "history": "carried"})
    evaluator = evaluation.Evaluator(model, data, settings)
    score = evaluator.exact(ids)
    nll, _ = model.score(
        ids[None, :-1], ids[None, 1:], cache=model.get_initial_cache(1)
    )
    assert score.tokens == 123
    assert_allclose(score.nll, np.sum(nll), rtol=1e-3)
    assert evaluator.trellisnet(ids).tokens == 4 * 30


def test_masks_are_drawn_in_training_only_and_anew_each_call(model, ids):
    inputs, targets = ids[None, :STEPS], ids[None, 1 : STEPS + 1]

    @tf.function(autograph=False)
    def loss(training):
        return model.loss_terms(inputs, targets, training=training)[0].prediction

    assert float(loss(False)) == float(loss(False))
    assert len({float(loss(True)), float(loss(True)), float(loss(False))}) == 3


def test_no_two_layers_draw_the_same_masks():
    lstm = built("lstm", layers=3, dropout=0.5).trellis
    seeds = {str(layer.cell.seed_generator.state.numpy()) for layer in lstm.layers}
    assert len(seeds) == 3


@pytest.mark.parametrize(
    "fields, message",
    [
        (
            {"head": "adaptive", "adaptive": {"cutoffs": (9, 19)}},
            r"`config.model.adaptive.cutoffs` must be below the vocabulary's size, 19.*\(9, 19\)",
        ),
        (
            {"untrained_input_id": 19},
            "`config.model.untrained_input_id` must be from -19 to 18",
        ),
    ],
)
def test_words_that_the_vocabulary_lacks_are_told(fields, message):
    with pytest.raises(ValueError, match=message):
        built("trellis", **fields)


def test_dropout_between_layers_may_differ_from_that_of_the_inputs():
    for layer in ("lstm", "irc_gru"):
        config = configs.load("text", "small")
        config.model.update(layer=layer, units=6, layers=3, output_units=5)
        config.model.update(embedding_units=5, dropout=0.4)
        stack = models.build(config, VOCABULARY).trellis.layers
        assert [each.cell.dropout for each in stack] == [0.4, 0.4, 0.4]
        config.model.layer_dropout = 0.25
        stack = models.build(config, VOCABULARY).trellis.layers
        assert [each.cell.dropout for each in stack] == [0.4, 0.25, 0.25]
