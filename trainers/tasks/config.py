"""A run's configuration: the defaults of the schema, then a preset, then the command line.

A task's presets give the values that differ from the defaults; `trainers.cli.config_flags` applies
`--config.FIELD=VALUE` on top. This module also reads what a workdir keeps of a config.

Presets, files and `ConfigDict` nest a config in groups. In between its values go by dotted names:
`flatten` is the way in, and `locked` and `from_flat` nest once at the end.
"""

import functools
import re
import warnings
from collections.abc import Callable
from typing import Any

from etils import epath
from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from trainers.data.files import read_json
from trainers.data.names import Values, flatten, nested, unknown
from trainers.models.layers import LAYERS
from trainers.tasks import registry, schema

_PRESET = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")
_RUN = "run"  # the group that a workdir's config.json has beside these, and no config


def load(task: str, preset: str | None = None) -> ConfigDict:
    """Returns the locked config of a task.

    Args:
        task: the task's name.
        preset: one of the task's presets, or the former name of one, which the config keeps; None:
            the first of them.

    Raises:
        ValueError: the task or the preset is unknown; the message has the nearest name.
    """
    preset = first_preset(task) if preset is None else preset
    todays = renamed(task, preset) or preset
    presets = registry.get(task, "--task").presets
    if todays not in presets:
        raise ValueError(unknown("--preset", preset, presets) + f" (of --task={task})")
    values = {"task": task, "preset": preset, **presets[todays]()}
    return locked(completed(flatten(values)))


check, may_change = schema.check, schema.may_change


def network(config: ConfigDict) -> str:
    """Returns in words the network that a config trains."""
    return registry.get(config.task).network(config)


def renamed(task: str, preset: str) -> str | None:
    """Returns today's name of a preset that is given by its former one, else None."""
    return registry.get(task, "--task").former_presets.get(preset)


def first_preset(task: str) -> str:
    """Returns the preset that a task has by default."""
    return next(iter(registry.get(task, "--task").presets))


def read(path: epath.PathLike, base: Values | None = None) -> ConfigDict:
    """Returns the locked config in a JSON file.

    Args:
        path: the file, which may lack values.
        base: the values of what it lacks, by dotted names. Default: the defaults.

    Raises:
        ValueError: the file is no JSON of a config, or one of its values is not valid.
        OSError: it cannot be read.
    """
    values = read_json(path, {"task": str, "preset": str})
    values.pop(_RUN, None)
    try:
        if not _PRESET.fullmatch(preset := values["preset"]):
            raise ValueError(
                "`preset` must be a name of letters, digits, `_`, `-` and `.`, since it names a "
                f"folder. Received: preset={preset!r}"
            )
        values = completed({**(base or {}), **_upgrade_0_1(flatten(values))})
        return locked(values)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def locked(values: Values) -> ConfigDict:
    """Returns the locked config of what `completed` or `upgrade` returned.

    Raises:
        ValueError: one of the values is not valid.
    """
    schema.check_fields(values)
    table = schema.fields(values)
    # ConfigDict needs a placeholder to know the type of None.
    typed = {
        name: placeholder(table[name].kind) if value is None else value
        for name, value in values.items()
    }
    return ConfigDict(nested(typed)).lock()


def presets(task: str) -> list[ConfigDict]:
    """Returns the configs of all presets of a task."""
    return [load(task, preset) for preset in registry.get(task).presets]


def from_dict(values: Values) -> ConfigDict:
    """Returns the locked config of what a run's `config.json` holds, by `upgrade`.

    Raises:
        ValueError: as `schema.check`.
    """
    return from_flat(upgrade(flatten(values)))


def from_flat(values: Values) -> ConfigDict:
    """Returns the locked config of values by their dotted names, after `schema.check`."""
    values = completed(values)
    schema.check_flat(values)
    return ConfigDict(nested(values)).lock()


def completed(values: Values) -> dict[str, Any]:
    """Returns config values with the defaults of what they lack, in today's form.

    Args:
        values: the values by dotted names, of a preset or of any release's `config.json`. Those
            of an unknown task get no defaults.
    """
    values = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in _upgrade_0_1(values).items()
    }
    return {**(schema.defaults(values) if _is_known(values) else {}), **values}


def upgrade(values: Values) -> dict[str, Any]:
    """Returns what a folder keeps of a config, as `completed`, with what the run computed.

    Earlier releases took values that nothing reads, which become the defaults, and used of the
    dilations as many as there are levels.
    """
    values = completed(values)
    used = with_used_dilations(values)
    if used != values:
        warnings.warn(
            f"of config.model.dilation_rate={values['model.dilation_rate']} the "
            f"{values['model.depth']} levels use {used['model.dilation_rate']} alone; a new run "
            "refuses the rest",
            stacklevel=1,  # from one place, so that a command says it once
        )
    whole = _is_known(used) and schema.fields(used).keys() <= used.keys()
    return schema.without_unread(used) if whole else used


def _is_known(values: Values) -> bool:
    return values.get("task") in registry.EVERY


def with_used_dilations(values: Values) -> dict[str, Any]:
    """Returns config values without the dilations that no level of their layer uses."""
    layer = LAYERS.get(str(values.get("model.layer")))
    if layer is None or not {"depth", "dilation_rate"} <= {*layer.own}:
        return dict(values)
    cycle, depth = values.get("model.dilation_rate"), values.get("model.depth")
    # What is no tuple, or no number of levels, is refused later.
    if not isinstance(cycle, tuple) or not isinstance(depth, int) or depth < 1:
        return dict(values)
    return {**values, "model.dilation_rate": cycle[:depth]}


def _upgrade_0_1(values: Values) -> dict[str, Any]:
    """Returns config values of release 0.1 in today's form: it had `kind`, and heads as groups."""
    head, group = values.get("model.head.kind"), "model.head."
    renamed = {"model.kind": "model.layer", "model.head.kind": "model.head"}
    if head is not None:
        own = {name for name in values if name.startswith(group)} - {*renamed}
        renamed |= {name: name.replace(group, f"model.{head}.") for name in own}
    return {renamed.get(name, name): value for name, value in values.items()}


def described(task: str) -> dict[str, str]:
    """Returns a line on each preset of a task: what it is, and the network that it trains.

    Raises:
        ValueError: the task is unknown.
    """
    found = registry.get(task, "--task")
    lines = {}
    for name, preset in found.presets.items():
        network = f"[{found.network(load(task, name))}]"
        lines[name] = " ".join(filter(None, [_sentence(preset), network]))
    return lines


def _sentence(preset: Callable) -> str:
    """Returns the first sentence of a preset's docstring; that of a changed one has the changes."""
    if not isinstance(preset, functools.partial):
        return _first(preset.__doc__)
    if preset.func.__doc__:
        return _first(preset.func.__doc__)
    bases = [_sentence(each) for each in preset.args if callable(each)]
    changes = [flatten(each) for each in preset.args if isinstance(each, dict)]
    fields = [f"{name}={value}" for change in changes for name, value in change.items()]
    return " ".join([*bases, f"Here {', '.join(fields)}." if fields else ""]).strip()


def _first(docstring: str | None) -> str:
    """Returns the first sentence of a docstring in one line."""
    paragraph = " ".join((docstring or "").partition("\n\n")[0].split())
    sentence, point, _ = paragraph.partition(". ")
    return sentence + point.strip()
