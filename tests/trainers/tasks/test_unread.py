"""What nothing reads is refused by name; what is not refused is read."""

import json
import types

import numpy as np
import pytest

from tests.refusals import refuses
from tests.trainers.calls import config_of
from trainers.data.names import flatten, nested
from trainers.language import models as language_models
from trainers.models.fields import class_fields
from trainers.models.heads import HEADS
from trainers.models.layers import LAYERS
from trainers.sequences import models as sequence_models
from trainers.studies import search
from trainers.tasks import config as configs
from trainers.tasks import registry, schema
from trainers.time_series import models as series_models
from trainers.training import workdir

FIELDS = tuple(f"model.{name}" for name in class_fields(schema.Model))
# A preset of each kind of task, and small sizes that each layer can have.
PRESETS = {
    "language": ("ptb", "small_gru"),
    "images": ("seq_mnist", "small"),
    "drawn": ("adding", "small"),
    "series": ("watch", "small"),
}
SIZES = {f"model.{name}": 4 for name in ("units", "embedding_units", "output_units")}
# What a model hands on, and a layer without it leaves.
HANDED_ON = {"dropout", "initial_deviation"} | {
    f"auxiliary_{name}" for name in ("every", "from", "weight")
}
ONLY = "model.embeddings_initializer.class_name"  # has one value
# Values that are no default, where none follows from the default.
OTHERS = {
    "gate": "gru",
    "head": "mixture",
    "variant": "released",
    "auxiliary_from": "top",
    "cell": "rnn",
    "layer_dropout": 0.3,
    "untrained_input_id": 3,
    "rank": 3,
}


class Recorded:
    """A group of a config that notes which of its fields are read."""

    def __init__(self, values, seen, prefix=""):
        self._values, self._seen, self._prefix = values, seen, prefix

    def __getitem__(self, name):
        value, path = self._values[name], f"{self._prefix}{name}"
        if isinstance(value, dict):
            return Recorded(value, self._seen, f"{path}.")
        self._seen.add(path)
        return value

    __getattr__ = __getitem__

    def keys(self):
        return self._values.keys()

    def to_dict(self):
        fields = {name: self[name] for name in self.keys()}
        return {
            name: value.to_dict() if isinstance(value, Recorded) else value
            for name, value in fields.items()
        }


def built(kind, config):
    """Builds the model of a kind of task; the data are as small as can be."""
    inputs = types.SimpleNamespace(inputs=np.zeros((1, 4, 3)), targets=np.zeros(1))
    if kind == "language":
        return language_models.build(config, 12)
    if kind == "images":
        return sequence_models.classifier(config, (4, 3), 2)
    if kind == "drawn":
        data = types.SimpleNamespace(train=inputs, classes=(), outputs=1, answer=None)
        return sequence_models.build(config, data)
    facts = types.SimpleNamespace(
        every_step=True,
        deviation=np.ones(3),
        mean=np.zeros(3),
        channels="abc",
        outputs=1,
        offset=(),
    )
    return series_models.build(config, facts)


def values_with(kind, **changes):
    """Returns the values of a kind's preset, with another layer or head."""
    config = configs.load(*PRESETS[kind])
    changes = {f"model.{name}": value for name, value in changes.items()}
    return flatten(search.apply(config, SIZES | changes))


@pytest.mark.parametrize("kind", PRESETS)
@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_s_fields_are_those_that_building_it_reads(layer, kind):
    values = values_with(kind, layer=layer)
    seen = set()
    built(kind, Recorded(nested(values), seen))
    found = set(schema.unread(values)) & set(FIELDS)
    choices = {"model.layer", "model.head", "model.units", "model.dtype"}
    assert set(FIELDS) - found <= seen | choices
    assert found & seen <= {f"model.{name}" for name in HANDED_ON}


