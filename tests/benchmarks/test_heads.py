"""The benchmark of the heads, at a tiny size."""

import numpy as np
import pytest

from benchmarks import heads
from tests.benchmarks.commands import measured


def test_targets_follow_zipf():
    counts = np.bincount(heads.draw_targets(20_000, 8), minlength=8)
    harmonic = (1 / np.arange(1, 9)).sum()
    np.testing.assert_allclose(
        counts * np.arange(1, 9) * harmonic / 20_000, 1, atol=0.1
    )


@pytest.mark.parametrize("name", heads.HEADS)
def test_a_step_trains(name):
    sizes = heads.HeadSizes(6, 4, 9, 2, (2, 5))
    contender = heads.HEADS[name][1](sizes)
    losses = [contender.step() for _ in range(2)]
    assert losses[1] < losses[0] and contender.facts["parameters"] >= 9 * 5


def test_the_command(tmp_path, forks):
    flags = (
        "--positions=6",
        "--units=4",
        "--vocabulary_size=9",
        "--cutoffs=2,5",
        "--threads=1",
    )
    found, text = measured(
        forks, tmp_path, "heads", *flags, "--rounds=1", "--only=adaptive"
    )
    assert [each["name"] for each in found["rows"]] == ["tied", "adaptive"]
    assert "| AdaptiveSoftmax | " in text
