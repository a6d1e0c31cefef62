"""The fields of a config: the type, the range and the default of each.

The dataclasses here define them for presets, for the command line and for the `config.json` of a
run. If a config lacks a field, the default holds, so that a later release reads the runs of an
earlier one. What depends on the data, such as how many streams fit a text, is checked where the
data are loaded.

A config has all fields of its kind of task. One that nothing reads, that of another layer, another
head or another task, must have its default, so that nobody takes what has no effect for what a run
was trained with.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any

from keras_trellis.core import gates
from trainers.data.names import Values, flatten, unknown
from trainers.kinds.task import Task
from trainers.models import blocks, heads, recurrent, trellis
from trainers.models.fields import (
    ABOVE_ZERO,
    COUNT,
    CYCLE,
    DEPTHS,
    EPOCHS,
    FINITE,
    FROM_ZERO,
    RATE,
    SHARE,
    SWITCH,
    TEXT,
    TOKEN,
    UP_TO_ONE,
    Condition,
    Field,
    Required,
    Rule,
    changing,
    class_fields,
    integer,
    one_of,
    or_none,
)
from trainers.models.heads import HEADS
from trainers.models.layers import LAYERS
from trainers.optimizers import OPTIMIZERS
from trainers.tasks import registry

_SHOWN = 80  # characters of a value, in an error


@dataclasses.dataclass(frozen=True, kw_only=True)
class Optimizer:
    """The group `optimizer`."""

    name: Annotated[str, one_of(*OPTIMIZERS)]
    # The optimizer's variable is set at the training step where the value changes.
    learning_rate: Annotated[float, changing(ABOVE_ZERO)]
    clip_norm: Annotated[float, changing(ABOVE_ZERO)]  # of each step's gradient
    # It is added to each step's gradient.
    weight_decay: Annotated[float, changing(FROM_ZERO)] = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Schedule:
    """The group `schedule`. It has no state: after each epoch it decides by all losses.

    Attributes:
        resets: whether the plateau rule counts `patience` epochs anew after each plateau.
        stop_after: the run ends after so many epochs without a better validation loss. The rate
            then follows this group with `training.steps` too: a cosine needs a known end.
        stop_at: the run ends after an epoch in which this share of the validation answers is right,
            1 for all of them. Only algorithms have answers.
    """

    factor: Annotated[float, changing(SHARE)]
    patience: Annotated[int | None, changing(or_none(COUNT))] = None
    resets: Annotated[bool, changing(SWITCH)] = False
    minimum: Annotated[float, changing(FROM_ZERO)] = 0.0
    epochs: Annotated[tuple[int, ...], changing(EPOCHS)]
    # The averages are variables of the optimizer.
    average: Annotated[bool, SWITCH] = False
    average_after: Annotated[int | None, or_none(COUNT)] = None
    stop_after: Annotated[int | None, changing(or_none(COUNT))] = None
    stop_at: Annotated[float | None, or_none(UP_TO_ONE)] = None


@dataclasses.dataclass(frozen=True)
class Training:
    """The group `training`.

    Attributes:
        epochs: passes over the data. With `steps`: equal parts of the run, each with a validation.
        epoch_steps: the least training steps of an epoch, which reads the data several times where
            one pass has fewer: so few series are validated after enough steps. With `steps`
            nothing depends on it.
        steps: the training steps of the run, over which the learning rate falls along a cosine
            unless `schedule.stop_after` may end it before; 0: as many as `epochs` have, with the
            rates of `schedule`.
        jit_compile: whether XLA compiles the loss and its gradient.
        depths: the most levels of a trellis network that train in each of the equal parts of the
            run's `steps`, but for the last part, which trains all; (): all levels always train.
    """

    epochs: Annotated[int, changing(COUNT)]
    log_every_steps: Annotated[int, changing(COUNT)] = 20
    checkpoint_every_steps: Annotated[int, changing(COUNT)] = 200
    steps: Annotated[int, integer(0)] = 0
    epoch_steps: Annotated[int, integer(0)] = 0
    jit_compile: Annotated[bool, SWITCH] = False
    depths: Annotated[tuple[int, ...], DEPTHS] = ()


@dataclasses.dataclass(frozen=True)
class Range:
    """The least and the greatest value of a uniform distribution."""

    minval: Annotated[float, FINITE] = -0.1
    maxval: Annotated[float, FINITE] = 0.1


@dataclasses.dataclass(frozen=True)
class Initializer:
    """Initial word vectors."""

    class_name: Annotated[str, one_of("RandomUniform")] = "RandomUniform"
    config: Range = Range()


@dataclasses.dataclass(frozen=True)
class Stem:
    """Strided causal convolutions before the layer, with as many values in each field; (): none."""

    filters: Annotated[tuple[int, ...], DEPTHS] = ()
    kernel_size: Annotated[tuple[int, ...], DEPTHS] = ()
    strides: Annotated[tuple[int, ...], DEPTHS] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Model(trellis.Fields, recurrent.Fields, blocks.Fields, heads.Fields):
    """The group `model` of every task, with the fields that several kinds of layers have.

    Attributes:
        depth: the number of levels of a trellis network, or of blocks of "tcn".
        layers: the number of recurrent layers, or of blocks of "transformer".
        output_units: None: the size of a word vector, or all units for tasks without words.
        embedding_units: the size of a word vector.
        dtype: Keras's dtype policy of all layers. With "mixed_bfloat16" they compute in bfloat16;
            their variables and the loss are float32.
    """

    units: Annotated[int, COUNT]
    dtype: Annotated[str, one_of("float32", "mixed_bfloat16")] = "float32"
    layer: Annotated[str, one_of(*LAYERS)] = "trellis"
    head: Annotated[str, one_of(*HEADS)] = "tied"
    depth: Annotated[int, COUNT] = 1
    layers: Annotated[int, COUNT] = 1
    kernel_size: Annotated[int, COUNT] = 2
    dilation_rate: Annotated[tuple[int, ...], CYCLE] = (1,)
    output_units: Annotated[int | None, or_none(COUNT)] = None
    embedding_units: Annotated[int | None, or_none(COUNT)] = None
    initial_deviation: Annotated[float, FROM_ZERO] = 0.0
    embedding_dropout: Annotated[float, RATE] = 0.0
    dropout: Annotated[float, RATE] = 0.0
    recurrent_dropout: Annotated[float, RATE] = 0.0
    weight_dropout: Annotated[float, RATE] = 0.0
    output_dropout: Annotated[float, RATE] = 0.0
    activation_weight: Annotated[float, FROM_ZERO] = 0.0
    temporal_weight: Annotated[float, FROM_ZERO] = 0.0
    untrained_input_id: Annotated[int | None, or_none(TOKEN)] = None
    embeddings_initializer: Initializer = Initializer()
    stem: Stem = Stem()


# A run that goes on may change a field that training reads again at each step or epoch: the past
# stays as it is, the rest follows the new value. Other fields determine the model, the order of the
# data or random numbers; changing one would make another run.
_RUN_FIELDS = {
    "task": TEXT,
    "preset": TEXT,
    # NumPy's generators take no other seed. The default is that of all the authors' scripts.
    "seed": integer(0, 2**32 - 1)._replace(default=1111),
    "data.batch_size": COUNT,
    **class_fields(Optimizer, "optimizer."),
    **class_fields(Schedule, "schedule."),
    **class_fields(Training, "training."),
}
_LAYER_FIELDS = {
    **class_fields(Model, "model."),
    # Whether the end of a run scores the test data. A trial leaves them to the run that follows.
    "evaluation.test": changing(SWITCH)._replace(default=True),
}


_GROUP = "model."
_NAMES = tuple(class_fields(Model))


def fields(config: Values) -> dict[str, Field]:
    """Returns the fields of a config by their dotted names.

    Args:
        config: its `task` determines the fields.

    Raises:
        ValueError: the task is unknown or missing.
    """
    # The task comes first: which fields there are depends on it.
    if "task" not in config:
        names = ", ".join(registry.TASKS)
        raise ValueError(f"`config.task` is missing; it must be one of {names}")
    task = registry.get(config["task"], "config.task")
    layer_fields = _LAYER_FIELDS if task.has_layer else {}
    return {**_RUN_FIELDS, **layer_fields, **task.kind_fields, **task.fields}


def defaults(config: Values) -> dict[str, Any]:
    """Returns the default of each field that has one, by its dotted name."""
    table = fields(config)
    return {
        name: field.default
        for name, field in table.items()
        if field.default is not Required
    }


def may_change(config: Values) -> list[str]:
    """Returns the dotted names of the fields that a run may change when it goes on."""
    names = [name for name, field in fields(config).items() if field.may_change]
    if config["training"]["steps"]:
        names.remove("training.epochs")  # other parts would end elsewhere
        names.remove("schedule.stop_after")  # with it the rate falls along no cosine
    return names


def check(config: Values) -> None:
    """Checks everything in a config that does not depend on the data.

    Args:
        config: nested mappings, with tuples where JSON has lists.

    Raises:
        ValueError: as in `check_fields`, or fields contradict each other. The message has one line.
    """
    check_flat(flatten(config))


def check_flat(values: Values) -> None:
    """Checks the values of a config by their dotted names, as `check`."""
    check_fields(values)
    task = registry.get(values["task"])
    rules = itertools.chain(
        _unread_rules(values),
        task.rules(values),
        _length_rules(values),
        _end_rules(values, task),
    )
    if task.has_layer:
        rules = itertools.chain(rules, _model_rules(values))
    _refuse(values, rules)


def check_read(config: Values) -> None:
    """Checks that a config sets nothing that nothing reads, as `check` does among others.

    Raises:
        ValueError: a field that nothing reads has not its default.
    """
    values = flatten(config)
    _refuse(values, _unread_rules(values))


def _refuse(values: Values, rules: Iterable[Rule]) -> None:
    """Raises ValueError for the first field that is wrong."""
    for bad, name, expected, *others in rules:
        if bad:
            raise ValueError(_message(values, name, expected, *others))


def check_fields(values: Values) -> None:
    """Checks each field of a config alone.

    Args:
        values: the values by dotted names.

    Raises:
        ValueError: a field is unknown or missing, or its value has the wrong type or is out of
            range. The message has one line.
    """
    table = fields(values)
    check_values(values, table)
    for name, field in table.items():
        if name not in values:
            raise ValueError(f"`config.{name}` is missing; it must be {field.expected}")


def check_values(values: Values, table: Mapping[str, Field]) -> None:
    """Checks the values of fields by their dotted names.

    Raises:
        ValueError: a field is not in the table, or its value is not allowed.
    """
    for name, value in values.items():
        if name not in table:
            raise ValueError(unknown("config field", name, table))
        if not table[name].allows(value):
            raise ValueError(_message(values, name, table[name].expected))


def without_unread(values: Values) -> dict[str, Any]:
    """Returns the values of a config, where nothing reads them the defaults.

    What is no value of its field stays, for `check` to refuse.
    """
    table = fields(values)
    names = [name for name in unread(values) if table[name].allows(values[name])]
    return {**values, **defaults_of(values, names)}


def defaults_of(values: Values, names: Iterable[str]) -> dict[str, Any]:
    """Returns the defaults of those of a config's fields that have one."""
    table = defaults(values)
    return {name: table[name] for name in names if name in table}


