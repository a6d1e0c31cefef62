"""The flags `--config.FIELD=VALUE`: defined for a task and a preset, parsed, and checked.

Here are also the values of `--task` and `--preset`: in the help, in errors, and as a list.
"""

import re
import sys
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

import ml_collections
from absl import flags
from etils import epath
from ml_collections import config_flags

from trainers.data.files import exists
from trainers.data.names import Values, flatten, nearest, nested, unknown
from trainers.data.stores import to_path
from trainers.tasks import config as configs
from trainers.tasks import registry, schema
from trainers.training import workdir

LIST = "list"  # the value of `--preset` that prints the presets of a task
_HELP = ("help", "helpshort", "helpfull", "h", "?")
_OVERRIDE = re.compile(r"--?(?:no)?config\.([^=]*)")


class _TupleParser(flags.ArgumentParser):
    """Reads `1,2,4`, with or without parentheses; the schema refuses what is no integer."""

    def parse(self, argument: Any) -> Any:
        """Returns a tuple; a tuple stays as it is."""
        if not isinstance(argument, str):
            return argument
        items = argument.strip().removeprefix("(").removesuffix(")").split(",")
        if not items[-1].strip():  # `1,` and ``
            items.pop()
        return tuple(map(_as_integer, items))

    def flag_type(self) -> str:
        """Returns the name of the type in `--help`."""
        return "integers, as in 1,2,4"


def _as_integer(item: str) -> int | str:
    try:
        return int(item)
    except ValueError:
        return item


class _NumberOrNoneParser(flags.ArgumentParser):
    """Reads a number, or `None`, which the schema refuses where a field needs a number."""

    def __init__(self, number: flags.ArgumentParser) -> None:
        self._number = number

    def parse(self, argument: Any) -> Any:
        """Returns the number or None."""
        return None if argument == "None" else self._number.parse(argument)

    def flag_type(self) -> str:
        """Returns the name of the type in `--help`."""
        return self._number.flag_type()


for _kind, _number in ((int, flags.IntegerParser()), (float, flags.FloatParser())):
    config_flags.register_flag_parser(parser=_NumberOrNoneParser(_number))(_kind)

# The parser of ml_collections joins the values of a repeated flag. Here the last value counts, as
# for other flags.
config_flags.register_flag_parser(parser=_TupleParser())(tuple)


class _Named(NamedTuple):
    """The config that a command line names, without its changes.

    Attributes:
        config: the config.
        former: the values that may stay behind when a change leaves nothing that reads them.
    """

    config: ml_collections.ConfigDict
    former: Values


def _check_fields(fields: Iterable[str], known: Iterable[str]) -> None:
    for field in fields:
        if field in ("task", "preset"):
            raise ValueError(
                f"--config.{field} would change the name alone, and none of its values; "
                f"use --{field}=..."
            )
        if field not in known:
            raise ValueError(unknown("--config field", field, known))


def _named(argv: Sequence[str], flag_values: flags.FlagValues) -> _Named | None:
    """Returns the config that a command line names."""
    task, preset = (last_value(argv, name) for name in ("task", "preset"))
    file = last_value(argv, "config_file") if "config_file" in flag_values else None
    trains = "workdir" in flag_values and last_value(argv, "mode") in (None, "train")
    if file:
        return _from_file(argv, file, trains)
    if task is None:
        return None
    if not trains:
        return _new(configs.load(task, preset), overridden(argv))
    if saved := _run_config(argv, task, preset or configs.first_preset(task)):
        return saved
    say_renamed(task, preset)
    return _new(configs.load(task, preset), overridden(argv))


def say_renamed(task: str, preset: str | None) -> None:
    """Prints today's name of a preset that is given by its former one."""
    if preset is not None and (todays := configs.renamed(task, preset)):
        print(
            f"--preset={preset} of --task={task} is called {todays} now; the former name works for "
            "one release more",
            file=sys.stderr,
            flush=True,
        )


def _new(config: ml_collections.ConfigDict, given: Collection[str]) -> _Named:
    """Returns the config of a new run: what its own layer reads goes with the layer."""
    read = schema.read_values(flatten(config))
    return _Named(config, {name: read[name] for name in read if name not in given})


def _from_file(argv: Sequence[str], file: str, trains: bool) -> _Named:
    """Returns the config of `--config_file`, with the values of the run it goes on with."""
    task, preset = (last_value(argv, name) for name in ("task", "preset"))
    config = configs.read(file)
    if preset is not None:
        raise ValueError(
            f"--preset={preset} has no use with --config_file, which has all values"
        )
    if task not in (None, config.task):
        raise ValueError(f"--task={task} is not that of {file}, {config.task}")
    if trains and (saved := _run_config(argv, config.task, config.preset)):
        return saved._replace(config=configs.read(file, flatten(saved.config)))
    return _new(config, overridden(argv))


def _run_config(argv: Sequence[str], task: str, preset: str) -> _Named | None:
    """Returns the config of the run that a command goes on with, or None if it begins one.

    A preset may have changed since the run began, and what the user gave to an earlier command
    holds for the run. Earlier releases took values that nothing reads; given again, they still go.
    """
    given = last_value(argv, "workdir")
    path = to_path(given) if given else default_path(task, preset)
    if not exists(path / workdir.CONFIG):
        return None
    saved = workdir.read_config(path)
    if (saved.get("task"), saved.get("preset")) != (task, preset):
        return None
    try:
        values = flatten(saved)
        return _Named(
            configs.locked(configs.upgrade(values)), configs.completed(values)
        )
    except ValueError as error:
        raise ValueError(f"{path / workdir.CONFIG}: {error}") from error


