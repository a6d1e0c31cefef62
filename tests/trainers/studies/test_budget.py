"""A budget of processor time in training steps."""

import time

import pytest
from etils import epath

from trainers.studies import budget, experiments
from trainers.tasks import config as configs
from trainers.training import schedules
from trainers.training.trainer import Trainer

SIZES = dict(units=4, depth=2, output_units=None, kernel_size=2, dilation_rate=(1,))


@pytest.fixture
def config(own_settings):
    loaded = configs.load("adding", "small")
    loaded.model.update(SIZES)
    loaded.data.update(steps=10, train=64, validation=8, test=8, batch_size=8)
    loaded.training.jit_compile = False
    return loaded


@pytest.fixture
def experiment(config):
    return experiments.load(config, None, epath.Path("nowhere"))


def test_steps_are_timed_without_what_comes_once(config, experiment, monkeypatch):
    clock = iter(range(1_000))
    calls = []
    steps = Trainer.steps

    def counted(trainer, batches, state, count, stage):
        calls.append(count)
        return steps(trainer, batches, state, count, stage)

    monkeypatch.setattr(Trainer, "steps", counted)
    # A clock by which every call takes a second.
    monkeypatch.setattr(time, "process_time", lambda: next(clock))
    assert budget.processor_seconds_a_step(experiment, config) == 1.0
    assert calls == [1, 1, 1, 1]  # the first one traces
    clock, calls[:] = iter(x / 10 for x in range(1_000)), []
    assert budget.processor_seconds_a_step(experiment, config) == pytest.approx(0.1 / 7)
    assert calls == [1, 1, 2, 4, 7, 7, 7]  # an epoch has 8 steps


def test_the_parts_of_a_run_count_alike(config, experiment, monkeypatch):
    config.training.update(steps=100, depths=(1,))
    took, clock = {0: 1.0, 1: 4.0}, [0.0]
    steps = Trainer.steps

    def slow(trainer, batches, state, count, stage):
        clock[0] += count * took[stage]
        return steps(trainer, batches, state, count, stage)

    monkeypatch.setattr(Trainer, "steps", slow)
    monkeypatch.setattr(time, "process_time", lambda: clock[0])
    assert budget.processor_seconds_a_step(experiment, config) == 2.5


def test_a_budget_becomes_a_number_of_steps(config, experiment, monkeypatch):
    monkeypatch.setattr(budget, "processor_seconds_a_step", lambda *_: 0.5)
    changed = budget.with_budget(experiment, config, 21.3)
    assert changed.training.steps == 42
    assert schedules.passes(changed.training, 8) == 6
    message = r"`seconds` must be at least 3, .*epochs=6 parts.*Received: seconds=2"
    with pytest.raises(ValueError, match=message):
        budget.with_budget(experiment, config, 2)
