"""The fields of a config that nothing reads: those of another layer, another head, another task.

A config has all fields of its kind of task, with defaults. A field that nothing reads must have its
default, so that nobody takes what has no effect for what a run was trained with.
"""

from collections.abc import Iterator
from typing import Any

from keras_trellis.core import gates
from trainers.kinds.task import Task
from trainers.models.fields import Condition, Values, class_fields
from trainers.models.group import Model
from trainers.models.heads import HEADS
from trainers.models.layers import LAYERS
from trainers.tasks import registry

_GROUP = "model."
_NAMES = tuple(class_fields(Model))


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


def read(values: Values) -> dict[str, Any]:
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
