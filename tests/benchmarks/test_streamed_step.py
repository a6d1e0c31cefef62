"""The benchmark of a streamed step, in its least cases."""

import pytest

from benchmarks import streamed_step
from benchmarks.sizes import receptive_field
from tests.benchmarks.commands import measured, run


def test_the_forms_of_a_step_in_a_runtime(forks, tmp_path):
    flags = ["--case=ONNX Runtime: watch", "--threads=1", "--rounds=1", "--warmup=0"]
    found, text = measured(forks, tmp_path, "streamed_step", *flags)
    one, many = found["rows"]
    assert (one["title"], many["title"]) == (
        "ONNX Runtime: watch",
        "ONNX Runtime: watch, 1,000 streams",
    )
    assert not found["left_out"]
    for row in found["rows"]:
        for form in ("lines", "cache", "lstm"):
            assert row[form]["median"] > 0
        parameters = row["lines"]["parameters"]
        assert row["lstm"]["parameters"] == pytest.approx(parameters, rel=0.05)
    assert "| ONNX Runtime: watch, 1,000 streams |" in text


def test_a_case_that_is_not_there_is_refused(forks):
    ended = run(forks, "streamed_step", "--case=none")
    expected = "`case` must be part of a title. Received: --case=none"
    assert ended.returncode != 0 and expected in ended.stdout + ended.stderr


def test_the_far_network_sees_what_its_title_says():
    far = streamed_step.FAR
    steps = receptive_field(far.depth, far.dilation_rate, far.kernel_size)
    assert steps == 16_384
