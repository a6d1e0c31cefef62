"""The benchmark of the tensorized LSTM, at a tiny size."""

from tests.benchmarks.commands import measured


def test_places_cost_time_and_no_parameters(tmp_path, forks):
    flags = ["--batch_size=2", "--time_steps=3", "--units=4", "--threads=1"]
    flags += ["--warmup=1", "--rounds=2", "--only=places_2", "--only=as_large"]
    found, text = measured(forks, tmp_path, "tensorized", *flags)
    one, two, lstm = found["rows"]
    assert one["parameters"] == two["parameters"] == 4 * 4 + 4 + (3 * 4 + 1) * 19
    assert abs(lstm["parameters"] - one["parameters"]) < 0.25 * one["parameters"]
    assert two["time_to_ours"]["median"] > 0 and not found["left_out"]
    assert "| TensorizedLSTM, P = 2 |" in text
