"""What a config may hold: each field of each preset, and what is refused."""

import dataclasses
import functools

import hypothesis
import pytest
from hypothesis import strategies as st
from ml_collections import ConfigDict

from keras_trellis.core import gates
from trainers.data.names import flatten
from trainers.language.tasks.task import LanguageTask
from trainers.models import layers
from trainers.models.layers import TRELLIS
from trainers.tasks import config as configs
from trainers.tasks import registry, schema


def presets():
    """Every preset of every task."""
    for task in registry.TASKS:
        for preset in registry.get(task).presets:
            yield task, preset


PRESETS = list(presets())

# What no field takes, whatever its type.
OTHERS = st.sampled_from(
    [b"1", [1], (1.5,), ("1",), 1j, "", "nan", "1\n2", float("nan")]
)
NO_NUMBER = st.none() | st.booleans() | OTHERS
NO_INTEGER = NO_NUMBER | st.floats()
HUGE = st.integers(min_value=2**31)
INFINITE = st.sampled_from([float("inf"), -float("inf"), 10**400, -(10**400)])
NO_COUNT = st.integers(max_value=0) | HUGE | NO_INTEGER
NO_COUNT_NOR_NONE = (
    st.integers(max_value=0) | HUGE | st.floats() | st.booleans() | OTHERS
)
BELOW_ZERO = st.floats(max_value=0, exclude_max=True) | st.integers(max_value=-1)
NOT_FROM_ZERO = BELOW_ZERO | INFINITE | NO_NUMBER
NOT_ABOVE_ZERO = st.sampled_from([0, 0.0, -0.0]) | NOT_FROM_ZERO
NO_RATE = st.floats(min_value=1) | st.integers(min_value=1) | NOT_FROM_ZERO
NO_RATE_NOR_NONE = (
    st.floats(min_value=1)
    | st.integers(min_value=1)
    | BELOW_ZERO
    | st.booleans()
    | OTHERS
)
NO_SWITCH = st.none() | st.integers() | st.floats() | OTHERS
NO_TEXT = st.none() | st.integers() | st.floats() | st.booleans() | st.just((1,))
BAD_NUMBERS = (
    st.lists(st.integers(), min_size=1).filter(lambda each: min(each) < 1).map(tuple)
)
NO_CYCLE = st.just(()) | BAD_NUMBERS | st.tuples(HUGE) | st.integers() | NO_NUMBER
FALLING = st.sampled_from([(1, 1), (3, 2), (1, 5, 4)])
NO_NAME = NO_TEXT | st.sampled_from(["", "none", "Adam", "sgd ", "adam\n"])

NO_SIZES = (
    BAD_NUMBERS | st.tuples(HUGE) | st.tuples(st.just(0)) | st.integers() | NO_NUMBER
)

