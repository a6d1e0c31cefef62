"""The table of parameters."""

from trainers import parameters


def test_counts_those_of_each_preset_and_prints_them(capsys):
    """Written out for the paper's characters: kernels with their gains, bias, tied softmax."""
    counts = list(parameters.counts())
    rows = {each.preset: each for each in counts if each.task == "ptb_char"}
    kernels, gains = 2 * (200 + 1200) * 4 * 1200, 2 * 4 * 1200
    layer = kernels + gains + 4 * 1200
    assert rows["paper"][2:] == (layer + 50 * 201, layer, "13.4M")
    assert rows["released"].paper == rows["small"].paper == ""
    assert parameters.main(["parameters"]) == 0
    assert (
        "| `ptb_char` | `paper` | 13,464,450 | 13,454,400 | 13.4M |"
        in capsys.readouterr().out
    )
