"""The benchmark of the heads, at a tiny size."""

import numpy as np
import pytest

from benchmarks import heads
from benchmarks.workers import Reading, Result
from tests.benchmarks.commands import measured


def test_targets_follow_zipf():
    sizes = heads.HeadSizes(20_000, 1, 8, 1, (2,))
    counts = np.bincount(sizes.targets(), minlength=8)
    harmonic = (1 / np.arange(1, 9)).sum()
    np.testing.assert_allclose(counts * np.arange(1, 9) * harmonic / 20_000, 1, atol=0.1)


def test_rows_are_set_beside_the_full_softmax():
    results = {
        "tied": Result({"parameters": 1}, [Reading(1.0, 8), Reading(4.0, 10)]),
        "adaptive": Result({"parameters": 2}, [Reading(0.5, 2), Reading(1.0, 1)]),
    }
    found = heads.row("adaptive", results)
    assert found["time_to_full"] == {"min": 0.25, "median": 0.375, "max": 0.5}
    assert (found["peak_bytes"], found["peak_to_full"]) == (2, 0.2)
    assert heads.row("adaptive", {"adaptive": results["adaptive"]})["seconds"] == [0.5, 1.0]


@pytest.mark.parametrize("name", heads.HEADS)
def test_a_step_trains(name):
    sizes = heads.HeadSizes(6, 4, 9, 2, (2, 5))
    contender = heads.HEADS[name][1](sizes)
    losses = [contender.step() for _ in range(2)]
    assert losses[1] < losses[0] and contender.facts["parameters"] >= 9 * 5


def test_the_command(tmp_path):
    flags = ("--positions=6", "--units=4", "--vocabulary_size=9", "--cutoffs=2,5", "--threads=1")
    found, text = measured(tmp_path, "heads", *flags, "--rounds=1", "--only=adaptive")
    assert [each["name"] for each in found["rows"]] == ["tied", "adaptive"]
    assert "| AdaptiveSoftmax | " in text
