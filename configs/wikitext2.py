"""Word-level WikiText-2, for which the paper has no recipe.

It takes those of the word-level Penn Treebank, of whose kind and nearly size it is: that it does is
ours, the values have their sources in `configs/ptb.py`.
"""

from configs import ptb


def _by_frequency(config: dict) -> dict:
    """Returns a config of `ptb` with what an adaptive softmax wants of this text."""
    config["corpus"] = dict(order="frequency")
    config["model"].update(adaptive=dict(cutoffs=(2000, 10000)))
    return config


def small() -> dict:
    """A trellis network, that of `small` of the Penn Treebank; ours, and not run.

    Its steps are five passes over the text.
    """
    config = _by_frequency(ptb.small())
    config["training"].update(epochs=5, steps=20400)
    return config


def small_stacked_lstm() -> dict:
    """Two stacked LSTMs that both read the input, for an hour of a CPU; ours.

    The model of the Penn Treebank. Its steps are five passes over the text.
    """
    config = _by_frequency(ptb.small_stacked_lstm())
    config["training"] = dict(epochs=5, steps=8150)
    return config


PRESETS = {
    "paper": ptb.paper,
    "released": ptb.released,
    "small": small,
    "small_stacked_lstm": small_stacked_lstm,
}
