"""What a config may hold: the type and the range of each field, and how fields go together.

One table, whoever gives the values: a preset, the command line, or the `config.json` of a run. What
only the data can tell, such as how many streams a text is long enough for, is checked where the
data is loaded, in the same words.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from trainers.tasks.names import GENERATED, IMAGES, LANGUAGE, TASKS, flatten, unknown

_LARGEST = 2**31 - 1  # TensorFlow's int32
_SHOWN = 80  # characters of a value, in an error


class Field(NamedTuple):
    """What a field may hold.

    Attributes:
        expected: It in words, after "must be".
        allows: Whether a value is such.
        optional: Whether a config may lack the field.
        may_change: Whether a run that goes on may have another value than it began with.
    """

    expected: str
    allows: Callable[[Any], bool]
    optional: bool = False
    may_change: bool = False


def _integer(least: int, most: int = _LARGEST) -> Field:
    end = " and below 2**31" if most == _LARGEST else f" and at most {most}"
    return Field(
        f"an integer of at least {least}{end}",
        lambda value: type(value) is int and least <= value <= most,
    )


def _number(expected: str, within: Callable[[float], bool]) -> Field:
    return Field(expected, lambda value: _is_finite(value) and within(value))


def _is_finite(value: Any) -> bool:
    try:
        return type(value) in (int, float) and math.isfinite(value)
    except OverflowError:  # an int that no float is as large as
        return False


def _one_of(*known: str) -> Field:
    return Field(
        f"one of {known}" if len(known) > 1 else repr(known[0]),
        lambda value: isinstance(value, str) and value in known,
    )


def _integers(expected: str, within: Callable[[Sequence[int]], bool]) -> Field:
    positive = _integer(1)
    return Field(
        expected,
        lambda value: (
            isinstance(value, tuple) and all(map(positive.allows, value)) and within(value)
        ),
    )


def _increases(numbers: Sequence[int]) -> bool:
    return all(after > before for before, after in itertools.pairwise(numbers))


def _or_none(field: Field) -> Field:
    return field._replace(
        expected=f"None or {field.expected}",
        allows=lambda value: value is None or field.allows(value),
    )


def _optional(field: Field) -> Field:
    return field._replace(optional=True)


def _changing(field: Field) -> Field:
    return field._replace(may_change=True)


_TEXT = Field("a string", lambda value: isinstance(value, str))
_SWITCH = Field("True or False", lambda value: isinstance(value, bool))
_COUNT = _integer(1)
_RATE = _number("a number in [0, 1)", lambda value: 0 <= value < 1)
_ABOVE_ZERO = _number("a finite number above 0", lambda value: value > 0)
_FROM_ZERO = _number("a finite number of at least 0", lambda value: value >= 0)
_FINITE = _number("a finite number", lambda value: True)
_CYCLE = _integers(
    "positive integers below 2**31, at least one, as in 1,2,4", lambda value: len(value) > 0
)
_CUTOFFS = _integers(
    "increasing positive integers below 2**31, at least one",
    lambda value: len(value) > 0 and _increases(value),
)
_EPOCHS = _integers("increasing positive integers below 2**31, as in 3,5, or ()", _increases)

# What every task has. Of what a run that goes on may change, none has variables of its own: each is
# read anew at every step or epoch, so that what has happened stays, and what follows is by the new
# value. Other fields make the model, the order of the data or their random numbers; with another of
# those it would be another run.
_COMMON = {
    "task": _TEXT,
    "preset": _TEXT,
    "seed": _integer(0, 2**32 - 1),  # NumPy's generators take no other
    "data.batch_size": _COUNT,
    "optimizer.name": _one_of("sgd", "adam"),
    # A variable of the optimizer, which is set at the step where it changes.
    "optimizer.learning_rate": _changing(_ABOVE_ZERO),
    "optimizer.clip_norm": _changing(_ABOVE_ZERO),  # of the step's gradient alone
    "optimizer.weight_decay": _changing(_FROM_ZERO),  # likewise: it is added to the gradient
    # The schedule has no state: it decides after each epoch, by all the losses so far.
    "schedule.factor": _changing(
        _number("a number between 0 and 1, neither of them", lambda value: 0 < value < 1)
    ),
    "schedule.patience": _changing(_or_none(_COUNT)),
    "schedule.minimum": _changing(_FROM_ZERO),
    "schedule.epochs": _changing(_EPOCHS),
    "schedule.average": _SWITCH,  # the averages are variables of the optimizer
    "training.epochs": _changing(_COUNT),
    "training.log_every_steps": _changing(_COUNT),
    "training.checkpoint_every_steps": _changing(_COUNT),
}
_OF_LANGUAGE = {
    "data.window": _COUNT,
    "data.horizon": _integer(0),
    "data.history": _one_of("zero", "carried"),
    # The streams of the validation loss, which decides on the best epoch.
    "evaluation.batch_size": _COUNT,
    # How the final scores are cut into calls, which changes none.
    "evaluation.exact_batch_size": _changing(_COUNT),
    "evaluation.exact_chunk": _changing(_COUNT),
}
_OF_SEQUENCES = {
    "evaluation.batch_size": _changing(_COUNT),  # sequences a call, which changes no score
}
_OF_TRELLIS = {
    "model.units": _COUNT,
    "model.depth": _COUNT,
    "model.kernel_size": _COUNT,
    "model.dilation_rate": _CYCLE,
    "model.initial_deviation": _FROM_ZERO,
}
_OF_LANGUAGE_MODEL = {
    "model.kind": _one_of("trellis", "lstm"),
    "model.units": _COUNT,
    "model.embedding_units": _COUNT,
    "model.embedding_dropout": _RATE,
    "model.dropout": _RATE,
    "model.recurrent_dropout": _RATE,
    "model.output_dropout": _RATE,
}
_BY_KIND = {
    "lstm": {"model.layers": _COUNT},
    "trellis": {
        **_OF_TRELLIS,
        "model.output_units": _COUNT,
        "model.groups": _optional(_COUNT),
        "model.inject_every": _optional(_COUNT),
        "model.weight_normalization": _SWITCH,
        "model.weight_dropout": _RATE,
        "model.auxiliary_every": _COUNT,
        "model.auxiliary_weight": _FROM_ZERO,
        "model.activation_weight": _FROM_ZERO,
        "model.temporal_weight": _FROM_ZERO,
        "model.untrained_input_id": _optional(_integer(-_LARGEST)),
        "model.embeddings_initializer.class_name": _optional(_one_of("RandomUniform")),
        "model.embeddings_initializer.config.minval": _optional(_FINITE),
        "model.embeddings_initializer.config.maxval": _optional(_FINITE),
    },
}
_BY_HEAD = {
    "mixture": {
        "model.head.experts": _COUNT,
        "model.head.latent_dropout": _RATE,
        "model.head.epsilon": _RATE,
    },
    "adaptive": {"model.head.cutoffs": _CUTOFFS},
}
_OF_CLASSIFIER = {
    **_OF_TRELLIS,
    "model.output_units": _COUNT,
    "model.weight_normalization": _SWITCH,
    "model.dropout": _RATE,
    "model.recurrent_dropout": _RATE,
    "model.weight_dropout": _RATE,
    "model.output_dropout": _RATE,
    "data.validation": _COUNT,
}
_OF_GENERATED = {f"data.{split}": _COUNT for split in ("train", "validation", "test")}
_ORDER = {"corpus.order": _optional(_one_of("appearance", "frequency"))}
_BY_TASK: dict[str, dict[str, Field]] = {
    "ptb_char": {
        "corpus.form": _optional(_one_of("mikolov", "paper", "released")),
        "corpus.unknown": _optional(_SWITCH),
    },
    "wikitext2": _ORDER,
    "wikitext103": _ORDER,
    "copy_memory": {"data.steps": _COUNT},
    "adding": {"data.steps": _integer(2)},  # two are marked
}


def fields(config: Mapping[str, Any]) -> dict[str, Field]:
    """Returns what the fields of a config may hold, by their dotted names.

    Args:
        config: Nested mappings, of which `task`, `model.kind` and `model.head.kind` say which
            fields there are.

    Raises:
        ValueError: One of these three is unknown or missing.
    """
    values = flatten(config)
    task = values.get("task")
    if "task" not in values:
        raise ValueError(f"`config.task` is missing; it must be one of {', '.join(TASKS)}")
    if task not in TASKS:
        raise ValueError(unknown("config.task", task, TASKS))
    table = {**_COMMON, **_BY_TASK.get(task, {})}
    if task in LANGUAGE:
        return {**table, **_OF_LANGUAGE, **_of_language_model(values)}
    table |= _OF_SEQUENCES
    if task in IMAGES:
        return {**table, **_OF_CLASSIFIER}
    return {**table, **_OF_TRELLIS, **_OF_GENERATED}


def _of_language_model(values: Mapping[str, Any]) -> dict[str, Field]:
    kind = {"model.kind": _one_of(*_BY_KIND)}
    _check_fields(values, kind)
    table = {**_OF_LANGUAGE_MODEL, **_BY_KIND[values["model.kind"]]}
    if values["model.kind"] == "trellis" and any(map(_is_of_head, values)):
        kind = {"model.head.kind": _one_of(*_BY_HEAD)}
        _check_fields(values, kind)
        table |= {**kind, **_BY_HEAD[values["model.head.kind"]]}
    return table


def _is_of_head(field: str) -> bool:
    return field.startswith("model.head.")


def may_change(config: Mapping[str, Any]) -> list[str]:
    """Returns the fields, dotted, that may have other values where a run goes on."""
    return [name for name, field in fields(config).items() if field.may_change]


def check(config: Mapping[str, Any]) -> None:
    """Checks all of a config that needs no data.

    Args:
        config: Nested mappings, with tuples where JSON has lists.

    Raises:
        ValueError: As `check_fields`, or fields do not go together. The message has one line.
    """
    check_fields(config)
    values = flatten(config)
    if values["schedule.average"]:
        name = "optimizer.name"
        _require(
            values,
            values[name] == "sgd",
            "schedule.average",
            f"False unless config.{name} is 'sgd'",
            name,
        )
    if values["task"] in LANGUAGE:
        _check_language(values)
    if values["task"] in GENERATED:
        _require(
            values,
            values["data.batch_size"] <= values["data.train"],
            "data.batch_size",
            "at most the number of training sequences",
            "data.train",
        )
    _check_trellis(values)


def check_fields(config: Mapping[str, Any]) -> None:
    """Checks each field of a config for itself, as of one whose sizes are not all known yet.

    Raises:
        ValueError: A field is unknown or missing, or has a value of another type or out of its
            range. The message has one line.
    """
    table, values = fields(config), flatten(config)
    for name in values:
        if name not in table:
            _refuse_other_kind(values, name)
            raise ValueError(unknown("config field", name, table))
    _check_fields(values, table)


def _refuse_other_kind(values: Mapping[str, Any], name: str) -> None:
    """Raises ValueError where a field is one of another kind of model than the config's."""
    for kind, tables in (("model.kind", _BY_KIND), ("model.head.kind", _BY_HEAD)):
        if kind in values and any(name in table for table in tables.values()):
            raise ValueError(
                f"`config.{kind}` must be that of the preset, which has a config.{name}. "
                f"Received: config.{kind}={values[kind]!r}"
            )


