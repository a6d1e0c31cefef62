"""What a config may hold: the type, the range and the default of each field.

The dataclasses here are the one definition, whoever gives the values: a preset, the command line,
or the `config.json` of a run. A default is what a config means that lacks the field, so that a
later release reads the runs of an earlier one. What only the data can tell, such as how many
streams a text is long enough for, is checked where the data are loaded, in the same words.
"""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any

from keras_trellis.core import gates
from trainers.tasks import registry
from trainers.tasks.fields import (
    ABOVE_ZERO,
    COUNT,
    CUTOFFS,
    CYCLE,
    EPOCHS,
    FINITE,
    FROM_ZERO,
    RATE,
    SHARE,
    SWITCH,
    TEXT,
    TOKEN,
    Field,
    Required,
    changing,
    integer,
    of_class,
    one_of,
    or_none,
)
from trainers.tasks.heads import HEADS
from trainers.tasks.layers import LAYERS, OF_LEVELS
from trainers.tasks.names import flatten, unknown
from trainers.tasks.task import GeneratedTask, ImageTask, LanguageTask, Task

_SHOWN = 80  # characters of a value, in an error


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
class Equilibrium:
    """What the layer "equilibrium" has for itself."""

    tolerance: Annotated[float, ABOVE_ZERO] = 1e-4
    max_iterations: Annotated[int, COUNT] = 100


@dataclasses.dataclass(frozen=True)
class Mixture:
    """What the head "mixture" has for itself."""

    experts: Annotated[int, COUNT] = 15
    latent_dropout: Annotated[float, RATE] = 0.0
    epsilon: Annotated[float, RATE] = 0.0


@dataclasses.dataclass(frozen=True)
class Adaptive:
    """What the head "adaptive" has for itself."""

    cutoffs: Annotated[tuple[int, ...], CUTOFFS] = (2_000,)


@dataclasses.dataclass(frozen=True)
class Model:
    """The group `model`, the same for every task; what a layer or a head does not have, it ignores.

    Attributes:
        layers: How many layers "lstm" or "gru" has.
        output_units: None: as many as a word vector has, or all units where there are no words.
        embedding_units: The size of a word vector.
    """

    units: Annotated[int, COUNT]
    layer: Annotated[str, one_of(*LAYERS)] = "trellis"
    gate: Annotated[str, one_of(*gates.NAMES)] = "lstm"
    head: Annotated[str, one_of(*HEADS)] = "tied"
    depth: Annotated[int, COUNT] = 1
    layers: Annotated[int, COUNT] = 1
    kernel_size: Annotated[int, COUNT] = 2
    dilation_rate: Annotated[tuple[int, ...], CYCLE] = (1,)
    groups: Annotated[int, COUNT] = 1
    inject_every: Annotated[int, COUNT] = 1
    output_units: Annotated[int | None, or_none(COUNT)] = None
    embedding_units: Annotated[int | None, or_none(COUNT)] = None
    weight_normalization: Annotated[bool, SWITCH] = False
    initial_deviation: Annotated[float, FROM_ZERO] = 0.0
    embedding_dropout: Annotated[float, RATE] = 0.0
    dropout: Annotated[float, RATE] = 0.0
    recurrent_dropout: Annotated[float, RATE] = 0.0
    weight_dropout: Annotated[float, RATE] = 0.0
    output_dropout: Annotated[float, RATE] = 0.0
    auxiliary_every: Annotated[int, COUNT] = 1
    auxiliary_weight: Annotated[float, FROM_ZERO] = 0.0
    activation_weight: Annotated[float, FROM_ZERO] = 0.0
    temporal_weight: Annotated[float, FROM_ZERO] = 0.0
    untrained_input_id: Annotated[int | None, or_none(TOKEN)] = None
    embeddings_initializer: Initializer = Initializer()
    equilibrium: Equilibrium = Equilibrium()
    mixture: Mixture = Mixture()
    adaptive: Adaptive = Adaptive()


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """The group `optimizer`."""

    name: Annotated[str, one_of("sgd", "adam")]
    # A variable of the optimizer, which is set at the step where it changes.
    learning_rate: Annotated[float, changing(ABOVE_ZERO)]
    clip_norm: Annotated[float, changing(ABOVE_ZERO)]  # of the step's gradient alone
    weight_decay: Annotated[float, changing(FROM_ZERO)]  # likewise: it is added to the gradient


