"""The sequence layers that `config.model.layer` chooses. A new one is an entry of `LAYERS`."""

import functools
from collections.abc import Callable
from typing import Any

import keras
from ml_collections import ConfigDict

from keras_trellis import recurrent
from trainers.models.blocks import Attention, Temporal
from trainers.models.kinds import Kind, class_name
from trainers.models.recurrent import Gated, Grid, Recurrent, Tensorized
from trainers.models.trellis import Equilibrium, Trellis

_INITIALIZERS = ("kernel_initializer", "recurrent_initializer", "bias_initializer")


class Built(Kind):
    """A layer that is made by its class, for the outputs and by some fields.

    Args:
        layer: takes the number of channels of its outputs, and by name the fields, `seed`, `dtype`
            and `name`, as a `SequenceLayer`. The layers in it have names of their own: numbers that
            Keras counts would differ from one building to the next, and with them the paths in
            checkpoints.
        *fields: the fields of `config.model` that it takes, and some other kind does not.
    """

    def __init__(self, layer: Callable[..., keras.layers.Layer], *fields: str) -> None:
        self._layer, self.own = layer, fields

    def build(
        self, model: ConfigDict, outputs: int, seed: int | None = None, **settings: Any
    ) -> keras.layers.Layer:
        """Returns the layer; it has none of the other settings."""
        own = {name: model[name] for name in self.own}
        return self._layer(
            outputs, **own, seed=seed, dtype=settings["dtype"], name="trellis"
        )

    def network(self, model: ConfigDict, outputs: int) -> str:
        """Returns in words which class the layer has."""
        return f"{class_name(self._layer)}: {outputs} units"


LAYERS: dict[str, Kind] = {
    "trellis": Trellis(),
    "equilibrium": Equilibrium(),
    "lstm": Recurrent(keras.layers.LSTM, blocks=4),
    "skip_lstm": Recurrent(keras.layers.LSTM, blocks=4, skip_input=True),
    # Keras's default: the reset gate acts on the product, as in cuDNN and PyTorch.
    "gru": Recurrent(keras.layers.GRU, blocks=3),
    # It acts on the state before the product: Cho et al. 2014, and equation (2) of Kuo et al. 2020.
    "gru_reset_before": Recurrent(
        functools.partial(keras.layers.GRU, reset_after=False), blocks=3
    ),
    # DropConnect on its recurrent matrix, `config.model.weight_dropout`; Keras's has none.
    "weight_drop_lstm": Gated(recurrent.WeightDropLSTM, blocks=4),
    "irc_gru": Gated(recurrent.IRCGRU, blocks=3),
    "irc_lstm": Gated(recurrent.IRCLSTM, blocks=4),
    "ihc_lstm": Gated(recurrent.IHCLSTM, blocks=4),
    "ihc_lstm_projected": Gated(recurrent.IHCLSTM, blocks=4, projected=True),
    "sru": Gated(recurrent.SRU, blocks=3),
    "irc_sru": Gated(recurrent.IRCSRU, blocks=3),
    "t_lstm": Gated(recurrent.TLSTM, blocks=3),
    "irc_t_lstm": Gated(recurrent.IRCTLSTM, blocks=3),
    "fast_grnn": Gated(recurrent.FastGRNN, blocks=2),
    "irc_fast_grnn": Gated(recurrent.IRCFastGRNN, blocks=2),
    "tensorized": Tensorized(),
    "grid_lstm": Grid(),
    "tcn": Temporal(),
    "transformer": Attention(),
}
# The layers that are trellis networks.
TRELLIS = tuple(name for name, kind in LAYERS.items() if kind.gated)
# Those whose loop over time is Keras's own.
KERAS_LAYERS = tuple(name for name, kind in LAYERS.items() if kind.is_keras)


def build(model: ConfigDict, outputs: int, *, seed: int, dropout: float = 0.0) -> Any:
    """Returns the layer of the group `model`.

    Args:
        model: the group.
        outputs: channels of the layer's outputs.
        seed: the seed of its masks.
        dropout: the dropout rate of its inputs.

    Raises:
        ValueError: an argument of the layer is not valid.
    """
    arguments: dict[str, Any] = {
        "seed": seed,
        "dropout": dropout,
        "dtype": model.dtype,
    }
    if model.initial_deviation:
        # Each argument gets its own object: an initializer draws the same numbers each time.
        for name in _INITIALIZERS:
            arguments[name] = keras.initializers.RandomNormal(
                stddev=model.initial_deviation
            )
    return LAYERS[model.layer].build(model, outputs, **arguments)