def _check_fields(values: Mapping[str, Any], table: Mapping[str, Field]) -> None:
    for name, field in table.items():
        if name not in values:
            if not field.optional:
                raise ValueError(f"`config.{name}` is missing; it must be {field.expected}")
        elif not field.allows(values[name]):
            raise ValueError(_message(values, name, field.expected))


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
    least, most = (f"model.embeddings_initializer.config.{end}" for end in ("minval", "maxval"))
    if least in values and most in values:
        _require(values, values[least] <= values[most], least, f"at most config.{most}", most)


def _check_trellis(values: Mapping[str, Any]) -> None:
    """Checks what `TrellisLayer` and `TrellisLM` ask of their arguments together."""
    units, outputs = values["model.units"], values.get("model.output_units")
    if outputs is not None:
        _require(
            values,
            outputs <= units,
            "model.output_units",
            f"at most config.model.units={units}",
        )
        if "model.embedding_units" in values and values.get("model.head.kind") != "mixture":
            _require(
                values,
                outputs == values["model.embedding_units"],
                "model.output_units",
                "config.model.embedding_units, as outputs and word vectors are multiplied",
                "model.embedding_units",
            )
    _require(
        values,
        units % values.get("model.groups", 1) == 0,
        "model.groups",
        f"a divisor of config.model.units={units}",
    )
    if values.get("model.auxiliary_weight"):
        depth = values["model.depth"]
        _require(
            values,
            values["model.auxiliary_every"] <= depth,
            "model.auxiliary_every",
            f"at most config.model.depth={depth} (or config.model.auxiliary_weight 0)",
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