# Fields that take the same.
NAMES = """
    task corpus.form corpus.order data.history data.lengths data.tokens model.layer
    model.gate model.head model.dtype model.variant model.auxiliary_from
    model.embeddings_initializer.class_name model.tensorized.cell data.answer data.split
    optimizer.name
""".split()
TEXTS = """
    preset data.normal data.channels data.id data.time data.label data.split_column
""".split()
SWITCHES = """
    corpus.unknown evaluation.test model.inject_groups model.weight_normalization
    model.unit_forget_bias model.tensorized.memory_convolution
    model.tensorized.channel_normalization schedule.average schedule.resets
    training.jit_compile
""".split()
COUNTS = """
    data.batch_size data.window data.steps data.train data.test evaluation.batch_size
    evaluation.exact_batch_size evaluation.exact_chunk model.units model.depth
    model.layers model.kernel_size model.groups model.inject_every model.auxiliary_every
    model.equilibrium.max_iterations model.tensorized.size model.transformer.heads
    model.transformer.context model.mixture.experts data.ahead training.epochs
    training.log_every_steps training.checkpoint_every_steps
""".split()
COUNTS_OR_NONE = """
    model.output_units model.embedding_units data.hop schedule.patience
    schedule.average_after schedule.stop_after
""".split()
FROM_ZERO = """
    model.initial_deviation model.auxiliary_weight model.activation_weight
    model.temporal_weight optimizer.weight_decay schedule.minimum
""".split()
RATES = """
    model.embedding_dropout model.dropout model.recurrent_dropout model.weight_dropout
    model.output_dropout model.mixture.latent_dropout model.mixture.epsilon
    data.crop data.tolerance training.label_smoothing
""".split()
SIZES = """
    model.stem.filters model.stem.kernel_size model.stem.strides training.depths
""".split()
# For each field what it does not take.
BAD = {
    **dict.fromkeys(NAMES, NO_NAME),
    **dict.fromkeys(TEXTS, NO_TEXT),
    **dict.fromkeys(SWITCHES, NO_SWITCH),
    **dict.fromkeys(COUNTS, NO_COUNT),
    **dict.fromkeys(COUNTS_OR_NONE, NO_COUNT_NOR_NONE),
    **dict.fromkeys(FROM_ZERO, NOT_FROM_ZERO),
    **dict.fromkeys(RATES, NO_RATE),
    **dict.fromkeys(SIZES, NO_SIZES),
    "seed": st.integers(max_value=-1) | st.integers(min_value=2**32) | NO_INTEGER,
    "data.vocabulary_size": st.integers(max_value=255) | NO_COUNT_NOR_NONE,
    "data.digits": st.integers(min_value=19) | NO_COUNT,
    "data.symbols": st.integers(min_value=41) | NO_COUNT,
    "data.kinds": st.integers(max_value=1) | st.integers(min_value=258) | NO_INTEGER,
    "model.layer_dropout": NO_RATE_NOR_NONE,
    "model.dilation_rate": NO_CYCLE,
    "model.untrained_input_id": HUGE
    | st.integers(max_value=-(2**31))
    | st.booleans()
    | st.floats()
    | OTHERS,
    "model.tensorized.rank": st.integers(max_value=1)
    | st.integers(min_value=5)
    | NO_INTEGER,
    "model.tensorized.kernel_size": st.integers(max_value=1) | HUGE | NO_INTEGER,
    "model.adaptive.cutoffs": FALLING | NO_CYCLE,
    "data.fold": st.integers(max_value=-1) | st.integers(min_value=5) | OTHERS,
    "schedule.epochs": FALLING
    | BAD_NUMBERS
    | st.tuples(HUGE)
    | st.integers()
    | NO_NUMBER,
    "schedule.stop_at": st.sampled_from([0, -0.5, 1.5, True, "1", float("nan")]),
    "data.horizon": st.integers(max_value=-1) | HUGE | NO_INTEGER,
    "data.validation": st.integers(max_value=-1) | HUGE | NO_INTEGER,
    "training.epoch_steps": st.integers(max_value=-1) | HUGE | NO_INTEGER,
    "training.steps": st.integers(max_value=-1) | HUGE | NO_INTEGER,
    "model.embeddings_initializer.config.minval": INFINITE | NO_NUMBER,
    "model.embeddings_initializer.config.maxval": INFINITE | NO_NUMBER,
    "model.tensorized.forget_bias": INFINITE | NO_NUMBER,
    "model.equilibrium.tolerance": NOT_ABOVE_ZERO,
    "optimizer.learning_rate": NOT_ABOVE_ZERO,
    "optimizer.clip_norm": NOT_ABOVE_ZERO,
    "data.validation_share": st.just(0) | NO_RATE,
    "data.test_share": st.just(0) | NO_RATE,
    "schedule.factor": st.just(0) | NO_RATE,
}


def values_of(preset, fields):
    """A preset's values, some of them changed, which may be of any type."""
    values = configs.load(*preset).to_dict()
    for name, value in fields.items():
        *groups, leaf = name.split(".")
        group = values
        for each in groups:
            if not isinstance(group.get(each), dict):
                group[each] = {}
            group = group[each]
        group[leaf] = value
    return values


@functools.cache
def field_names(preset):
    return set(flatten(configs.load(*preset)))


def preset_with(field):
    return next(preset for preset in PRESETS if field in field_names(preset))


