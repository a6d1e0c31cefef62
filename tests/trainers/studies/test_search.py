"""Draws from search spaces, and the configs that they make."""

import numpy as np
import pytest

from trainers.language import models as language_models
from trainers.studies import search
from trainers.tasks import config as configs
from trainers.tasks import registry
from trainers.tasks.names import flatten
from trainers.tasks.search import Choice, Integers, Uniform

VECTORS = Choice(({"minval": -0.1, "maxval": 0.1}, {"minval": -1.0, "maxval": 1.0}))


class Draws:
    """Draws with NumPy what a tuner would."""

    def __init__(self, seed):
        self.generator = np.random.default_rng(seed)

    def suggest_float(self, name, low, high, *, log):
        ends = np.log([low, high]) if log else [low, high]
        value = self.generator.uniform(*ends)
        return float(np.exp(value) if log else value)

    def suggest_int(self, name, low, high, *, log):
        return int(self.generator.integers(low, high + 1))

    def suggest_categorical(self, name, choices):
        assert all(isinstance(choice, str) for choice in choices)
        return choices[self.generator.integers(len(choices))]


@pytest.fixture
def config():
    return configs.load("text", "small_levels")


@pytest.mark.parametrize("task", registry.TASKS)
def test_all_that_a_task_searches_is_valid(task):
    config = configs.load(task, "small")
    space = search.space(config)
    search.check(config, space)
    for seed in range(20):
        values = search.draw(space, Draws(seed))
        applied = flatten(search.apply(config, values).to_dict())
        assert {name: applied[name] for name in values} == values
        others = set(applied) - set(values)
        assert all(applied[name] == flatten(config.to_dict())[name] for name in others)


def test_a_layer_is_searched_only_for_what_it_has():
    trellis, lstm = (
        search.space(configs.load("ptb", name))
        for name in ("small_levels", "small_lstm")
    )
    assert {"model.depth", "model.dilation_rate", "model.weight_dropout"} <= set(
        trellis
    )
    assert "model.layers" not in trellis and "model.layers" in lstm
    assert set(lstm) - {"model.layers"} < set(trellis)


def test_a_group_draws_its_fields_together(config):
    name = "model.embeddings_initializer.config"
    for seed in range(5):
        values = search.draw({name: VECTORS}, Draws(seed))
        assert values[f"{name}.minval"] == -values[f"{name}.maxval"]


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({}, "the search space of --task=text is empty"),
        (
            {"model.unit": Integers(1, 3)},
            "unknown config field of the search space 'model.unit'; ",
        ),
        ({"model": Choice(({"deep": 1}, {"deep": 2}))}, "'model.deep'; did you mean"),
        (
            {"model.dropout": Uniform(0.0, 1.5)},
            "`config.model.dropout` must be .*Received: .*=1.5",
        ),
        ({"model.depth": Uniform(7.5, 8.5)}, "`config.model.depth` must be an integer"),
        (
            {"data.history": Choice(("zero", "none"))},
            "`config.data.history` must be one of .*none",
        ),
        (
            {"data.horizon": Choice((0, 16))},
            "`config.data.horizon` must be 0 .*horizon=16",
        ),
        (
            {
                "data.window": Choice((60, 80)),
                "data": Choice(({"window": 70}, {"window": 80})),
            },
            "the search space has 'data.window' twice, in data.window and data",
        ),
        (
            {"optimizer.learning_rate": Uniform(1e-5, 1e-3, log=True)},
            "`config.optimizer.learning_rate` must be from 1e-05 to 0.001, its range .*"
            "Received: config.optimizer.learning_rate=0.004 of --preset=small_levels",
        ),
    ],
)
def test_a_space_that_the_config_cannot_have_is_refused(config, space, message):
    with pytest.raises(ValueError, match=message) as error:
        search.check(config, space)
    assert len(str(error.value).splitlines()) == 1


def count(config):
    return language_models.parameters(config, 1_000)


@pytest.mark.parametrize(
    "preset", ["small", "small_lstm", "small_levels_mixed_group_convolution"]
)
@pytest.mark.parametrize("parameters", [1_000_000, 5_000_000])
def test_a_model_is_made_as_large(preset, parameters):
    config = search.sized(configs.load("ptb", preset), parameters, count)
    assert abs(count(config) - parameters) < parameters / 100


@pytest.mark.parametrize(
    ("changed", "parameters", "message"),
    [
        (
            {"model.embedding_units": 200},
            100_000,
            "as small as 100,000 parameters.*units=1 ",
        ),
        (
            {"model.layers": 1},
            5_000_000,
            "as large as 5,000,000 parameters.* with 522,",
        ),
    ],
)
def test_a_model_that_cannot_be_made_as_large_is_refused(changed, parameters, message):
    config = search.apply(configs.load("ptb", "small_lstm"), changed)
    with pytest.raises(ValueError, match=f"cannot be made {message}"):
        search.sized(config, parameters, count)
