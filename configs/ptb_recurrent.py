"""Gated recurrent layers on the word-level Penn Treebank (Kuo et al. 2020, Table II).

Each value has its source beside it. "Table II" is that table, "V.A" the section on its recipe, and
"released" is the authors' code (Nic5472K/IJCNN2020_IRC), a copy of salesforce/awd-lstm-lm. "ours":
chosen here. The equations are those of the paper; `--config.model.variant=released` takes those of
the code, where they differ.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple


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
            learning_rate=30.0,  # released; see `ROWS`
            clip_norm=0.25,  # released
            weight_decay=1.2e-6,  # released
        ),
        schedule=dict(
            factor=0.25,  # without effect: no rule lowers the rate
            epochs=(),  # released
            average_after=30,  # released: from epoch 31 on, whatever the losses
        ),
        training=dict(epochs=50),  # released; see `ROWS`
        evaluation=dict(batch_size=10),  # released: for validation
        seed=141,  # released
    )


class Row(NamedTuple):
    """A row of Table II.

    The table gives the sizes, the code rates and epochs. No reading of the equations gives the
    parameters of `lstm` and `ihc_lstm`.

    Attributes:
        layer: the layer's name.
        layers: the number of layers.
        embedding: the size of a word vector.
        hidden: units of a layer.
        rate: the learning rate.
        epochs: how many.
        size: the parameters of the layers; "": the table does not have the row.
        perplexity: on test data; None likewise.
    """

    layer: str
    layers: int
    embedding: int
    hidden: int
    rate: float
    epochs: int
    size: str = ""
    perplexity: float | None = None


# By preset. The code has no T-LSTM and no LSTM with an input residual; the T-LSTM here has the
# values of its IRC form. `gru_reset_before` is the GRU that the paper prints, equation (2). `gru`
# is that of the code: its reset gate acts after the product. The table has one perplexity for an
# IRC-FastGRNN of one layer and of two.
ROWS: dict[str, Row] = {
    "lstm": Row("weight_drop_lstm", 3, 400, 1150, 30.0, 800, "24.9M", 58.32),
    "ihc_lstm": Row("ihc_lstm", 3, 400, 1150, 30.0, 800, "15.1M", 57.44),
    "fast_grnn_1": Row("fast_grnn", 1, 650, 650, 10.0, 50, "1.7M", 88.48),
    "irc_fast_grnn_1": Row("irc_fast_grnn", 1, 650, 650, 10.0, 50, "1.3M", 85.60),
    "gru": Row("gru", 2, 650, 650, 10.0, 50),
    "gru_reset_before": Row("gru_reset_before", 2, 650, 650, 10.0, 50, "5.1M", 93.44),
    "irc_gru": Row("irc_gru", 2, 650, 650, 10.0, 50, "3.4M", 76.51),
    "t_lstm": Row("t_lstm", 2, 650, 650, 30.0, 50, "5.1M", 81.52),
    "irc_t_lstm": Row("irc_t_lstm", 2, 650, 650, 30.0, 50, "2.5M", 79.56),
    "fast_grnn": Row("fast_grnn", 2, 650, 650, 10.0, 50, "3.4M", 89.30),
    "irc_fast_grnn": Row("irc_fast_grnn", 2, 650, 650, 10.0, 50, "2.5M", 85.60),
    "sru": Row("sru", 3, 1150, 1150, 30.0, 50, "12.0M", 92.42),
    "irc_sru": Row("irc_sru", 3, 1150, 1150, 30.0, 50, "12.0M", 86.70),
}


def _row(name: str) -> dict:
    """A row of Table II by the authors' code."""
    row = ROWS[name]
    config = _recipe()
    config["model"].update(
        layer=row.layer,
        layers=row.layers,
        units=row.hidden,
        embedding_units=row.embedding,
    )
    # The released GRU and IRC-GRU mean to have DropConnect, and have not; Keras's own GRU has none.
    if name in ("gru", "gru_reset_before"):
        del config["model"]["weight_dropout"]
    config["optimizer"].update(learning_rate=row.rate)
    config["training"].update(epochs=row.epochs)
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
    **{name: functools.partial(_row, name) for name in ROWS},
    # `small_lstm` of configs/ptb.py has the parameters of `small_stacked_lstm`.
    "small_lstm_200": functools.partial(_small, "lstm"),
    **{f"small_{layer}": functools.partial(_small, layer) for layer in _SMALL},
    "small_weight_drop_lstm": functools.partial(_small_dropped, "weight_drop_lstm"),
    "small_weight_drop_ihc_lstm": functools.partial(_small_dropped, "ihc_lstm"),
    "small_trellis_lstm": functools.partial(_small_trellis, "lstm"),
    "small_trellis_irc_lstm": functools.partial(_small_trellis, "irc_lstm"),
}
