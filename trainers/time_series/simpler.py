"""What one answer for a window is scored beside: three models that take seconds, or less."""

from typing import Any

import numpy as np

from trainers.data.recordings import SeriesData, whole
from trainers.time_series.models import scaled_steps

NAMES = ("majority", "mean", "neighbour", "ridge")
_STEPS = (16, 128)  # least and most of the windows that are compared
_PRODUCTS = 3e8  # of all comparisons together, about
_NEIGHBOURS = 500  # most training windows that are neighbours
_BAND = 0.1  # of a series: how far a step may be from the one that it is compared with
_PAIRS = 20_000  # side by side
_LAGS = 20  # of the correlations of a channel with itself


def answers(data: SeriesData, split: str) -> dict[str, np.ndarray]:
    """Returns the answers of the simpler models for the windows of a split, by their names.

    They read training windows, and those for test data validation windows too: by these the
    network's weights were chosen.

    - "majority": the most frequent class; of numbers "mean".
    - "neighbour": the answer of the nearest window by dynamic time warping (Sakoe and Chiba, 1978),
      in a band of a tenth of its steps. Windows are brought to as many steps as fit in seconds,
      and of many training windows some hundred are read, evenly.
    - "ridge": a linear model, with the penalty that cross-validation chooses, of the same steps and
      of the correlations of each channel with itself, up to 20 steps later.

    Raises:
        ImportError: scikit-learn is not installed.
    """
    parts = ["train", "validation"] if split == "test" else ["train"]
    windows, targets = (
        np.concatenate([getattr(data, part)[place] for part in parts])
        for place in range(2)
    )
    asked = getattr(data, split).inputs
    every = -(-len(windows) // _NEIGHBOURS)
    steps = _steps(len(windows) // every, asked)
    read, query = (_resampled(data, part, steps) for part in (windows, asked))
    if classes := bool(data.facts.classes):
        guess = {"majority": np.bincount(targets).argmax()}
    else:
        guess = {"mean": targets.mean()}
    same = {name: np.full(len(asked), value) for name, value in guess.items()}
    near = distances(query, read[::every]).argmin(axis=1)
    linear = _ridge(classes).fit(_features(read), targets).predict(_features(query))
    return {**same, "neighbour": targets[::every][near], "ridge": linear}


def distances(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Returns the distances `[N, M]` of series `[N, L, p]` and `[M, L, p]` by time warping."""
    rows = max(1, _PAIRS // len(right))
    parts = [left[start : start + rows] for start in range(0, len(left), rows)]
    return np.concatenate([_warped(part, right) for part in parts])


def _warped(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Fills the table of costs row by row: the least cost of a way that ends in each cell."""
    steps = left.shape[1]
    band = max(1, int(_BAND * steps))
    shape = (len(left), len(right))
    above = {-1: np.zeros(shape)}  # the way begins before the first cell
    nowhere = np.full(shape, np.inf)
    for row in range(steps):
        costs: dict[int, np.ndarray] = {}
        for column in range(max(0, row - band), min(steps, row + band + 1)):
            difference = left[:, None, row] - right[None, :, column]
            before = np.minimum(
                above.get(column, nowhere), above.get(column - 1, nowhere)
            )
            before = np.minimum(before, costs.get(column - 1, nowhere))
            costs[column] = before + np.sum(difference**2, -1)
        above = costs
    return above[steps - 1]


def _steps(known: int, asked: np.ndarray) -> int:
    """Returns how many steps windows are brought to, so that comparing them takes seconds."""
    count, steps, channels = asked.shape
    products = known * count * channels * 2 * _BAND
    return int(np.clip(min(steps, np.sqrt(_PRODUCTS / products)), *_STEPS))


def _resampled(data: SeriesData, windows: np.ndarray, steps: int) -> np.ndarray:
    """Returns scaled windows without their gaps, `[N, steps, p]`, by linear interpolation."""
    made = []
    for window in windows:
        values = window[whole(window)]
        if not len(values):  # nothing but gaps: the mean
            values = np.array([data.facts.mean])
        values = np.asarray(scaled_steps(values, data.facts))
        places = np.linspace(0, len(values) - 1, steps)
        every = np.arange(len(values))
        made.append([np.interp(places, every, channel) for channel in values.T])
    return np.array(made).transpose(0, 2, 1)


def _features(series: np.ndarray) -> np.ndarray:
    """Returns the steps of series and their correlations, `[N, F]`."""
    centred = series - series.mean(1, keepdims=True)
    lags = range(min(_LAGS, series.shape[1] - 1))
    correlations = [
        (centred[:, lag:] * centred[:, : len(centred[0]) - lag]).mean(1) for lag in lags
    ]
    return np.concatenate([series.reshape(len(series), -1), *correlations], axis=1)


def _ridge(classes: bool) -> Any:
    """Returns scikit-learn's ridge regression of scaled features."""
    from sklearn import linear_model, pipeline, preprocessing

    kind = linear_model.RidgeClassifierCV if classes else linear_model.RidgeCV
    penalties = np.logspace(-3, 5, 9)
    return pipeline.make_pipeline(
        preprocessing.StandardScaler(), kind(alphas=penalties)
    )
