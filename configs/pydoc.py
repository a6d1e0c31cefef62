"""Python's own reference text, out of the standard library: needs no download.

Every value is ours, chosen so that a run takes a few minutes on two CPU cores.
"""

from configs import text


def small() -> dict:
    """A few minutes on two CPU cores."""
    config = text.small()
    config["model"].update(
        depth=12, embedding_dropout=0.1, dropout=0.3, output_dropout=0.4
    )
    config["optimizer"].update(learning_rate=8e-3)
    return config


PRESETS = {"small": small}
