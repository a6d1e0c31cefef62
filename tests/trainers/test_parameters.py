"""The table of parameters."""

from trainers import parameters


def test_counts_those_of_each_preset_and_prints_them(capsys):
    """Written out for the paper's characters: kernels with their gains, bias, tied softmax."""
    counts = list(parameters.counts())
    rows = {
        preset: (count, paper)
        for task, preset, count, paper in counts
        if task == "ptb_char"
    }
    kernels, gains = 2 * (200 + 1200) * 4 * 1200, 2 * 4 * 1200
    assert rows["paper"] == (kernels + gains + 4 * 1200 + 50 * 201, "13.4M")
    assert rows["released"][1] == rows["small"][1] == ""
    assert parameters.main(["parameters"]) == 0
    assert "| `ptb_char` | `paper` | 13,464,450 | 13.4M |" in capsys.readouterr().out
