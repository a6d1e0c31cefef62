"""Algorithms to learn from examples that are drawn from the seed without an end."""

from typing import Any

from configs import addition, memorization
from trainers.models.fields import integer
from trainers.tasks.task import AlgorithmTask

# The module that writes examples needs TensorFlow, and is imported by those who want some.


def _addition(data: Any) -> Any:
    from trainers.data import algorithms

    return algorithms.addition(data.digits)


def _memorization(data: Any) -> Any:
    from trainers.data import algorithms

    return algorithms.memorization(data.symbols, data.kinds)


ADDITION = AlgorithmTask(
    name="addition",
    presets=addition.PRESETS,
    algorithm=_addition,
    fields={"data.digits": integer(1, 18)},
)

MEMORIZATION = AlgorithmTask(
    name="memorization",
    presets=memorization.PRESETS,
    algorithm=_memorization,
    fields={"data.symbols": integer(1, 40), "data.kinds": integer(2, 257)},
)
