"""Text of the user's own, by words.

The recipes of the paper are those of the word-level Penn Treebank. The values of `small` are ours.
"""

from configs import ptb


def small() -> dict:
    """A trellis network, for ten epochs of a text of any size.

    It is that of the Penn Treebank with 8 levels throughout and a full softmax, in float32 for any
    processor. To begin with fewer levels, a run needs a number of steps, and an adaptive softmax
    needs many words. The rate halves after each epoch of the second half.
    """
    config = ptb.small()
    config["model"].update(depth=8)
    for name in ("dtype", "head", "adaptive"):
        del config["model"][name]
    config["schedule"].update(epochs=(5, 6, 7, 8, 9))
    config["training"] = dict(epochs=10)
    return config


def small_stacked_lstm() -> dict:
    """Two stacked LSTMs that both read the input.

    For a small model of text they are better than a trellis network (docs/results/text.md). The
    rate halves after each epoch of the second half.
    """
    config = ptb.small_stacked_lstm()
    for name in ("head", "adaptive"):
        del config["model"][name]
    config["model"].update(
        embedding_dropout=0.1, dropout=0.3, recurrent_dropout=0.2, output_dropout=0.5
    )
    config["data"].update(batch_size=16)
    config["optimizer"].update(learning_rate=8e-3)
    config["schedule"].update(epochs=tuple(range(10, 20)))
    config["training"] = dict(epochs=20)
    return config


PRESETS = {
    "small": small,
    "small_stacked_lstm": small_stacked_lstm,
    "paper": ptb.paper,
    "released": ptb.released,
}
# The names of release 0.2, which work for one release more.
FORMER_PRESETS = {"small_levels": "small"}
