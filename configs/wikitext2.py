"""Word-level WikiText-2, for which the paper has no recipe.

It takes those of the word-level Penn Treebank, of whose kind and nearly size it is: that it does is
ours, the values have their sources in `configs/ptb.py`.
"""

import ml_collections

from configs import ptb

PRESETS = ("paper", "released", "small")


def get_config(preset: str = "paper") -> ml_collections.ConfigDict:
    """Returns the locked config of one of `PRESETS`."""
    config = {"paper": ptb.paper, "released": ptb.released, "small": small}[preset]()
    config["corpus"] = dict(order="appearance")  # ours: as for the Penn Treebank
    return ml_collections.ConfigDict(config).lock()


def small() -> dict:
    """An hour or two of two CPU cores; ours.

    The small Penn Treebank model. There is more than twice the text, and a softmax of three times
    the words, for a third of the epochs.
    """
    config = ptb.small()
    config["schedule"].update(epochs=(3,))
    config["training"].update(epochs=4)
    return config