@pytest.mark.parametrize("task", registry.TASKS)
def test_each_preset_passes_and_each_of_its_fields_has_an_entry(task):
    for preset in (preset for each, preset in PRESETS if each == task):
        config = configs.load(task, preset)
        schema.check(config)
        table = schema.fields(config)
        assert set(flatten(config)) == set(table)
        assert set(flatten(config)) <= set(BAD)


def test_what_the_table_has_is_in_some_preset():
    known = {name for each in PRESETS for name in flatten(configs.load(*each))}
    table = {name for each in PRESETS for name in schema.fields(configs.load(*each))}
    assert known == table == set(BAD)


@hypothesis.settings(max_examples=400, deadline=None)
@hypothesis.given(field=st.sampled_from(sorted(BAD)), data=st.data())
def test_a_value_out_of_its_range_is_refused_with_its_field(field, data):
    value = data.draw(BAD[field])
    values = values_of(preset_with(field), {field: value})
    with pytest.raises(ValueError) as error:
        schema.check(values)
    message = str(error.value)
    if field == "task":
        assert message.startswith("unknown config.task ")
    else:
        assert message.startswith(f"`config.{field}` must be ")
        assert f"Received: config.{field}=" in message
    assert len(message.splitlines()) == 1 and len(message) < 400


def test_the_ends_of_the_ranges_are_in_them():
    schema.check(
        values_of(
            ("ptb", "small"),
            {
                "seed": 2**32 - 1,
                "model.dropout": 0,
                "model.initial_deviation": 0,
                "optimizer.weight_decay": 0,
                "schedule.patience": None,
                "schedule.epochs": (),
                "training.epochs": 2**31 - 1,
                "training.steps": 0,
                "training.depths": (),
                "data.window": 1,
                "model.auxiliary_weight": 1,
            },
        )
    )
    schema.check(
        values_of(("adding", "small"), {"data.steps": 2, "data.batch_size": 50_000})
    )


