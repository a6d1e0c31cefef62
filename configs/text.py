"""A corpus of the user's own: train, valid and test text files in `--data_dir`.

The presets are those of Penn Treebank, word for word; `small` comes first, so that it is the
default.
"""

import ml_collections

from configs import ptb

PRESETS = ("small", "paper", "released")


def get_config(preset: str = "small") -> ml_collections.ConfigDict:
    """Returns the locked config of one of `PRESETS`."""
    config = {"small": ptb.small, "paper": ptb.paper, "released": ptb.released}[preset]()
    return ml_collections.ConfigDict(config).lock()