def _unread_rules(values: Values) -> Iterator[Rule]:
    """Yields the fields that nothing reads; the error shows all of them."""
    others = unread(values)
    off = defaults_of(values, others)
    bad = [name for name in off if values[name] != off[name]]
    for name in bad[:1]:
        chooser = others[name]
        choice = f"config.{chooser}={values[chooser]!r}"
        expected = f"{off[name]!r}, for nothing reads it with {choice}"
        yield True, name, expected, chooser, *bad[1:]


def _length_rules(values: Values) -> Iterator[Rule]:
    """Yields what a run of a number of steps refuses."""
    steps = values["training.steps"]
    expected = "0, or at least config.training.epochs, a step for each part of the run"
    too_few = 0 < steps < values["training.epochs"]
    yield too_few, "training.steps", expected, "training.epochs"
    expected = "False with config.training.steps, whose rate falls at no plateau"
    averages = steps and values["schedule.average"]
    yield averages, "schedule.average", expected, "training.steps"
    expected = "() without config.training.steps, which has the parts of the run"
    parts = values["training.depths"] and not steps
    yield parts, "training.depths", expected, "training.steps"


def _end_rules(values: Values, task: Task) -> Iterator[Rule]:
    """Yields what a run refuses that ends by its right answers."""
    goal = values["schedule.stop_at"] is not None
    expected = f"None for --task={task.name}, which has no answers to be right"
    yield goal and not task.has_answers, "schedule.stop_at", expected
    expected = "0 with config.schedule.stop_at: a cosine needs a known end"
    steps = values["training.steps"]
    yield goal and steps, "training.steps", expected, "schedule.stop_at"


