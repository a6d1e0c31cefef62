"""What a run of each row takes on this machine, by a measurement of some of its steps."""

import time
from typing import Any

import jax
import keras
from ml_collections import ConfigDict

from configs.papers import SIZES, Row
from trainers.papers.step import product_flops
from trainers.papers.training import Run
from trainers.tasks import registry
from trainers.training import schedules

_STEPS = 50  # to measure
_SECONDS = 60.0  # of measuring a row, in which a slow machine takes fewer steps
HEAD = (
    f"{'--row':<30}{'preset':<32}{'published':>9}{'parameters':>13}{'GiB':>7}{'FLOPs':>9}"
    f"{'hours':>9}  steps measured"
)


def line(name: str, row: Row, config: ConfigDict) -> str:
    """Returns a row's line of the table, which `HEAD` begins.

    Memory is that of a step on one device. FLOPs are those of the products of all steps, and hours
    those of all steps, without validations.

    Args:
        name: the row's name.
        row: the row.
        config: the config of one of its presets.
    """
    keras.utils.set_random_seed(config.seed)
    reproduced = registry.get(row.task).reproduced()
    parts, count = reproduced.drawn(config, *SIZES[row.task])
    run = Run(config, parts)
    run.fill({})
    batch, time_steps = parts.batch(0)
    arguments = run.state, run.devices.put(batch), run.rule.next(time_steps)
    length = schedules.length(config.training, count)
    flops = length * product_flops(jax.make_jaxpr(run.step)(*arguments))
    compiled = run.step.lower(*arguments).compile()
    memory: Any = compiled.memory_analysis()
    size = memory.argument_size_in_bytes + memory.temp_size_in_bytes
    size += memory.output_size_in_bytes - memory.alias_size_in_bytes
    state, _ = jax.block_until_ready(compiled(*arguments))
    began, taken = time.monotonic(), 0
    while taken < _STEPS and time.monotonic() - began < _SECONDS:
        state, _ = jax.block_until_ready(compiled(state, *arguments[1:]))
        taken += 1
    hours = (time.monotonic() - began) / taken * length / 3600
    published = "" if row.published is None else f"{row.published:g}"
    return (
        f"{name:<30}{config.preset:<32}{published:>9}{run.parameters:>13,}"
        f"{size / 2**30:>7.2f}{flops:>9.1e}{hours:>9.2f}  {taken}"
    )
