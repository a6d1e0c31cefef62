"""A run's configuration: the defaults of the schema, then a preset, then the command line.

A task's presets give the values that differ from the defaults; `trainers.cli.config_flags` applies
`--config.FIELD=VALUE` on top. This module also reads what a workdir keeps of a config.
"""

import re
from collections.abc import Mapping
from typing import Any

from etils import epath
from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from keras_trellis.core import gates
from trainers.data.files import read_json
from trainers.tasks import registry, schema
from trainers.tasks.names import Values, flatten, nested, unknown

_PRESET = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")
RUN = "run"  # the group of a workdir's config.json that says which run it is; no run reads it


def load(task: str, preset: str | None = None) -> ConfigDict:
    """Returns the locked config of a task.

    Args:
        task: The task's name.
        preset: One of the task's presets; None: the first of them.

    Raises:
        ValueError: The task or the preset is unknown; the message has the nearest name.
    """
    presets = registry.get(task, "--task").presets
    preset = first_preset(task) if preset is None else preset
    if preset not in presets:
        raise ValueError(unknown("--preset", preset, presets) + f" (of --task={task})")
    return _locked(completed({"task": task, "preset": preset, **presets[preset]()}))


def first_preset(task: str) -> str:
    """Returns the preset that a task has by default."""
    return next(iter(registry.get(task, "--task").presets))


def read(path: epath.PathLike, base: Values | None = None) -> ConfigDict:
    """Returns the locked config in a JSON file.

    Args:
        path: The file, which may lack values.
        base: The values of what it lacks. Default: the defaults.

    Raises:
        ValueError: The file is no JSON of a config, or one of its values is not valid.
        OSError: It cannot be read.
    """
    values = read_json(path, {"task": str, "preset": str})
    values.pop(RUN, None)
    try:
        if not _PRESET.fullmatch(preset := values["preset"]):
            raise ValueError(
                "`preset` must be a name of letters, digits, `_`, `-` and `.`, since it names a "
                f"folder. Received: preset={preset!r}"
            )
        values = completed(_with_tuples(_merged(base or {}, _of_0_1(values))))
        schema.check_fields(values)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    except RecursionError as error:
        raise ValueError(f"{path}: its values are nested too deeply") from error
    return _locked(values)


def locked(values: Values) -> ConfigDict:
    """Returns the locked config of what `of_a_run` returned.

    Raises:
        ValueError: One of the values is not valid.
    """
    values = completed(_with_tuples(values))
    schema.check_fields(values)
    return _locked(values)


def _locked(values: Mapping[str, Any]) -> ConfigDict:
    """Returns the locked config of nested values."""
    table = schema.fields(values)
    typed = flatten(values)
    for name, value in typed.items():
        if value is None:
            # ConfigDict needs a placeholder to know the type of None.
            typed[name] = placeholder(table[name].kind)
    return ConfigDict(nested(typed)).lock()


def presets(task: str) -> list[ConfigDict]:
    """Returns the configs of all presets of a task."""
    return [load(task, preset) for preset in registry.get(task).presets]


def from_dict(values: Values) -> ConfigDict:
    """Returns the locked config of what a JSON file held; its lists are tuples again.

    Raises:
        ValueError: As `schema.check`.
    """
    values = completed(_with_tuples(values))
    schema.check(values)
    return ConfigDict(values).lock()


def completed(values: Values) -> dict[str, Any]:
    """Returns config values with the defaults of what they lack, in today's form.

    Args:
        values: Nested mappings, of a preset or of the `config.json` of any release. Those of an
            unknown task get no defaults.
    """
    values = _of_0_1(values)
    known = values.get("task") in (*registry.TASKS, *registry.OWN_TASKS)
    return _merged(nested(schema.defaults(values)) if known else {}, values)


def of_a_run(values: Values) -> dict[str, Any]:
    """Returns what a folder keeps of a config, as `completed`, with what the run computed.

    Releases that did not refuse `unit_forget_bias` with a gate without a forget block dropped it.
    """
    values = completed(values)
    model = values.get("model")
    if isinstance(model, Mapping):
        gate = gates.NAMES.get(str(model.get("gate")))
        if gate is not None and gate.forget_block is None:
            values["model"] = {**model, "unit_forget_bias": False}
    return values


def _merged(base: Any, values: Any) -> Any:
    if not isinstance(base, Mapping) or not isinstance(values, Mapping):
        return values
    return {**base, **{name: _merged(base.get(name), values[name]) for name in values}}


def _of_0_1(values: Values) -> dict[str, Any]:
    """Returns config values of release 0.1 in today's form: it had `kind`, and heads as groups."""
    model = values.get("model")
    if not isinstance(model, Mapping):
        return dict(values)
    model = dict(model)
    if "kind" in model:
        model["layer"] = model.pop("kind")
    head = model.get("head")
    if isinstance(head, Mapping) and "kind" in head:
        arguments = dict(head)
        model["head"] = arguments.pop("kind")
        model[str(model["head"])] = arguments
    return {**values, "model": model}


def _with_tuples(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _with_tuples(item) for name, item in value.items()}
    return tuple(value) if isinstance(value, list) else value