@dataclasses.dataclass(frozen=True)
class Schedule:
    """The group `schedule`; it has no state, but decides after each epoch by all the losses."""

    factor: Annotated[float, changing(SHARE)]
    patience: Annotated[int | None, changing(or_none(COUNT))]
    minimum: Annotated[float, changing(FROM_ZERO)]
    epochs: Annotated[tuple[int, ...], changing(EPOCHS)]
    average: Annotated[bool, SWITCH]  # the averages are variables of the optimizer


@dataclasses.dataclass(frozen=True)
class Training:
    """The group `training`."""

    epochs: Annotated[int, changing(COUNT)]
    log_every_steps: Annotated[int, changing(COUNT)]
    checkpoint_every_steps: Annotated[int, changing(COUNT)]


# What a run that goes on may change has no variables of its own: it is read anew at every step or
# epoch, so that what has happened stays, and what follows is by the new value. Other fields make
# the model, the order of the data or their random numbers; with another of those it would be
# another run.
_COMMON = {
    "task": TEXT,
    "preset": TEXT,
    "seed": integer(0, 2**32 - 1),  # NumPy's generators take no other
    "data.batch_size": COUNT,
    **of_class(Model, "model."),
    **of_class(Optimizer, "optimizer."),
    **of_class(Schedule, "schedule."),
    **of_class(Training, "training."),
}
_BY_KIND: dict[type[Task], dict[str, Field]] = {
    LanguageTask: {
        "data.window": COUNT,
        "data.horizon": integer(0),
        "data.history": one_of("zero", "carried"),
        # The streams of the validation loss, which decides on the best epoch.
        "evaluation.batch_size": COUNT,
        # How the final scores are cut into calls, which changes none.
        "evaluation.exact_batch_size": changing(COUNT),
        "evaluation.exact_chunk": changing(COUNT),
    },
    ImageTask: {
        "data.validation": COUNT,
        "evaluation.batch_size": changing(COUNT),  # sequences a call, which changes no score
    },
    GeneratedTask: {
        **{f"data.{split}": COUNT for split in ("train", "validation", "test")},
        "evaluation.batch_size": changing(COUNT),
    },
}


def fields(config: Mapping[str, Any]) -> dict[str, Field]:
    """Returns what the fields of a config may hold, by their dotted names.

    Args:
        config: Nested mappings; its `task` says which fields there are.

    Raises:
        ValueError: The task is unknown or missing.
    """
    if "task" not in config:
        names = ", ".join(registry.TASKS)
        raise ValueError(f"`config.task` is missing; it must be one of {names}")
    task = registry.get(config["task"], "config.task")
    return {**_COMMON, **_BY_KIND[type(task)], **task.fields}


