"""The values of `--task` and `--preset`: in the help, in errors, and as a list."""

import sys
from collections.abc import Iterable, Sequence

from absl import flags

from trainers.cli import config_flags
from trainers.data.names import nearest, unknown
from trainers.tasks import config as configs
from trainers.tasks import registry

LIST = "list"  # the value of `--preset` that prints the presets of a task
_HELP = ("help", "helpshort", "helpfull", "h", "?")


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
    task = config_flags.last_value(argv, "task")
    if task is not None:
        _check_known(task, tasks)
    if config_flags.last_value(argv, "preset") == LIST:
        print("\n".join(_lines(require(task, tasks))), flush=True)
        sys.exit(0)
    if task is not None and any(each.lstrip("-") in _HELP for each in argv[1:]):
        flag_values["preset"].help = "\n".join([f"That of {task}:", *_lines(task)])


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


def _lines(task: str) -> list[str]:
    (first, line), *others = configs.described(task).items()
    lines = [f"{name}: {line}" for name, line in others]
    return [f"{first} (the default): {line}", *lines]
