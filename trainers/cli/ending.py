"""What a command that trains prints at its end: where the run is, and what to do with it."""

import os
import shlex
import shutil
import sys

import ml_collections
from etils import epath

from trainers.kinds.task import Task
from trainers.training.workdir import read_result


def model(config: ml_collections.ConfigDict, path: epath.Path) -> list[str]:
    """Returns the line of a finished run that says which model it has trained.

    Results of early versions do not say how large it is.
    """
    size = (read_result(path) or {}).get("parameters")
    if not isinstance(size, int):
        return []
    return [f"{config.task}, preset {config.preset}: {size:,} parameters"]


def lines(task: Task, path: epath.Path, data_dir: str | None) -> list[str]:
    """Returns the last lines of a finished run.

    Args:
        task: its task.
        path: its folder.
        data_dir: the folder of its data files; None if it was given none.
    """
    places = {
        "path": path,
        "name": path.name.strip(".") or task.name,
        "workdir": f"--workdir={path}",
        "data": f"--data_dir={data_dir}" if data_dir else "",
    }
    commands = []
    for what, command in task.next_commands:
        words = [word.format(**places) for word in command.split()]
        line = shlex.join([_python(), "-m", *filter(None, words)])
        commands.append((line, what))
    width = max(len(command) for command, _ in commands)
    return [
        f"the run is saved in {path}; next:",
        *(f"  {command:<{width}}  # {what}" for command, what in commands),
    ]


def _python() -> str:
    """Returns how a shell in this folder calls the Python that runs."""
    if shutil.which("python") == sys.executable:
        return "python"
    near = os.path.relpath(sys.executable)
    return sys.executable if near.startswith(os.pardir) else near
