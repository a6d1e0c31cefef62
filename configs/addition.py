"""Addition of two numbers of as many digits; `configs.algorithms` has the sources of values."""

from configs import algorithms


def paper() -> dict:
    """The published experiment: above 99 % after 298,000 examples (recalled)."""
    config = algorithms.paper(size=7)
    config["data"].update(digits=15)  # A
    return config


def small() -> dict:
    """A trellis network and numbers of 3 digits."""
    return _small(algorithms.trellis(units=45))


def small_tensorized() -> dict:
    """A tensorized LSTM of as many parameters."""
    return _small(algorithms.tensorized(units=40))


def small_lstm() -> dict:
    """Keras's LSTM of as many parameters."""
    return _small(algorithms.lstm(units=65))


def _small(model: dict) -> dict:
    config = algorithms.small(model, train=10_000, epochs=50)
    config["data"].update(digits=3)
    config["schedule"].update(epochs=(40,))
    return config


PRESETS = {
    "paper": paper,
    "small": small,
    "small_tensorized": small_tensorized,
    "small_lstm": small_lstm,
}
