"""Algorithms to learn from examples that are drawn from the seed without an end."""

from configs import addition, memorization
from trainers.data import algorithms
from trainers.models.fields import integer
from trainers.tasks.task import AlgorithmTask

ADDITION = AlgorithmTask(
    name="addition",
    presets=addition.PRESETS,
    algorithm=lambda data: algorithms.addition(data.digits),
    fields={"data.digits": integer(1, 18)},
)

MEMORIZATION = AlgorithmTask(
    name="memorization",
    presets=memorization.PRESETS,
    algorithm=lambda data: algorithms.memorization(data.symbols, data.kinds),
    fields={"data.symbols": integer(1, 40), "data.kinds": integer(2, 257)},
)
