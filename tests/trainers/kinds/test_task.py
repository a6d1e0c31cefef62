"""What a task says of the network that a config trains."""

import re

import pytest

from trainers.models.layers import LAYERS
from trainers.studies import search
from trainers.tasks import config as configs
from trainers.tasks import registry

SIZES = {f"model.{name}": 8 for name in ("units", "embedding_units", "output_units")}


def network(task, preset, **changes):
    config = configs.load(task, preset)
    values = {f"model.{name}": value for name, value in changes.items()}
    return registry.get(task).network(search.apply(config, values))


@pytest.mark.parametrize(
    "task, preset, changes, words",
    [
        ("ptb", "paper", {}, "trellis network: 55 levels of 1400 units"),
        (
            "ptb",
            "paper",
            {"groups": 2, "gate": "gru"},
            "trellis network: 55 levels of 1400 units, gate gru, 2 groups",
        ),
        ("ptb", "small_lstm", {}, "LSTM: 2 layers of 283 and 200 units"),
        ("ptb", "lstm", {}, "WeightDropLSTM: 3 layers of 1150, 1150 and 400 units"),
        (
            "ptb",
            "small_skip_lstm",
            {},
            "LSTM: 2 layers of 240 and 200 units, each of which reads the input",
        ),
        (
            "ptb",
            "gru_reset_before",
            {},
            "GRU, reset_after=False: 2 layers of 650 units",
        ),
        (
            "ptb",
            "small_trellis_lstm",
            {"layer": "equilibrium", "groups": 2, "inject_groups": True},
            "2 stacked LSTMs that both read the input (equilibrium, groups=2): 256 units in all",
        ),
        (
            "adding",
            "small",
            {"layer": "equilibrium"},
            "equilibrium trellis network: 24 units, groups=1",
        ),
        ("adding", "small", {"layer": "tcn"}, "TCN: 5 blocks of 24 units"),
        (
            "addition",
            "small_tensorized",
            {},
            "TensorizedLSTM: 1 layer of 40 units at each of 4 places",
        ),
        ("addition", "small_grid_lstm", {}, "Grid LSTM: 4 blocks of 35 units"),
    ],
)
def test_the_network_is_named_with_its_sizes(task, preset, changes, words):
    assert network(task, preset, **changes) == words


@pytest.mark.parametrize(
    "task, words",
    [
        ("mnist", "DRAW: 10 steps, LSTM decoder of 128 units"),
        ("quadratic", "learned optimizer, LSTM: 2 layers of 20 units"),
    ],
)
def test_the_networks_of_tasks_of_their_own_are_named(task, words):
    config = configs.load(task, "small")
    assert registry.get(task).network(config) == words


@pytest.mark.parametrize("layer", LAYERS)
def test_each_layer_is_named_and_no_two_alike(layer):
    def named(name):
        config = search.apply(
            configs.load("ptb", "small_gru"), SIZES | {"model.layer": name}
        )
        return registry.get("ptb").network(config)

    words = named(layer)
    assert re.fullmatch(r"[^:]+: .*\b8 units.*", words), words
    assert [name for name in LAYERS if named(name) == words] == [layer]


def test_the_words_do_not_depend_on_the_preset_s_name():
    config = search.apply(configs.load("ptb", "paper"), {"model.layer": "lstm"})
    assert registry.get("ptb").network(config) == "LSTM: 1 layer of 400 units"