def _model_rules(values: Values) -> Iterator[Rule]:
    """Yields what a layer and a head refuse."""
    layer = LAYERS[values["model.layer"]]
    yield from layer.rules(values)
    if layer.gated:
        yield from HEADS[values["model.head"]].rules(values)


def _message(values: Values, name: str, expected: str, *others: str) -> str:
    received = ", ".join(
        f"config.{field}={_shown(values[field])}" for field in (name, *others)
    )
    return f"`config.{name}` must be {expected}. Received: {received}"


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:  # Python prints no int of thousands of digits
        return "a number of thousands of digits"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


# Fields that nothing reads


def unread(values: Values) -> dict[str, str]:
    """Returns the fields that nothing reads, each with the field whose value is why.

    Args:
        values: all of the config, by dotted names.
    """
    task = registry.get(values["task"])
    found = {
        field: chooser
        for field, chooser, allowed in _conditions(task)
        if values[chooser] not in allowed
    }
    if task.has_layer:
        found |= dict.fromkeys(_named(task.unread_fields), "task")
    return found


def left_behind(values: Values, former: Values) -> list[str]:
    """Returns the fields that had a meaning in a former config, and have none in its successor.

    So the settings of a preset's layer go with the layer. A field whose value is new stays.

    Args:
        values: the config.
        former: the values before the change that were read.
    """
    return [
        name
        for name in unread(values)
        if name in former and former[name] == values[name]
    ]


