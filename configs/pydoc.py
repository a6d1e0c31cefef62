"""Python's own reference text, out of the standard library: needs no download.

Every value is ours, chosen so that a run takes a few minutes on two CPU cores.
"""

import ml_collections

from configs import ptb

PRESETS = ("small",)


def get_config(preset: str = "small") -> ml_collections.ConfigDict:
    """Returns the locked config of one of `PRESETS`."""
    config = {"small": small}[preset]()
    return ml_collections.ConfigDict(config).lock()


def small() -> dict:
    """A few minutes on two CPU cores."""
    config = ptb.small()
    config["model"].update(embedding_dropout=0.1, dropout=0.3, output_dropout=0.4)
    config["schedule"].update(epochs=(7, 9))
    config["training"].update(epochs=10)
    return config
