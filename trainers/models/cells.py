"""The cells that models exchange, by name."""

import functools
from collections.abc import Callable

import keras

from keras_trellis import recurrent

CELLS: dict[str, Callable[..., keras.layers.Layer]] = {
    "lstm": keras.layers.LSTMCell,
    "gru": keras.layers.GRUCell,
    "irc_gru": recurrent.IRCGRUCell,
    "irc_lstm": recurrent.IRCLSTMCell,
    "ihc_lstm": recurrent.IHCLSTMCell,
    "ihc_lstm_projected": functools.partial(recurrent.IHCLSTMCell, projected=True),
}
"""Each takes its number of units. A new one is an entry here."""
