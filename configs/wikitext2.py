"""Word-level WikiText-2, for which the paper has no recipe.

It takes those of the word-level Penn Treebank, of whose kind and nearly size it is: that it does is
ours, the values have their sources in `configs/ptb.py`.
"""

from configs import ptb


def small() -> dict:
    """An hour of a CPU; ours.

    The small Penn Treebank model. Its steps are five passes over the text.
    """
    config = ptb.small()
    config["corpus"] = dict(order="frequency")  # which an adaptive softmax wants
    config["model"].update(adaptive=dict(cutoffs=(2000, 10000)))
    config["training"] = dict(epochs=5, steps=8150)
    return config


PRESETS = {"paper": ptb.paper, "released": ptb.released, "small": small}
