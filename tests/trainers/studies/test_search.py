"""Values of search spaces, and the configs that they make."""

import pathlib
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.refusals import refuses
from trainers.data.names import flatten
from trainers.kinds.search import Choice, Integers, Uniform
from trainers.language import models as language_models
from trainers.studies import search
from trainers.tasks import config as configs
from trainers.tasks import registry, schema

ROOT = pathlib.Path(__file__).parents[3]
VECTORS = Choice(({"minval": -0.1, "maxval": 0.1}, {"minval": -1.0, "maxval": 1.0}))


def drawn(space, seed):
    """Returns the fields of values from anywhere in a space."""
    generator = random.Random(seed)
    values = {}
    for name, entry in space.items():
        if isinstance(entry, Choice):
            values[name] = search.format_value(generator.choice(entry.values))
        elif isinstance(entry, Integers):
            values[name] = generator.randint(entry.low, entry.high)
        else:
            values[name] = generator.uniform(entry.low, entry.high)
    return search.config_values(space, values)


def _used(values, applied):
    """Returns drawn values, with as many dilations as there are levels."""
    if "model.dilation_rate" not in values:
        return values
    used = values["model.dilation_rate"][: applied["model.depth"]]
    return {**values, "model.dilation_rate": used}


@pytest.fixture
def config():
    return configs.load("text", "small")


@pytest.mark.parametrize("task", registry.TASKS)
def test_all_that_a_task_searches_is_valid(task):
    config = configs.load(task, "small")
    space = search.space(config)
    search.check(config, space)
    for seed in range(20):
        values = drawn(space, seed)
        applied = flatten(search.apply(config, values).to_dict())
        values = _used(values, applied)
        assert {name: applied[name] for name in values} == values
        others = set(applied) - set(values)
        assert all(applied[name] == flatten(config.to_dict())[name] for name in others)


@pytest.mark.parametrize(
    "file", sorted((ROOT / "docs/studies").glob("*.json")), ids=lambda file: file.stem
)
def test_the_studies_of_the_page_can_be_repeated(file):
    config = configs.read(file)
    schema.check(config)
    search.check(config, search.space(config))
    assert file.stem == f"{config.task}_{config.preset}"


def small_presets():
    presets = (each for task in registry.TASKS for each in configs.presets(task))
    return [each for each in presets if each.preset.startswith("small")]


@pytest.mark.parametrize(
    "config", small_presets(), ids=lambda each: f"{each.task}-{each.preset}"
)
def test_a_config_is_a_point_of_its_space(config):
    """So the first trial has values, as the others have."""
    space = search.space(config)
    values = search.config_values(space, search.own(config, space))
    assert search.apply(config, values).to_dict() == config.to_dict()


SPACE = {
    "rate": Uniform(1e-3, 1e-1, log=True),
    "dropout": Uniform(0.0, 0.5),
    "depth": Integers(1, 4),
    "shape": Choice(((1,), (1, 2), (3,))),
    "vectors": VECTORS,
}


@given(seed=st.integers(0, 2**32), rate=st.floats(1e-3, 1e-1), depth=st.integers(1, 4))
def test_near_values_change_one_to_three_entries(seed, rate, depth):
    values = {"rate": rate, "dropout": 0.0, "depth": depth, "shape": "1,2"}
    values["vectors"] = search.format_value(VECTORS.values[0])
    found = search.near(SPACE, values, [values], random.Random(seed))
    assert list(found) == list(SPACE)
    assert 1 <= sum(found[name] != value for name, value in values.items()) <= 3
    assert 1e-3 <= found["rate"] <= 1e-1 and 0 <= found["dropout"] <= 0.5
    assert found["depth"] in range(1, 5)
    assert set(search.config_values(SPACE, found)["shape"]) <= {1, 2, 3}
    assert found == search.near(SPACE, values, [values], random.Random(seed))


def test_no_values_come_twice():
    space = {"depth": Integers(1, 5), "layers": Choice((1, 2))}
    best, earlier = {"depth": 3, "layers": "1"}, []
    for seed in range(6):
        earlier.append(search.near(space, best, [best, *earlier], random.Random(seed)))
    assert len({tuple(each.values()) for each in earlier}) == 6


def test_a_space_without_other_values_gives_some_again():
    space = {"layers": Choice((1, 2))}
    one, two = {"layers": "1"}, {"layers": "2"}
    assert search.near(space, one, [one, two], random.Random(0)) == two


def test_a_change_of_a_number_is_small():
    """Four in five are less than a quarter of the range away, on its scale."""
    space = {"rate": Uniform(1e-3, 1e-1, log=True)}
    generator = random.Random(0)
    rates = [
        search.near(space, {"rate": 1e-2}, [], generator)["rate"] for _ in range(500)
    ]
    shares = np.abs(np.log(rates) - np.log(1e-2)) / np.log(100)
    assert 0.7 < np.mean(shares < 0.25) < 0.9


def test_a_layer_is_searched_only_for_what_it_has():
    trellis, lstm = (
        search.space(configs.load("ptb", name)) for name in ("small", "small_lstm")
    )
    assert {"model.depth", "model.dilation_rate", "model.weight_dropout"} <= set(
        trellis
    )
    assert "model.layers" not in trellis and "model.layers" in lstm
    assert set(lstm) - {"model.layers"} < set(trellis)


def test_a_group_draws_its_fields_together(config):
    name = "model.embeddings_initializer.config"
    for seed in range(5):
        values = drawn({name: VECTORS}, seed)
        assert values[f"{name}.minval"] == -values[f"{name}.maxval"]


@pytest.mark.parametrize(
    "space, message",
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
            "Received: config.optimizer.learning_rate=0.004 of --preset=small",
        ),
    ],
)
def test_a_space_that_the_config_cannot_have_is_refused(config, space, message):
    with refuses(message) as error:
        search.check(config, space)
    assert len(str(error.value).splitlines()) == 1


def count(config):
    return language_models.parameters(config, 5_000)


@pytest.mark.parametrize(
    "preset", ["small", "small_lstm", "small_mixed_group_convolution"]
)
@pytest.mark.parametrize("parameters", [2_000_000, 5_000_000])
def test_a_model_is_made_as_large(preset, parameters):
    config = search.sized(configs.load("ptb", preset), parameters, count)
    assert abs(count(config) - parameters) < parameters / 100


@pytest.mark.parametrize(
    "changed, parameters, message",
    [
        (
            {"model.embedding_units": 200},
            100_000,
            "as small as 100,000 parameters.*units=1 ",
        ),
        (
            {"model.layers": 1},
            5_000_000,
            "as large as 5,000,000 parameters.* with 1,326,",
        ),
    ],
)
def test_a_model_that_cannot_be_made_as_large_is_refused(changed, parameters, message):
    config = search.apply(configs.load("ptb", "small_lstm"), changed)
    with refuses(f"cannot be made {message}"):
        search.sized(config, parameters, count)


def test_a_model_is_not_made_of_what_its_config_refuses():
    config = configs.load("ptb", "small_stacked_lstm")
    config = search.apply(config, {"model.layer": "transformer"})
    with refuses("as small as 100,000 parameters.*units=4 "):
        search.sized(config, 100_000, count)
