"""What a command that trains prints at its end: where the run is, and what to do with it."""

import os
import shlex
import shutil
import sys

import ml_collections
from etils import epath

from trainers.tasks.drawing import DrawingTask
from trainers.tasks.meta import MetaTask
from trainers.tasks.task import ImageTask, LanguageTask, SeriesTask, Task
from trainers.training.workdir import read_result

_Command = tuple[str, list[str]]
"""What a command does, and its module with its arguments."""


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
    commands = [
        (shlex.join([_python(), "-m", *command]), what)
        for what, command in _next(task, path, data_dir)
    ]
    width = max(len(command) for command, _ in commands)
    return [
        f"the run is saved in {path}; next:",
        *(f"  {command:<{width}}  # {what}" for command, what in commands),
    ]


def _next(task: Task, path: epath.Path, data_dir: str | None) -> list[_Command]:
    """Returns commands for what can be done with a run."""
    run, name = f"--workdir={path}", path.name.strip(".") or task.name
    data = [f"--data_dir={data_dir}"] if data_dir else []
    model = f"models/{name}"
    export = ("export for a server", ["trainers.export", run, f"--output={model}"])
    table = f"--output=reports/{name}"
    report = ("a table and curves", ["trainers.report", str(path), table])
    if isinstance(task, LanguageTask):
        write = ("write; --prompt=TEXT begins the text", ["trainers.generate", run])
        show = ("show the export in a browser", ["trainers.demo", f"--model={model}"])
        return [write, export, show]
    if isinstance(task, MetaTask):
        output = f"--output=evaluations/{name}"
        tries = ["trainers.meta_evaluate", str(path), output, *data]
        return [("try the optimizer elsewhere", tries), report]
    if isinstance(task, DrawingTask):
        return [("score again", [*task.evaluation.split(), run, *data]), report]
    score = ("score again", ["trainers.evaluate", run, *data])
    if isinstance(task, SeriesTask):
        output = f"--output={name}.csv"
        predict = [task.program, "--mode=predict", run, output, *data]
        return [score, ("the answers as a table", predict), export, report]
    if isinstance(task, ImageTask):
        return [score, export, report]
    return [score, report]


def _python() -> str:
    """Returns how a shell in this folder calls the Python that runs."""
    if shutil.which("python") == sys.executable:
        return "python"
    near = os.path.relpath(sys.executable)
    return sys.executable if near.startswith(os.pardir) else near
