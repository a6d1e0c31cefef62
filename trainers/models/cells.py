"""The cells that models exchange, by name."""

import functools
from collections.abc import Callable
from typing import Any

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


def output_units(name: str, cell: Any, inputs: int) -> int:
    """Returns n of a cell's output `[B, n]`.

    Args:
        name: what errors call the cell.
        cell: a Keras cell, built.
        inputs: channels of its inputs.

    Raises:
        ValueError: that is not the output's shape, or the states change theirs.
    """
    before = initial_states(cell, 1)
    output, after = cell(keras.ops.zeros([1, inputs], cell.compute_dtype), before)
    taken, returned = (
        [tuple(state.shape) for state in part] for part in (before, after)
    )
    units = getattr(cell, "units", output.shape[-1])
    if output.shape != (1, units) or taken != returned:
        raise ValueError(
            f"{name} must return an output [B, units] and states of the shapes that it takes. "
            f"Received: a {type(cell).__name__} that returns, for an input of shape (1, {inputs}) "
            f"and states of {taken}, an output of {tuple(output.shape)} and states of {returned}"
        )
    return units


def initial_states(cell: keras.layers.Layer, rows: Any) -> list[Any]:
    """Returns a cell's states at the start, each of `rows` rows."""
    # `RNN` makes zeros for a cell that has no `get_initial_state` of its own.
    layer = keras.layers.RNN(cell)
    return list(layer.get_initial_state(rows))
