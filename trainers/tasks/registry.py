"""The tasks by name. A new one joins by its module's import and its value in `_TASKS`."""

from collections import ChainMap
from collections.abc import Mapping
from typing import Any

from trainers.data.names import Values, nearest, unknown
from trainers.drawing.tasks import CIFAR10, MNIST, SVHN
from trainers.images.tasks import PERMUTED_MNIST, SEQ_CIFAR10, SEQ_MNIST
from trainers.kinds.task import OwnTask, Task
from trainers.language.tasks.enwik8 import ENWIK8
from trainers.language.tasks.ptb import PTB, PTB_MOS
from trainers.language.tasks.ptb_char import PTB_CHAR
from trainers.language.tasks.pydoc import PYDOC
from trainers.language.tasks.text import TEXT
from trainers.language.tasks.wikitext import WIKITEXT2, WIKITEXT103
from trainers.learned_optimizers.tasks import (
    CIFAR10_CNN,
    CIFAR10_RESNET,
    MNIST_MLP,
    QUADRATIC,
)
from trainers.synthetic.tasks import ADDING, ADDITION, COPY_MEMORY, MEMORIZATION
from trainers.tagging.tasks import TAGGING
from trainers.time_series.tasks import ANOMALY, CSV, CSV_NUMBERS, FORECAST, WATCH

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
    TAGGING,
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
EVERY: Mapping[str, Task] = ChainMap({**OWN_TASKS}, TASKS)


def get(name: str, what: str = "task") -> Task:
    """Returns a task.

    Args:
        name: its name.
        what: the name of the argument, for errors.

    Raises:
        ValueError: there is no such task; the message has the nearest name.
    """
    if not isinstance(name, str) or name not in EVERY:
        own = nearest(str(name), EVERY) in OWN_TASKS
        raise ValueError(unknown(what, name, OWN_TASKS if own else TASKS))
    return EVERY[name]


def configured(config: Values) -> Any:
    """Returns the task of a run's config, nested, as the config has it."""
    return get(config["task"]).configured(config)


def with_part(name: str) -> list[str]:
    """Returns the names of the tasks whose kind has a part; see `task`."""
    return [task.name for task in _TASKS if task.has_part(name)]


def trained_by(program: str) -> list[str]:
    """Returns the names of the tasks that a command trains."""
    return [name for name, task in EVERY.items() if task.program == program]
