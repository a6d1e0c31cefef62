"""The estimate of the memory of training, beside what a training step takes."""

import ctypes
import functools
import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks import workers

FACTOR = 1.5


def training_step(preset, vocabulary_size, setting):
    """A step of a preset, and the estimate of what it takes beyond the process at rest."""
    from trainers import config as configs
    from trainers import language_modeling, memory, runs
    from trainers.training import loop

    config = configs.load("ptb", preset)
    config.data.update(setting)
    length = config.data.batch_size * 2 * config.data.window
    ids = np.arange(length, dtype=np.int32) % vocabulary_size
    model = language_modeling.build(config, vocabulary_size)
    task = language_modeling.LanguageModeling(model, config, ids, ids)
    trainer = loop.Trainer(task, runs.optimizer_of(config), clip_norm=0.2)
    batch, state = next(trainer.batches(0)), trainer.spread(task.initial_state())

    def step():
        return float(trainer.step(batch, state)[0]["loss"])

    step()  # traces
    ctypes.CDLL(None).malloc_trim(0)  # gives back what the step has freed
    at_rest = sum(
        4 * math.prod(variable.shape)
        for variable in (*model.variables, *trainer.optimizer.variables)
    )
    parameters = language_modeling.parameters(model)
    estimate = memory.training_bytes(config, parameters, vocabulary_size)
    return workers.Contender(step, {"estimate": estimate - at_rest})


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="memory is read from /proc")
def test_the_estimate_is_near_what_a_step_takes():
    """Of levels, of the softmax, and of the LSTM's loop, each the greatest part of a step."""
    builds = {
        (preset, size): functools.partial(training_step, preset, size)
        for preset, size in (("small", 100), ("small", 10_000), ("small_lstm", 100))
    }
    setting = {"batch_size": 12, "window": 96}
    results, left_out = workers.measure(builds, setting, threads=1, warmup=1, rounds=1)
    assert not left_out
    for name, result in results.items():
        ratio = result.facts["estimate"] / result.readings[0].bytes
        assert 1 / FACTOR < ratio < FACTOR, f"{name}: {result}"
