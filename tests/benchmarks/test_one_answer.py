"""The benchmark of one answer, in its least case."""

import pytest

from benchmarks import one_answer
from tests import ROOT
from tests.benchmarks.commands import measured, run


def test_a_case_beside_another_checkout(forks, tmp_path):
    flags = [f"--before={ROOT}", "--case=T 256, a mask", "--threads=1"]
    found, text = measured(
        forks, tmp_path, "one_answer", *flags, "--rounds=1", "--warmup=0"
    )
    (row,) = found["rows"]
    assert row["title"] == "96 channels, B 16, T 256, a mask; tensorflow"
    assert row["now_to_ours"]["median"] == 1 and row["rival_to_ours"]["median"] > 0
    assert row["before_to_ours"]["median"] > 0 and not found["left_out"]
    assert "| an LSTM of as many parameters |" in text


@pytest.mark.parametrize(
    "flag, expected",
    [
        ("--before=nowhere", "`before` must be a checkout of this repository"),
        ("--case=none", "`case` must be part of a title. Received: --case=none"),
    ],
)
def test_what_cannot_be_measured_is_refused(forks, flag, expected):
    ended = run(forks, "one_answer", flag)
    assert ended.returncode != 0 and expected in ended.stdout + ended.stderr


def test_every_case_is_one_answer_or_all():
    for case in one_answer.CASES:
        kept = case.sizes.time_steps - case.sizes.discard
        assert (kept == 1) != ("all answers" in case.network)
        assert case.sizes.receptive_field >= case.sizes.time_steps
