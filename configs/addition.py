"""Addition of two numbers of as many digits; `configs.algorithms` has the sources of values."""

from configs import algorithms


def paper() -> dict:
    """The published experiment: above 99 % after 298,000 examples (recalled)."""
    config = algorithms.paper(size=7)
    config["data"].update(digits=15)  # A
    return config


def _small(model: dict) -> dict:
    """Small layers, and numbers of 3 digits."""
    config = algorithms.small(model, train=10_000, epochs=50)
    config["data"].update(digits=3)
    config["schedule"].update(epochs=(40,))
    return config


PRESETS = algorithms.presets(
    paper, _small, trellis_units=45, lstm_units=65, stacked_units=50, grid_units=35
)