def default_path(task: str, preset: str) -> epath.Path:
    """Returns the folder of a run for which --workdir names none."""
    return epath.Path("runs") / f"{task}-{preset}"


def parse(
    argv: Sequence[str], flag_values: flags.FlagValues = flags.FLAGS
) -> list[str]:
    """Parses a command line with its config flags; returns the arguments, as absl does.

    It defines `--config.FIELD` flags for the task and preset, or the file, that `argv` names; none
    without `--task` or `--config_file`, since there is no config. `schema.check` later checks
    whether the values go together.

    Raises:
        ValueError: the task, the preset or a field is unknown; the message has the nearest name.
            Or the file is no config; or a value has the wrong type or is out of its range: the
            message names the field, the value and what was expected.
        OSError: the file cannot be read.
        flags.Error: any other mistake in the flags.
    """
    fields = overridden(argv)
    named = _named(argv, flag_values)
    if named is not None:
        _check_fields(fields, flatten(named.config))
        config_flags.DEFINE_config_dict(
            "config", named.config, "", flag_values=flag_values, sys_argv=list(argv)
        )
    elif fields:
        raise ValueError(
            f"--config.{fields[0]} was given without --task, whose field it is"
        )
    try:
        rest = flag_values(argv)
    except flags.IllegalFlagValueError as error:
        match = re.match(r"flag --config\.([^=]+)=(.*?): ", str(error), re.DOTALL)
        if not match:
            raise
        raise ValueError(_wrong_type(flag_values, match[1], match[2])) from error
    if named is not None:
        config: Any = flag_values["config"].value
        values = flatten(config)
        schema.check_fields(values)
        behind = schema.left_behind(values, named.former)
        config.update(nested(schema.defaults_of(values, behind)))
        _check_schedule(config, fields)
        flag_values["task"].value = config.task  # that of the file, if there is one
    return rest


def _check_schedule(config: Any, given: Sequence[str]) -> None:
    """Raises ValueError if a field of the schedule is given to a run that reads none."""
    # Averages begin after an epoch, which is a part of such a run too.
    useless = [
        field
        for field in given
        if field.startswith("schedule.") and field != "schedule.average_after"
    ]
    stops = config.schedule.stop_after is not None
    if useless and (steps := config.training.steps) and not stops:
        raise ValueError(
            f"--config.{useless[0]} has no use with config.training.steps={steps}, over which the "
            "rate falls along a cosine; --config.training.steps=0 trains with the schedule"
        )


def overridden(argv: Sequence[str]) -> list[str]:
    """Returns the fields that a command line overrides, such as "model.units"."""
    return [match[1] for match in map(_OVERRIDE.match, argv) if match]


def last_value(argv: Sequence[str], name: str) -> str | None:
    """Returns the value of the last `--name=value` or `--name value`, as absl would."""
    value = None
    for position, argument in enumerate(argv):
        if argument == "--":
            break
        match = re.fullmatch(rf"--?{name}(?:=(.*))?", argument, re.DOTALL)
        if match:
            value = match[1] if match[1] is not None else (*argv, None)[position + 1]
    return value


def _wrong_type(flag_values: flags.FlagValues, field: str, value: str) -> str:
    config: Any = flag_values["config"].value
    *groups, name = field.split(".")
    for group in groups:
        config = config[group]
    expected = config.get_type(name).__name__
    return (
        f"`config.{field}` must be of type {expected}. Received: config.{field}={value}"
    )


def offer(
    argv: Sequence[str],
    tasks: Sequence[str] = (),
    flag_values: flags.FlagValues = flags.FLAGS,
) -> None:
    """Has `--help` name the tasks of a command and the presets of the task; or lists these.

    Args:
        argv: the command line. With `--preset=list` the process ends here.
        tasks: the tasks that the command takes; (): all of them.
        flag_values: the command's flags.

    Raises:
        ValueError: the task is unknown, or missing where its presets are to be listed.
    """
    tasks = tasks or list(registry.TASKS)
    flag_values["task"].help = f"The task: one of {', '.join(tasks)}."
    task = last_value(argv, "task")
    if task is not None:
        _check_known(task, tasks)
    if last_value(argv, "preset") == LIST:
        print("\n".join(_preset_lines(require(task, tasks))), flush=True)
        sys.exit(0)
    if task is not None and any(each.lstrip("-") in _HELP for each in argv[1:]):
        flag_values["preset"].help = "\n".join(
            [f"That of {task}:", *_preset_lines(task)]
        )


def require(task: str | None, tasks: Iterable[str]) -> str:
    """Returns the value of `--task`.

    Raises:
        ValueError: it is missing; the message has the tasks of the command.
    """
    if not task:
        raise ValueError(f"--task is missing; expected one of {', '.join(tasks)}")
    return task


def _check_known(task: str, tasks: Sequence[str]) -> None:
    """Raises ValueError for an unknown task; a command itself refuses those of others."""
    if task not in registry.EVERY:
        known = registry.EVERY if nearest(task, registry.EVERY) else tasks
        raise ValueError(unknown("--task", task, known))


def _preset_lines(task: str) -> list[str]:
    (first, line), *others = configs.described(task).items()
    lines = [f"{name}: {line}" for name, line in others]
    return [f"{first} (the default): {line}", *lines]
