"""Growth: the fits, and what is measured."""

import json
import subprocess
import sys

import pytest

from benchmarks import growth
from benchmarks.workers import Reading
from tests import ROOT


@pytest.mark.parametrize("power", [0.0, 1.0, 2.5])
def test_exponent_of_a_power(power):
    values = [2, 4, 8, 16, 32]
    assert growth.exponent(values, [3 * v**power for v in values]) == pytest.approx(power)


def test_exponent_is_that_of_the_larger_half():
    values = [1, 2, 4, 8, 16, 32]
    measured = [10, 10, 10, 8, 16, 32]
    assert growth.exponent(values, measured) == pytest.approx(1)


def test_no_exponent_of_nothing():
    assert growth.exponent([4], [1.0]) is None


def test_curves_take_the_median_time():
    readings = [[Reading(v, None), Reading(9 * v, None), Reading(2 * v, None)] for v in (1, 2, 4)]
    found = growth.curve("x", [1, 2, 4], readings)
    assert found["seconds"] == [2, 4, 8] and found["exponent"] == pytest.approx(1)


def test_what_was_asked_for_is_swept():
    largest = {"T": 16_384, "depth": 256, "width": 2048, "batch": 64, "vocabulary": 267_735}
    for name, value in largest.items():
        settings = growth.settings(name, None, 1, None)
        grown = [getattr(each, growth.SWEEPS[name].field) for each in settings]
        assert grown == sorted(grown) and grown[-1] == value and len(grown) >= 4


@pytest.mark.parametrize("name", ["T", "vocabulary"])
def test_our_contenders_take_steps(name):
    setting = growth.settings(name, 1000, 1, None)[0]
    assert growth.SWEEPS[name].builds[growth.OURS](setting).step() > 0


def test_the_command_draws(tmp_path):
    command = [sys.executable, "-m", "benchmarks.growth", "--sweep=batch", "--largest=2"]
    result, plot = tmp_path / "growth.json", tmp_path / "plots" / "growth.png"
    done = subprocess.run(
        [*command, "--rounds=1", "--threads=1", f"--json={result}", f"--plot={plot}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (sweep,) = json.loads(result.read_text())["sweeps"]
    names = [each["name"] for each in sweep["curves"]]
    assert names == ["keras_trellis", "keras.layers.LSTM"] and plot.stat().st_size > 1000
    assert "Left out: the authors' code, batch: it needs --reference_dir" in done.stdout
    assert sweep["setting"] == {"time_steps": 256, "units": 64, "depth": 8}
