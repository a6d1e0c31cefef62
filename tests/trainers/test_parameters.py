"""The table of parameters."""

import pytest

from trainers import parameters


@pytest.fixture
def counts(monkeypatch):
    monkeypatch.setattr(parameters, "VOCABULARY_SIZES", {"ptb_char": 50})
    monkeypatch.setattr(parameters, "IMAGE_SHAPES", {"seq_mnist": (784, 1)})
    return list(parameters.counts())


def test_counts_those_of_each_preset_and_prints_them(counts, monkeypatch, capsys):
    """Written out for the paper's characters: kernels with their gains, bias, tied softmax."""
    rows = {preset: (count, paper) for task, preset, count, paper in counts if task == "ptb_char"}
    kernels, gains = 2 * (200 + 1200) * 4 * 1200, 2 * 4 * 1200
    assert rows["paper"] == (kernels + gains + 4 * 1200 + 50 * 201, "13.4M")
    assert rows["released"][1] == rows["small"][1] == ""
    monkeypatch.setattr(parameters, "counts", lambda: counts)
    assert parameters.main(["parameters"]) == 0
    assert "| `ptb_char` | `paper` | 13,464,450 | 13.4M |" in capsys.readouterr().out