def defaults(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the default of each field that has one, by its dotted name."""
    table = fields(config)
    return {name: each.default for name, each in table.items() if each.default is not Required}


def may_change(config: Mapping[str, Any]) -> list[str]:
    """Returns the fields, dotted, that may have other values when a run goes on."""
    return [name for name, field in fields(config).items() if field.may_change]


def check(config: Mapping[str, Any]) -> None:
    """Checks all of a config that needs no data.

    Args:
        config: Nested mappings, with tuples where JSON has lists.

    Raises:
        ValueError: As `check_fields`, or fields do not go together. The message has one line.
    """
    check_fields(config)
    values, task = flatten(config), registry.get(config["task"])
    if values["schedule.average"]:
        _require(
            values,
            values["optimizer.name"] == "sgd",
            "schedule.average",
            "False unless config.optimizer.name is 'sgd'",
            "optimizer.name",
        )
    if isinstance(task, LanguageTask):
        _check_language(values)
    else:
        _require(
            values,
            values["model.head"] == "tied",
            "model.head",
            f"'tied' for --task={task.name}: the other heads tell words",
        )
    if isinstance(task, GeneratedTask):
        _require(
            values,
            values["data.batch_size"] <= values["data.train"],
            "data.batch_size",
            "at most the number of training sequences",
            "data.train",
        )
    _check_layer(values)


def check_fields(config: Mapping[str, Any]) -> None:
    """Checks each field of a config for itself, whether or not they go together.

    Raises:
        ValueError: A field is unknown or missing, or has a value of another type or out of its
            range. The message has one line.
    """
    table, values = fields(config), flatten(config)
    _check_known(values, table)
    for name, field in table.items():
        if name not in values:
            raise ValueError(f"`config.{name}` is missing; it must be {field.expected}")
    check_values(values, table)


def check_values(values: Mapping[str, Any], table: Mapping[str, Field]) -> None:
    """Checks the values of fields by their dotted names.

    Raises:
        ValueError: One is not in the table, or not what it may be.
    """
    _check_known(values, table)
    for name, value in values.items():
        if not table[name].allows(value):
            raise ValueError(_message(values, name, table[name].expected))


def _check_known(values: Mapping[str, Any], table: Mapping[str, Field]) -> None:
    for name in values:
        if name not in table:
            raise ValueError(unknown("config field", name, table))


def _check_language(values: Mapping[str, Any]) -> None:
    window = values["data.window"]
    _require(
        values,
        values["data.horizon"] < window,
        "data.horizon",
        f"below config.data.window={window}, so that a window has something to score",
    )
    _require(
        values,
        values["data.history"] == "zero" or values["data.horizon"] == 0,
        "data.horizon",
        "0 with config.data.history='carried': windows that overlap have no state to go on from",
    )
    _require(
        values,
        values["model.embedding_units"] is not None,
        "model.embedding_units",
        COUNT.expected,
    )
    least, most = (f"model.embeddings_initializer.config.{end}" for end in ("minval", "maxval"))
    _require(values, values[least] <= values[most], least, f"at most config.{most}", most)


def _check_layer(values: Mapping[str, Any]) -> None:
    """Checks what a layer asks of its arguments together."""
    layer, units = values["model.layer"], values["model.units"]
    if values["model.auxiliary_weight"]:
        _require(
            values,
            layer in OF_LEVELS,
            "model.auxiliary_weight",
            f"0 with config.model.layer={layer!r}, which has no levels",
            "model.layer",
        )
        _require(
            values,
            values["model.auxiliary_every"] <= values["model.depth"],
            "model.auxiliary_every",
            f"at most config.model.depth={values['model.depth']} "
            "(or config.model.auxiliary_weight 0)",
        )
    if not LAYERS[layer].gated:
        _require(
            values,
            values["model.gate"] == "lstm",
            "model.gate",
            f"'lstm', its default, with config.model.layer={layer!r}, which has a gate of its own",
            "model.layer",
        )
        return
    _require(
        values,
        units % values["model.groups"] == 0,
        "model.groups",
        f"a divisor of config.model.units={units}",
    )
    _check_output_units(values)


def _check_output_units(values: Mapping[str, Any]) -> None:
    units, outputs = values["model.units"], values["model.output_units"]
    words = values["model.embedding_units"]
    if outputs is None:
        outputs = words or units
    _require(
        values,
        outputs <= units,
        "model.output_units",
        f"at most config.model.units={units}",
    )
    _require(
        values,
        words in (None, outputs) or values["model.head"] == "mixture",
        "model.output_units",
        "config.model.embedding_units, as outputs and word vectors are multiplied",
        "model.embedding_units",
    )


def _require(
    values: Mapping[str, Any], holds: bool, name: str, expected: str, *others: str
) -> None:
    if not holds:
        raise ValueError(_message(values, name, expected, *others))


def _message(values: Mapping[str, Any], name: str, expected: str, *others: str) -> str:
    received = ", ".join(f"config.{each}={_shown(values[each])}" for each in (name, *others))
    return f"`config.{name}` must be {expected}. Received: {received}"


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:  # Python prints no int of thousands of digits
        return "a number of thousands of digits"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
