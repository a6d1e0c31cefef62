"""The benchmark of the gated recurrent layers, at a tiny size."""

import pytest

from benchmarks import recurrent, report
from benchmarks.workers import Reading, Result
from keras_trellis import recurrent as layers
from tests.benchmarks.commands import measured, run


@pytest.fixture(scope="module")
def measured_once(tmp_path_factory, forks):
    """One run, since each contender's process takes its time to start."""
    flags = ["--batch_size=2", "--time_steps=3,6", "--units=4", "--threads=1"]
    flags += ["--warmup=1", "--rounds=2", "--only=IRCGRU"]
    return measured(forks, tmp_path_factory.mktemp("run"), "recurrent", *flags)


def test_rates_and_growth(measured_once):
    found, text = measured_once
    assert [each["time_steps"] for each in found["lengths"]] == [3, 6]
    lstm, gated = found["lengths"][0]["rows"]
    assert (lstm["name"], gated["name"]) == ("LSTM", "IRCGRU")
    assert gated["parameters"] == 4 * 4 * 4 + 4
    assert gated["rate_to_lstm"]["median"] > 0 and "rate_to_gru" not in gated
    assert [row["title"] for row in found["growth"]] == ["keras.layers.LSTM", "IRCGRU"]
    assert "| T 6 to T 3 | time |" in text


def test_a_rate_is_the_inverse_of_the_time():
    results = {
        "LSTM": Result(
            {"parameters": 1}, [Reading(2.0, 1.0, 2**20), Reading(3.0, 2.0, 2**20)]
        ),
        "SRU": Result({"parameters": 2}, [Reading(1.0, 0.5, 2**20)] * 2),
    }
    rows = recurrent.length_rows(results)
    assert rows[1]["rate_to_lstm"] == {"min": 2.0, "median": 2.5, "max": 3.0}
    assert rows[1]["processor_rate_to_lstm"] == {"min": 2.0, "median": 3.0, "max": 4.0}
    sizes = {"batch_size": 2, "time_steps": 5, "mode": "train"}
    text = report.table(rows, recurrent.rate_columns(sizes))
    assert text.splitlines()[-1] == (
        "| SRU | 1,000.0 | 2.00, **2.50**, 3.00 | 2.00, **3.00**, 4.00 | 10 | 1 | 2 |"
    )
    (_, grown) = recurrent.growth(rows, rows)
    growths = ("time_growth", "processor_growth", "memory_growth")
    assert [grown[name] for name in growths] == [1, 1, 1]


def test_it_measures_all_layers():
    public = {name for name in layers.__all__ if not name.endswith("Cell")}
    assert set(recurrent.GATED) == public - {"StackedLSTM", "TensorizedLSTM"}


def test_lengths_are_numbers(forks):
    ended = run(forks, "recurrent", "--time_steps=3,x")
    assert ended.returncode == 1
    assert "`time_steps` must be numbers like 1,2,4" in ended.stdout + ended.stderr
