"""Word-level WikiText-2, for which the paper has no recipe.

It takes those of the word-level Penn Treebank, of whose kind and nearly size it is: that it does is
ours, the values have their sources in `configs/ptb.py`.
"""

from configs import ptb


def small() -> dict:
    """An hour or two of two CPU cores; ours.

    The small Penn Treebank model. There is more than twice the text, and a softmax of three times
    the words, for a third of the epochs.
    """
    config = ptb.small()
    config["schedule"].update(factor=0.25, epochs=(2, 3))
    config["training"].update(epochs=4)
    return config


PRESETS = {"paper": ptb.paper, "released": ptb.released, "small": small}
