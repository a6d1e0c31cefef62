"""Python's own reference text, out of the standard library: needs no download.

Every value is ours, chosen so that a run takes a few minutes of a CPU core.
"""

from configs import ptb, text


def small() -> dict:
    """The network of `small` of `text`; docs/language_models.md has the trials."""
    config = text.small()
    config["model"].update(recurrent_dropout=0.15)
    # The rate falls along a cosine over the steps, which are twenty passes over the text.
    config["schedule"].update(epochs=())
    config["training"] = dict(epochs=7, steps=1900, jit_compile=True)
    return config


def small_lstm() -> dict:
    """Two layers of Keras's LSTM: the network of `ptb` with more dropout and a full softmax.

    They have as many parameters as `small`; 1,360 steps take nearly as long as its 1,900.
    """
    config = small()
    config["model"] = ptb.small_lstm()["model"]
    for name in ("head", "adaptive"):
        del config["model"][name]
    config["model"].update(
        embedding_dropout=0.1, dropout=0.3, layer_dropout=0.2, output_dropout=0.4
    )
    config["optimizer"].update(learning_rate=4e-3)
    config["training"] = dict(epochs=7, steps=1360)
    return config


def small_levels() -> dict:
    """A trellis network of twelve levels, of as many parameters."""
    config = text.small_levels()
    config["model"].update(
        depth=12, embedding_dropout=0.1, dropout=0.3, output_dropout=0.4
    )
    config["optimizer"].update(learning_rate=8e-3)
    return config


PRESETS = {"small": small, "small_lstm": small_lstm, "small_levels": small_levels}
