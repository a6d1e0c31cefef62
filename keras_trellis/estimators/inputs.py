"""What `fit` and `predict` take: one series `[T, p]` of each case, without its gaps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_array, validate_data


def is_long(X: Any, id: str) -> bool:
    """Returns whether `X` is a DataFrame with a row for each step, and a column of ids."""
    return hasattr(X, "groupby") and id in X.columns


def series(
    estimator: Any, X: Any, id: str, time: str | None, *, reset: bool
) -> list[np.ndarray]:
    """Returns the series, each `[T, p]`, float32; a step with NaN in a channel is left out.

    Args:
        estimator: keeps the number of channels, and for tables that of columns.
        X: as `SeriesClassifier.fit` takes it.
        id: the column of a long DataFrame that says which series a row is of.
        time: the column that orders the rows of a series; None: they are in order.
        reset: whether this is `fit`.

    Raises:
        ValueError: X has another form, or other channels than in `fit`; a number is infinite, or a
            series has no step without NaN.
    """
    if is_long(X, id):
        cases = _long(X, id, time)
    elif isinstance(X, (list, tuple)) and _is_ragged(X):
        cases = [_checked(case).T for case in X]
    else:
        cases = _array(estimator, X, reset)
    channels = {case.shape[1] for case in cases}
    if reset:
        estimator.channels_ = min(channels)
    if channels != {estimator.channels_}:
        raise ValueError(
            f"Each series must have {estimator.channels_} channels, as the first in `fit`. "
            f"Received: {sorted(channels)} channels"
        )
    return [_without_gaps(number, case) for number, case in enumerate(cases)]


def padded(cases: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Returns series side by side, `[N, T, p]` with zeros after each, and their mask `[N, T]`."""
    lengths = np.array([len(case) for case in cases])
    mask = np.arange(lengths.max()) < lengths[:, None]
    values = np.zeros((*mask.shape, cases[0].shape[1]), "float32")
    values[mask] = np.concatenate(cases)
    return values, mask


def _long(X: Any, id: str, time: str | None) -> list[np.ndarray]:
    channels = [name for name in X.columns if name not in (id, time)]
    rows = X if time is None else X.sort_values(time, kind="stable")
    # In the order in which the ids come in X, as `y` has the answers.
    groups = dict(iter(rows.groupby(id, sort=False)))
    return [_checked(groups[name][channels]) for name in X[id].unique()]


def _is_ragged(X: Sequence[Any]) -> bool:
    """Returns whether a list has series of its own: arrays, rather than the rows of a table."""
    return any(np.ndim(case) == 2 for case in X) or len({*map(np.size, X)}) > 1


def _array(estimator: Any, X: Any, reset: bool) -> list[np.ndarray]:
    """Returns the series of an array `[N, p, T]`, or of a table `[N, T]` of one channel."""
    if np.asarray(X).ndim == 3:
        checked = check_array(
            X, dtype="float32", ensure_all_finite="allow-nan", allow_nd=True
        )
        return [*checked.transpose(0, 2, 1)]
    table = validate_data(
        estimator, X, reset=reset, dtype="float32", ensure_all_finite="allow-nan"
    )
    return [*table[..., None]]


def _checked(case: Any) -> np.ndarray:
    """Returns one series `[a, b]`, of one channel if it is a list of numbers."""
    case = np.atleast_2d(case) if np.ndim(case) < 2 else case
    return check_array(case, dtype="float32", ensure_all_finite="allow-nan")


def _without_gaps(number: int, case: np.ndarray) -> np.ndarray:
    kept = case[~np.isnan(case).any(axis=1)]
    if not len(kept):
        raise ValueError(
            "Each series must have a step with all of its channels. Received: none in "
            f"series {number}, all of whose {len(case)} steps have NaN"
        )
    return kept
