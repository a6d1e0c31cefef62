"""Python's own reference text, out of the standard library: needs no download.

Every value is ours, chosen so that a run takes a few minutes of a CPU core. The studies of
docs/notes/language_models.md found the LSTMs' dropouts of words and of the state, and their
numbers of steps; here they are rounded. The other values are those with which the studies began.
"""

from configs import ptb, text


def small() -> dict:
    """A trellis network of twelve levels."""
    config = text.small()
    config["model"].update(
        depth=12, embedding_dropout=0.1, dropout=0.3, output_dropout=0.4
    )
    config["optimizer"].update(learning_rate=8e-3)
    return config


def small_stacked_lstm() -> dict:
    """Two stacked LSTMs that both read the input, the network of `small_stacked_lstm` of `text`.

    docs/notes/language_models.md has the trials by hand.
    """
    config = text.small_stacked_lstm()
    config["model"].update(embedding_dropout=0.13, recurrent_dropout=0.18)
    # The rate falls along a cosine over the steps, which are 32 passes over the text.
    config["schedule"].update(epochs=())
    config["training"] = dict(epochs=7, steps=3060, jit_compile=True)
    return config


def small_lstm() -> dict:
    """Two layers of Keras's LSTM: the network of `ptb` with more dropout and a full softmax.

    They have as many parameters as `small_stacked_lstm`, and 2,370 steps take as long as its 3,060.
    """
    config = small_stacked_lstm()
    config["model"] = ptb.small_lstm()["model"]
    for name in ("head", "adaptive"):
        del config["model"][name]
    config["model"].update(
        embedding_dropout=0.13, dropout=0.3, layer_dropout=0.2, output_dropout=0.4
    )
    config["optimizer"].update(learning_rate=4e-3)
    config["training"] = dict(epochs=7, steps=2370)
    return config


def small_skip_lstm() -> dict:
    """Two layers of Keras's LSTM that both read the input, as large as `small_stacked_lstm`.

    The second layer reads the outputs of the first and the input. The dropouts are those of
    `small_stacked_lstm`, but for that of the state, with which Keras's loop takes twice as long.
    """
    config = small_stacked_lstm()
    dropouts = {
        name: value
        for name, value in config["model"].items()
        if name.endswith("dropout")
    }
    config["model"] = small_lstm()["model"]
    config["model"].update(
        dropouts,
        layer="skip_lstm",
        units=240,
        layer_dropout=None,
        recurrent_dropout=0.0,
    )
    config["training"].update(jit_compile=False)
    return config


PRESETS = {
    "small": small,
    "small_stacked_lstm": small_stacked_lstm,
    "small_lstm": small_lstm,
    "small_skip_lstm": small_skip_lstm,
}
# The names of release 0.2, which work for one release more.
FORMER_PRESETS = {"small_levels": "small"}
