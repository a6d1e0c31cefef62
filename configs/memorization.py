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


def _small(model: dict) -> dict:
    """Small layers, and 8 of 16 symbols."""
    config = algorithms.small(model, train=2_000, epochs=60)
    config["data"].update(symbols=8, kinds=17)
    return config


PRESETS = algorithms.presets(
    paper, _small, trellis_units=43, lstm_units=63, stacked_units=49, grid_units=35
)
