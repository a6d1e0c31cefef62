"""Gated recurrent layers on the word-level Penn Treebank (Kuo et al. 2020, Table II).

Each value has its source beside it. "Table II" is that table, "V.A" the section on its recipe, and
"released" is the authors' code (Nic5472K/IJCNN2020_IRC), a copy of salesforce/awd-lstm-lm. "ours":
chosen here. The equations are those of the paper; `--config.model.variant=released` takes those of
the code, where they differ.
"""

import functools
from collections.abc import Callable


def _recipe() -> dict:
    """What all rows share."""
    return dict(
        model=dict(
            # Keras's own initial values; the paper names none
            initial_deviation=0.0,
            embedding_dropout=0.1,  # released
            dropout=0.4,  # released: the input of the first layer
            layer_dropout=0.25,  # released: between layers
            output_dropout=0.4,  # released
            # released: DropConnect on what reads the state; see `_row`
            weight_dropout=0.25,
            activation_weight=2.0,  # released: AR
            temporal_weight=1.0,  # released: TAR
            # released: torch's padding_idx=-1, no gradient to the last word's vector through
            # the input
            untrained_input_id=-1,
        ),
        data=dict(
            batch_size=20,  # released
            window=70,  # released
            lengths="drawn",  # released: 70 or 35, and the rate in proportion
            horizon=0,  # released
            history="carried",  # released
        ),
        optimizer=dict(
            name="sgd",  # released
            learning_rate=30.0,  # released; see `_ROWS`
            clip_norm=0.25,  # released
            weight_decay=1.2e-6,  # released
        ),
        schedule=dict(
            factor=0.25,  # without effect: no rule lowers the rate
            epochs=(),  # released
            average_after=30,  # released: from epoch 31 on, whatever the losses
        ),
        training=dict(epochs=50),  # released; see `_ROWS`
        evaluation=dict(batch_size=10),  # released: for validation
        seed=141,  # released
    )


# By preset: layer, number of layers, embedding size, hidden size, learning rate, epochs.
# Table II gives the sizes, the code rates and epochs. The code has no T-LSTM and no LSTM with an
# input residual; the T-LSTM here has the values of its IRC form. `gru_reset_before` is the GRU that
# the paper prints, equation (2). `gru` is that of the code: its reset gate acts after the product.
_ROWS: dict[str, tuple[str, int, int, int, float, int]] = {
    "lstm": ("weight_drop_lstm", 3, 400, 1150, 30.0, 800),
    "ihc_lstm": ("ihc_lstm", 3, 400, 1150, 30.0, 800),
    "fast_grnn_1": ("fast_grnn", 1, 650, 650, 10.0, 50),
    "irc_fast_grnn_1": ("irc_fast_grnn", 1, 650, 650, 10.0, 50),
    "gru": ("gru", 2, 650, 650, 10.0, 50),
    "gru_reset_before": ("gru_reset_before", 2, 650, 650, 10.0, 50),
    "irc_gru": ("irc_gru", 2, 650, 650, 10.0, 50),
    "t_lstm": ("t_lstm", 2, 650, 650, 30.0, 50),
    "irc_t_lstm": ("irc_t_lstm", 2, 650, 650, 30.0, 50),
    "fast_grnn": ("fast_grnn", 2, 650, 650, 10.0, 50),
    "irc_fast_grnn": ("irc_fast_grnn", 2, 650, 650, 10.0, 50),
    "sru": ("sru", 3, 1150, 1150, 30.0, 50),
    "irc_sru": ("irc_sru", 3, 1150, 1150, 30.0, 50),
}


# The parameters of the layers by Table II. No reading of the equations gives those of `lstm` and
# `ihc_lstm`.
SIZES = {
    "lstm": "24.9M",
    "ihc_lstm": "15.1M",
    "fast_grnn_1": "1.7M",
    "irc_fast_grnn_1": "1.3M",
    "gru_reset_before": "5.1M",
    "irc_gru": "3.4M",
    "t_lstm": "5.1M",
    "irc_t_lstm": "2.5M",
    "fast_grnn": "3.4M",
    "irc_fast_grnn": "2.5M",
    "sru": "12.0M",
    "irc_sru": "12.0M",
}


def _row(name: str) -> dict:
    """A row of Table II by the authors' code."""
    layer, layers, embedding, hidden, rate, epochs = _ROWS[name]
    config = _recipe()
    config["model"].update(
        layer=layer, layers=layers, units=hidden, embedding_units=embedding
    )
    # The released GRU and IRC-GRU mean to have DropConnect, and have not; Keras's own GRU has none.
    if name in ("gru", "gru_reset_before"):
        del config["model"]["weight_dropout"]
    config["optimizer"].update(learning_rate=rate)
    config["training"].update(epochs=epochs)
    return config


_SMALL = (
    "irc_lstm",
    "ihc_lstm",
    "gru",
    "gru_reset_before",
    "irc_gru",
    "t_lstm",
    "irc_t_lstm",
    "fast_grnn",
    "irc_fast_grnn",
    "sru",
    "irc_sru",
)


def _small(layer: str) -> dict:
    """Two layers of 200 units for ten minutes of two CPU cores; every value ours.

    All cells have one recipe: the same sizes, rates, dropouts and epochs.
    """
    config = _recipe()
    config["model"].update(
        layer=layer,
        layers=2,
        units=200,
        embedding_units=200,
        embeddings_initializer=dict(config=dict(minval=-0.5, maxval=0.5)),
        embedding_dropout=0.05,
        dropout=0.1,
        layer_dropout=0.1,
        output_dropout=0.2,
        weight_dropout=0.0,
        activation_weight=0.0,
        temporal_weight=0.0,
        untrained_input_id=None,
    )
    config["data"].update(batch_size=20, window=35, lengths="equal")
    config["optimizer"].update(name="adam", learning_rate=4e-3, weight_decay=0.0)
    # The rate halves after each epoch of the second half.
    config["schedule"].update(factor=0.5, epochs=(2, 3, 4), average_after=None)
    config["training"].update(epochs=5)
    config["evaluation"].update(batch_size=12)
    return config


def _small_dropped(layer: str) -> dict:
    """The same with DropConnect at the paper's rate, to compare LSTM and IHC-LSTM alike."""
    config = _small(layer)
    config["model"].update(weight_dropout=0.25)  # released
    return config


def _small_trellis(gate: str) -> dict:
    """A trellis network by the same recipe, with the sizes of a former preset `small`.

    Its two gates have as many parameters.
    """
    config = _small("trellis")
    for field in ("layers", "layer_dropout"):
        del config["model"][field]
    config["model"].update(
        gate=gate, units=256, depth=8, dilation_rate=(1,), output_units=200
    )
    return config


PRESETS: dict[str, Callable[[], dict]] = {
    **{name: functools.partial(_row, name) for name in _ROWS},
    # `small_lstm` of configs/ptb.py has the parameters of `small_stacked_lstm`.
    "small_lstm_200": functools.partial(_small, "lstm"),
    **{f"small_{layer}": functools.partial(_small, layer) for layer in _SMALL},
    "small_weight_drop_lstm": functools.partial(_small_dropped, "weight_drop_lstm"),
    "small_weight_drop_ihc_lstm": functools.partial(_small_dropped, "ihc_lstm"),
    "small_trellis_lstm": functools.partial(_small_trellis, "lstm"),
    "small_trellis_irc_lstm": functools.partial(_small_trellis, "irc_lstm"),
}