def read_values(values: Values) -> dict[str, Any]:
    """Returns the values of the fields that something reads."""
    others = unread(values)
    return {name: value for name, value in values.items() if name not in others}


def _conditions(task: Task) -> Iterator[Condition]:
    """Yields the conditions on which a task's fields are read."""
    yield from task.conditions
    if not task.has_layer:
        return
    itself = _named(task.model_fields)
    yield from (each for each in _of_layers() if each.field not in itself)
    yield from _of_choices()


def _of_layers() -> Iterator[Condition]:
    """Yields the layers that read a field, for each that not all of them do."""
    every = {field for kind in LAYERS.values() for field in kind.own}
    for field in sorted(every):
        layers = tuple(name for name, kind in LAYERS.items() if field in kind.own)
        for name in _named((field,)):
            yield Condition(name, "model.layer", layers)


def _of_choices() -> Iterator[Condition]:
    """Yields what else is read with one choice alone."""
    for head in HEADS:
        for name in _named((head,)):
            yield Condition(name, "model.head", (head,))
    gated = {name: gate.forget_block for name, gate in gates.NAMES.items()}
    forgetting = tuple(name for name, block in gated.items() if block is not None)
    yield Condition("model.unit_forget_bias", "model.gate", forgetting)
    for field in ("memory_convolution", "channel_normalization", "forget_bias"):
        name = f"model.tensorized.{field}"
        yield Condition(name, "model.tensorized.cell", ("lstm",))


def _named(fields: tuple[str, ...]) -> list[str]:
    """Returns the dotted names of fields of `config.model`, of groups those of all their fields."""
    return [_GROUP + name for name in _NAMES if name.partition(".")[0] in fields]
