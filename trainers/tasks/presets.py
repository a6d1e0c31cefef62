"""The presets of a task in words."""

import functools
from collections.abc import Callable

from trainers.data.names import flatten
from trainers.tasks import config as configs
from trainers.tasks import registry


def described(task: str) -> dict[str, str]:
    """Returns a line on each preset of a task: what it is, and the network that it trains.

    Raises:
        ValueError: the task is unknown.
    """
    found = registry.get(task, "--task")
    lines = {}
    for name, preset in found.presets.items():
        network = f"[{found.network(configs.load(task, name))}]"
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
