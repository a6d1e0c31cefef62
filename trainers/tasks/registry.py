"""The tasks by name. A new one joins by its module's import and its value in `_TASKS`."""

from typing import Any, TypeVar

from trainers.data.pieces import USUAL
from trainers.tasks.algorithms import ADDITION, MEMORIZATION
from trainers.tasks.drawing import CIFAR10, MNIST, SVHN
from trainers.tasks.enwik8 import ENWIK8
from trainers.tasks.images import PERMUTED_MNIST, SEQ_CIFAR10, SEQ_MNIST
from trainers.tasks.long_memory import ADDING, COPY_MEMORY
from trainers.tasks.meta import CIFAR10_CNN, CIFAR10_RESNET, MNIST_MLP, QUADRATIC
from trainers.tasks.names import nearest, unknown
from trainers.tasks.ptb import PTB, PTB_MOS
from trainers.tasks.ptb_char import PTB_CHAR
from trainers.tasks.pydoc import PYDOC
from trainers.tasks.series import ANOMALY, CSV, CSV_NUMBERS, FORECAST, WATCH
from trainers.tasks.task import LanguageTask, OwnTask, Task
from trainers.tasks.text import TEXT
from trainers.tasks.wikitext import WIKITEXT2, WIKITEXT103

_Kind = TypeVar("_Kind", bound=Task)

_TASKS: tuple[Task, ...] = (
    PTB,
    PTB_MOS,
    PTB_CHAR,
    ENWIK8,
    WIKITEXT2,
    WIKITEXT103,
    PYDOC,
    TEXT,
    SEQ_MNIST,
    PERMUTED_MNIST,
    SEQ_CIFAR10,
    COPY_MEMORY,
    ADDING,
    ADDITION,
    MEMORIZATION,
    WATCH,
    ANOMALY,
    FORECAST,
    CSV,
    CSV_NUMBERS,
)
TASKS = {task.name: task for task in _TASKS}
_OWN_TASKS: tuple[OwnTask, ...] = (
    MNIST,
    SVHN,
    CIFAR10,
    QUADRATIC,
    MNIST_MLP,
    CIFAR10_CNN,
    CIFAR10_RESNET,
)
OWN_TASKS = {task.name: task for task in _OWN_TASKS}
"""Those of commands of their own; all other commands know `TASKS` alone."""


def get(name: str, what: str = "task") -> Task:
    """Returns a task.

    Args:
        name: its name.
        what: the name of the argument, for errors.

    Raises:
        ValueError: there is no such task; the message has the nearest name.
    """
    every: dict[str, Task] = {**TASKS, **OWN_TASKS}
    if not isinstance(name, str) or name not in every:
        own = nearest(str(name), every) in OWN_TASKS
        raise ValueError(unknown(what, name, OWN_TASKS if own else TASKS))
    return every[name]


def language(name: str) -> LanguageTask:
    """Returns a task of language; raises ValueError if it is another."""
    tasks = by_kind(LanguageTask)
    if name not in tasks:
        raise ValueError(unknown("task", name, tasks))
    return tasks[name]


def configured(config: Any) -> LanguageTask:
    """Returns the task of language of a run's config, with the tokens that it names."""
    task, data = language(config["task"]), config["data"]
    if data.get("tokens") != "pieces":
        return task
    return task.with_pieces(data["vocabulary_size"] or USUAL)


def by_kind(kind: type[_Kind]) -> dict[str, _Kind]:
    """Returns the tasks of a class by name."""
    return {name: task for name, task in TASKS.items() if isinstance(task, kind)}


def trained_by(program: str) -> list[str]:
    """Returns the names of the tasks that a command trains."""
    every: dict[str, Task] = {**TASKS, **OWN_TASKS}
    return [name for name, task in every.items() if task.program == program]
