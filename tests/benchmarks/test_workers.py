"""Contenders in processes of their own."""

import os
import sys
import threading
import time
from pathlib import Path

import pytest

from benchmarks import workers
from benchmarks.workers import Contender, LeftOutError


def sleeper(seconds):
    return Contender(lambda: time.sleep(seconds), {"seconds": seconds})


def compute(seconds):
    """Keeps the processor busy for so many seconds of this thread."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def busy(seconds):
    def step():
        threads = [threading.Thread(target=compute, args=[seconds]) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return Contender(step, {})


def prepared(seconds):
    calls = []

    def prepare():
        compute(seconds)
        calls.append("prepare")

    return Contender(
        lambda: calls.append("step"), {}, lambda: {"calls": calls}, prepare
    )


def hoarder(size):
    return Contender(lambda: bytearray(b"x") * size, {})


def learner(setting):
    steps = []
    return Contender(
        lambda: steps.append(setting), {"known": 1}, lambda: {"steps": len(steps)}
    )


def told(setting):
    raise LeftOutError("not today")


def not_installed(setting):
    raise ModuleNotFoundError("No module named 'nobody'")


def broken(setting):
    return Contender(lambda: 1 / 0, {})


def dead(setting):
    return Contender(lambda: os._exit(3), {})


def limits(setting):
    return Contender(list, {"threads": os.environ["TF_NUM_INTRAOP_THREADS"]})


def measure(builds, setting, rounds=2):
    return workers.measure(builds, setting, threads=1, warmup=1, rounds=rounds)


def test_reads_time_and_counts_only_rounds_after_warmup():
    results, left_out = measure({"a": sleeper, "b": sleeper}, 0.01, rounds=3)
    assert left_out == {} and list(results) == ["a", "b"]
    for result in results.values():
        assert result.facts == {"seconds": 0.01}
        assert len(result.readings) == 3
        assert all(reading.seconds >= 0.01 for reading in result.readings)


def test_processor_time_is_that_of_all_threads_in_the_step():
    builds = {"sleeper": sleeper, "busy": busy, "prepared": prepared}
    results, _ = measure(builds, 0.05, rounds=1)
    times = {name: each.readings[0] for name, each in results.items()}
    assert times["busy"].processor_seconds >= 2 * 0.05
    assert times["sleeper"].processor_seconds < 0.05 <= times["sleeper"].seconds
    # What prepares a step comes before each, and is not timed.
    assert results["prepared"].facts == {"calls": ["prepare", "step"] * 2}
    assert times["prepared"].processor_seconds < 0.05


def test_what_the_steps_brought_is_learned():
    results, _ = measure({"learner": learner}, None, rounds=3)
    assert results["learner"].facts == {"known": 1, "steps": 4}


@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="memory is read from /proc"
)
def test_memory_is_that_of_the_step():
    size = 64 * 2**20
    results, _ = measure({"hoarder": hoarder, "idle": limits}, size)
    # Linux counts pages in batches.
    assert all(
        0.9 * size < each.bytes < 1.5 * size for each in results["hoarder"].readings
    )
    assert all(each.bytes < size / 8 for each in results["idle"].readings)


def test_who_cannot_run_is_left_out_with_a_reason():
    builds = {
        "told": told,
        "not_installed": not_installed,
        "broken": broken,
        "dead": dead,
        "limits": limits,
    }
    results, left_out = measure(builds, None)
    assert list(results) == ["limits"] and len(results["limits"].readings) == 2
    assert left_out["told"] == "not today"
    assert left_out["not_installed"] == "not installed: No module named 'nobody'"
    assert left_out["broken"] == "it failed: ZeroDivisionError: division by zero"
    assert left_out["dead"] == "its process died"


def test_threads_are_limited_in_the_worker_alone():
    before = dict(os.environ)
    results, _ = measure({"limits": limits}, None)
    assert results["limits"].facts == {"threads": "1"}
    assert dict(os.environ) == before


if sys.platform == "linux":

    def cores(setting):
        return Contender(list, {"cores": len(os.sched_getaffinity(0))})

    def test_cores_are_limited():
        assert measure({"cores": cores}, None)[0]["cores"].facts == {"cores": 1}
