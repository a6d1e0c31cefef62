"""Memorization of symbols; `configs.algorithms` has the sources of values."""

from configs import algorithms


def paper() -> dict:
    """The published experiment: above 99 % after 54,000 examples (recalled)."""
    config = algorithms.paper(size=10)
    config["data"].update(
        symbols=20,  # A
        kinds=65,  # recalled: 64 symbols, as in "Grid Long Short-Term Memory", and the blank
    )
    return config


def small() -> dict:
    """A trellis network and 8 of 16 symbols."""
    return _small(algorithms.trellis(units=43))


def small_tensorized() -> dict:
    """A tensorized LSTM of as many parameters."""
    return _small(algorithms.tensorized(units=40))


def small_lstm() -> dict:
    """Keras's LSTM of as many parameters."""
    return _small(algorithms.lstm(units=63))


def _small(model: dict) -> dict:
    config = algorithms.small(model, train=2_000, epochs=60)
    config["data"].update(symbols=8, kinds=17)
    return config


PRESETS = {
    "paper": paper,
    "small": small,
    "small_tensorized": small_tensorized,
    "small_lstm": small_lstm,
}