@pytest.mark.parametrize("head", HEADS)
def test_a_head_s_fields_are_those_that_building_it_reads(head):
    values = values_with("language", head=head)
    seen = set()
    HEADS[head].build(Recorded(nested(values), seen).model, 0)
    found = set(schema.unread(values))
    groups = {name for name in FIELDS if name.split(".")[1] in HEADS}
    assert groups - found == seen & groups


@pytest.mark.parametrize("kind", PRESETS)
@pytest.mark.parametrize("layer", LAYERS)
def test_what_nothing_reads_is_refused_by_name(layer, kind):
    values = values_with(kind, layer=layer)
    schema.check_flat(values)
    off = schema.defaults_of(values, schema.unread(values))
    off.pop(ONLY, None)
    assert off
    for name, default in off.items():
        with refuses("for nothing reads it with") as error:
            schema.check_flat({**values, name: other(name, default)})
        assert str(error.value).startswith(f"`config.{name}` must be {default!r}")


def other(name, default):
    """Returns a value of a field that is not its default."""
    leaf = name.split(".")[-1]
    if leaf in OTHERS:
        return OTHERS[leaf]
    if isinstance(default, bool):
        return not default
    if isinstance(default, tuple):
        return (1, 2)
    return default + (1 if isinstance(default, int) else 0.5)


LSTM = ("--task=ptb", "--preset=small_lstm")
DROPPED = "--config.model.weight_dropout=0.9"


def test_a_field_that_is_given_and_not_read_is_refused(tmp_path):
    config = config_of(*LSTM, DROPPED, f"--workdir={tmp_path}")
    with refuses(r"weight_dropout` must be 0.0.*layer='lstm'"):
        schema.check(config)


@pytest.mark.parametrize("task", registry.EVERY)
def test_no_preset_has_what_nothing_reads(task):
    for config in configs.presets(task):
        schema.check_read(config)


def test_the_settings_of_a_preset_s_layer_go_with_the_layer(tmp_path):
    layer = ("--task=ptb", "--preset=paper", "--config.model.layer=gru")
    config = config_of(*layer, f"--workdir={tmp_path}")
    schema.check(config)
    assert (config.model.depth, config.model.auxiliary_weight) == (1, 0.0)
    assert config.model.dropout == configs.load("ptb", "paper").model.dropout
    given = config_of(*layer, "--config.model.depth=55", f"--workdir={tmp_path}")
    with refuses("config.model.depth` must be 1"):
        schema.check(given)


def begun(path):
    """Begins a run of an earlier release, whose config has a value that nothing reads."""
    values = flatten(configs.load("ptb", "small_lstm")) | {"model.weight_dropout": 0.9}
    with workdir.open_workdir(path, nested(values)):
        return nested(values)


@pytest.mark.parametrize("again", [(), (DROPPED,)])
def test_a_run_of_an_earlier_release_goes_on(tmp_path, again):
    begun(tmp_path)
    config = config_of(*LSTM, *again, f"--workdir={tmp_path}")
    schema.check(config)
    assert config.model.weight_dropout == 0.0
    workdir.refuse_other_run(
        tmp_path, config.to_dict(), schema.may_change(config), configs.upgrade
    )
    other_rate = config_of(
        *LSTM, "--config.model.weight_dropout=0.3", f"--workdir={tmp_path}"
    )
    with refuses("weight_dropout` must be 0.0"):
        schema.check(other_rate)


def test_a_file_is_refused_for_a_new_run_and_taken_for_its_own(tmp_path):
    file, path = tmp_path / "config.json", tmp_path / "run"
    file.write_text(json.dumps(begun(path)))
    schema.check(config_of(f"--config_file={file}", f"--workdir={path}"))
    new = config_of(f"--config_file={file}", f"--workdir={tmp_path / 'new'}")
    with refuses("weight_dropout` must be 0.0"):
        schema.check(new)
    loaded = configs.from_dict(begun(tmp_path / "other"))
    assert loaded.model.weight_dropout == 0.0
