"""The cells that models exchange, by name."""

import functools
from collections.abc import Callable

import keras

from keras_trellis import recurrent
from trainers.models.kinds import class_name

CELLS: dict[str, Callable[..., keras.layers.Layer]] = {
    "lstm": keras.layers.LSTMCell,
    "gru": keras.layers.GRUCell,
    "irc_gru": recurrent.IRCGRUCell,
    "irc_lstm": recurrent.IRCLSTMCell,
    "ihc_lstm": recurrent.IHCLSTMCell,
    "ihc_lstm_projected": functools.partial(recurrent.IHCLSTMCell, projected=True),
}
"""Each takes its number of units. A new one is an entry here."""


def cell_name(cell: str) -> str:
    """Returns a cell in words, such as "LSTM"."""
    return class_name(CELLS[cell]).replace("Cell", "")
