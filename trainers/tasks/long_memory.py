"""Tests of memory over many steps, drawn from the seed."""

from configs import adding, baselines, copy_memory
from trainers.data import long_memory
from trainers.models.fields import COUNT, integer
from trainers.tasks.measures import SQUARED_ERROR
from trainers.tasks.task import GeneratedTask

COPY_MEMORY = GeneratedTask(
    name="copy_memory",
    presets=copy_memory.PRESETS,
    draw=long_memory.copy_memory,
    outputs=long_memory.CLASSES,
    baselines=baselines.COPY_MEMORY,
    fields={"data.steps": COUNT},
)

ADDING = GeneratedTask(
    name="adding",
    presets=adding.PRESETS,
    draw=long_memory.adding,
    outputs=1,
    measure=SQUARED_ERROR,
    baselines=baselines.ADDING,
    fields={"data.steps": integer(2)},  # two are marked
)