@pytest.mark.parametrize(
    "preset, changed, message",
    [
        (
            ("seq_mnist", "small"),
            {"data.validation": 0, "schedule.patience": 2},
            "`config.schedule.patience` must be None with config.data.validation=0, which leaves",
        ),
        (
            ("seq_mnist", "small"),
            {"data.validation": 0, "evaluation.test": False},
            "`config.evaluation.test` must be True with config.data.validation=0: there would be",
        ),
        (
            ("ptb", "small"),
            {"training.steps": 9},
            "`config.training.steps` must be 0, or at least config.training.epochs.*"
            "config.training.steps=9, config.training.epochs=12",
        ),
        (
            ("ptb", "small"),
            {"training.jit_compile": True, "data.lengths": "drawn"},
            "`config.training.jit_compile` must be False with config.data.lengths='drawn'",
        ),
        (
            ("ptb", "small_lstm"),
            {"training.depths": (2,), "training.steps": 100},
            r"`config.training.depths` must be \(\) with config.model.layer='lstm'",
        ),
        (
            ("ptb", "small"),
            {
                "training.depths": (6, 2),
                "training.steps": 100,
                "model.auxiliary_weight": 0.1,
            },
            "`config.training.depths` must be at least config.model.auxiliary_every=6 each",
        ),
        (
            ("ptb", "small"),
            {
                "training.depths": (6, 8),
                "training.steps": 100,
                "model.auxiliary_weight": 0.1,
                "model.auxiliary_from": "top",
            },
            "`config.training.depths` must be above config.model.auxiliary_every=6 each",
        ),
        (
            ("ptb", "paper"),
            {"model.auxiliary_every": 55},
            "every` must be below config.model.depth=55 .*every=55, .*auxiliary_from='top'",
        ),
        (
            ("mnist", "small"),
            {"training.depths": (2,), "training.steps": 10**6},
            r"`config.training.depths` must be \(\) for --task=mnist, which trains no trellis",
        ),
        (
            ("quadratic", "small"),
            {"training.jit_compile": True},
            "`config.training.jit_compile` must be False for --task=quadratic",
        ),
        (
            ("ptb", "paper"),
            {"training.steps": 1000, "schedule.average": True},
            "`config.schedule.average` must be False with config.training.steps",
        ),
        (
            ("wikitext103", "small"),
            {"model.embedding_units": 100},
            "`config.model.output_units` must be config.model.embedding_units",
        ),
        (
            ("seq_mnist", "small"),
            {
                "model.layer": "tcn",
                "model.depth": 4,
                "model.weight_dropout": 0.0,
                "model.weight_normalization": False,
            },
            "`config.model.dilation_rate` must be at most config.model.depth=4 dilations",
        ),
        (
            ("ptb_char", "small"),
            {"model.embeddings_initializer.config.minval": 1.5},
            "config.minval` must be at most .*maxval.*minval=1.5, .*maxval=1.0",
        ),
        (
            ("seq_mnist", "small"),
            {"model.output_units": 97},
            "`config.model.output_units` must be at most config.model.units=96",
        ),
        (
            ("copy_memory", "small"),
            {"data.train": 31},
            "`config.data.batch_size` must be at most .*batch_size=32, config.data.train=31",
        ),
        (
            ("addition", "small_tensorized"),
            {"model.tensorized.cell": "rnn"},
            "channel_normalization` must be False, for nothing reads it .*tensorized.cell='rnn'",
        ),
        (
            ("seq_mnist", "small"),
            {"model.head": "adaptive"},
            "must be 'tied', for nothing reads it with config.task='seq_mnist'",
        ),
        (
            ("ptb", "small"),
            {"model.embedding_units": None},
            "`config.model.embedding_units` must be an integer of at least 1.*=None",
        ),
        (
            ("ptb", "small"),
            {"model.head.kind": "mixture"},
            "unknown config field",
        ),
        (("ptb", "small"), {"task": 3}, "unknown config.task '3'"),
    ],
)
def test_fields_that_do_not_go_together_are_refused(preset, changed, message):
    with pytest.raises(ValueError, match=message) as error:
        schema.check(values_of(preset, changed))
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize("layer", TRELLIS)
@pytest.mark.parametrize("gate", gates.NAMES)
def test_a_forget_bias_is_refused_where_the_layer_refuses_it(layer, gate):
    changed = {
        "model.layer": layer,
        "model.gate": gate,
        "model.unit_forget_bias": True,
        "model.depth": 1,
        "model.auxiliary_every": 1,
        "training.depths": (),
    }
    values = values_of(("text", "small"), changed)
    if gates.NAMES[gate].forget_block is None:
        for refuses in (schema.check, built):
            with pytest.raises(ValueError, match=f"forget_bias.*gate='{gate}'"):
                refuses(values)
    else:
        schema.check(values)
        assert built(values).unit_forget_bias


def built(values):
    return layers.build(ConfigDict(values).model, 200, seed=1)


def test_a_class_of_tasks_that_derives_from_another_has_its_fields(monkeypatch):
    class Mine(LanguageTask):
        pass

    text = registry.TASKS["text"]
    mine = Mine(
        **{each.name: getattr(text, each.name) for each in dataclasses.fields(text)}
    )
    monkeypatch.setitem(registry.TASKS, "text", mine)
    schema.check(values_of(("text", "small"), {}))


def test_a_loss_that_is_off_may_be_of_any_level():
    schema.check(values_of(("ptb", "small"), {"model.auxiliary_every": 99}))


def test_what_a_run_that_goes_on_may_change():
    allowed = set(schema.may_change(configs.load("ptb", "small")))
    assert {
        "optimizer.learning_rate",
        "optimizer.clip_norm",
        "schedule.patience",
    } <= allowed
    assert "evaluation.batch_size" not in allowed  # the streams of the validation loss
    assert "evaluation.batch_size" in schema.may_change(
        configs.load("seq_mnist", "small")
    )
    fixed = {"seed", "task", "preset", "optimizer.name", "schedule.average"}
    for name in allowed:
        assert name not in fixed and name.split(".")[0] not in (
            "model",
            "data",
            "corpus",
        )


def test_the_parts_of_a_run_of_steps_stay():
    config = configs.load("text", "small")
    assert "training.epochs" in schema.may_change(config)
    config.training.steps = 100
    assert "training.epochs" not in schema.may_change(config)
