"""What a run takes, over all its processes."""

import functools
import math
import subprocess
import sys
import time

import numpy as np

from tests.trainers.training import toy
from trainers.training import checkpoints, loop, resources, schedules, workdir
from trainers.training.trainer import Trainer


@functools.cache
def traced():
    return toy.Traced(Trainer(toy.Task(), toy.optimizer_of("sgd")))


def train(folder, epochs):
    with workdir.open_workdir(folder, {}) as opened:
        trainer = traced().as_new()
        return loop.fit(trainer, schedules.Schedule(), opened, epochs=epochs).cost


def test_a_process_counts_what_it_takes():
    began = time.monotonic()
    meter = resources.Meter(resources.Cost())
    held = np.ones(60_000_000)  # 480 MB
    meter.add(3.0)
    meter.add(2.5)
    time.sleep(0.02)
    cost = meter.read()
    assert cost.weight == 5.5
    assert 0.02 <= cost.seconds <= time.monotonic() - began
    assert held.nbytes < cost.peak_bytes < 2**40


def test_the_peak_is_not_that_of_the_process_from_which_this_one_was_started():
    code = (
        "from trainers.training.resources import Cost, Meter; "
        "print(Meter(Cost()).read().peak_bytes)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    # This one has TensorFlow.
    assert (
        0 < float(done.stdout) < resources.Meter(resources.Cost()).read().peak_bytes / 4
    )


def test_a_system_that_does_not_tell_leaves_the_peak_unknown(monkeypatch):
    monkeypatch.setattr(resources, "_STATUS", resources._STATUS.with_name("nothing"))
    cost = resources.Meter(resources.Cost()).read()
    assert math.isnan(cost.peak_bytes) and cost.seconds > 0


def test_a_process_goes_on_from_those_before_it():
    began = time.monotonic()
    meter = resources.Meter(resources.Cost(100.0, 50.0, 2.0**50))
    meter.add(1.0)
    cost = meter.read()
    assert cost.weight == 101.0
    assert 50 <= cost.seconds <= 50 + time.monotonic() - began
    assert cost.peak_bytes == 2.0**50


def test_what_was_never_recorded_stays_unknown():
    meter = resources.Meter(resources.Cost(math.nan, math.nan, math.nan))
    meter.add(1.0)
    assert all(map(math.isnan, meter.read()))


def test_a_resumed_run_has_the_cost_of_all_its_processes(tmp_path):
    before = train(tmp_path, epochs=1)
    # The seconds that its last checkpoint took are in the value, not in the checkpoint.
    _, arrays = checkpoints.Checkpoints(tmp_path / "checkpoints").restore()
    after = train(tmp_path, epochs=3)
    assert (before.weight, after.weight) == (4 * 14, 3 * 4 * 14)  # rows x targets
    assert after.seconds > arrays["cost/seconds"] > 0
    assert after.peak_bytes >= before.peak_bytes > 0


def test_a_run_of_an_earlier_version_has_no_cost(tmp_path):
    train(tmp_path, epochs=1)
    store = checkpoints.Checkpoints(tmp_path / "checkpoints")
    step, arrays = store.restore()
    store.save(step, {k: v for k, v in arrays.items() if not k.startswith("cost/")})
    assert all(map(math.isnan, train(tmp_path, epochs=2)))
