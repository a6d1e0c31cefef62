"""What a forecast is measured beside: the same week of the year before, and a linear model."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

_LAGS = 104  # weeks that the linear model sees
_PENALTIES = tuple(10.0**power for power in range(-3, 4))


class Forecasts(NamedTuple):
    """Forecasts of one model.

    Attributes:
        name: the model's.
        values: `[T, H]`, by how much each of the next weeks lies above this one.
    """

    name: str
    values: np.ndarray


def seasonal_naive(levels: np.ndarray, ahead: int, season: int) -> Forecasts:
    """Returns forecasts that each week will be as it was a season before.

    Args:
        levels: `[T]`, without gaps.
        ahead: H, the number of weeks ahead.
        season: in weeks. NaN where the series has no week so long before.
    """
    steps = np.arange(len(levels))[:, None]
    # Further ahead than a season, the last one is repeated.
    distance = np.arange(1, 1 + ahead)
    source = steps + distance - season * -(-distance // season)
    last = levels[np.maximum(source, 0)]
    values = np.where(source >= 0, last - levels[:, None], np.nan)
    return Forecasts("seasonal_naive", values)


def linear(levels: np.ndarray, train: np.ndarray, validation: np.ndarray) -> Forecasts:
    """Returns the forecasts of a ridge regression on the last 104 weeks, one for each week ahead.

    The penalty is the one with the least error on validation data; the regression itself is
    fitted to training data alone.

    Args:
        levels: `[T]`, without gaps.
        train: the targets of training data `[t, H]`, of the first t weeks; NaN for none.
        validation: those of validation data.
    """
    inputs = _lags(levels)
    fits = _known(inputs, train)
    mean, deviation = inputs[fits].mean(0), inputs[fits].std(0)
    scaled = (inputs - mean) / deviation
    checked = _known(inputs, validation)

    def error(values: np.ndarray) -> float:
        return float(np.mean((values[checked] - validation[checked]) ** 2))

    tried = _ridges(scaled, fits, train)
    best = min(tried, key=error)
    return Forecasts("linear", best)


def _ridges(
    scaled: np.ndarray, fits: np.ndarray, train: np.ndarray
) -> Iterator[np.ndarray]:
    """Yields the forecasts `[T, H]` of a regression with each penalty."""
    chosen, targets = scaled[fits], train[fits].astype("float64")
    offset = targets.mean(0)
    for penalty in _PENALTIES:
        # The penalty as further rows: their least squares are those of a ridge.
        rows = np.sqrt(penalty * len(chosen) / 1e3) * np.eye(_LAGS)
        answers = np.concatenate(
            [targets - offset, np.zeros((_LAGS, targets.shape[1]))]
        )
        weights, *_ = np.linalg.lstsq(
            np.concatenate([chosen, rows]), answers, rcond=None
        )
        yield scaled @ weights + offset


def _lags(levels: np.ndarray) -> np.ndarray:
    """Returns by how much each week lies above those before it: `[T, lags]`."""
    inputs = np.full((len(levels), _LAGS), np.nan)
    for lag in range(1, 1 + _LAGS):
        inputs[lag:, lag - 1] = levels[lag:] - levels[:-lag]
    return inputs


def _known(inputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Returns the weeks with all lags and all targets, by their places."""
    has_lags = np.isfinite(inputs[: len(targets)]).all(1)
    has_targets = np.isfinite(targets).all(1)
    return np.flatnonzero(has_lags & has_targets)
