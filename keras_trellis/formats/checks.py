"""Checks of what a call receives: an error names it, what was expected, and what came."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from keras_trellis.formats.limits import MOST_ALTERNATIVES, MOST_TOKENS

MODERATE = "made of numbers less than 1e18 in magnitude"
"""Sums of their products with weights stay far below the largest float32."""

_RANGES = {"max_length": (1, MOST_TOKENS), "alternatives": (0, MOST_ALTERNATIVES)}
# The least of some ids, and what those below 0 mean.
_IDS = {
    "stop_ids": (-1, "-1 (none)"),
    "forbidden_ids": (-2, "-1 (<unk>), -2 (nothing)"),
}


def moderate(values: Any) -> Any:
    """Returns where numbers of an array, or of a tensor, are `MODERATE`."""
    return abs(values) < 1e18  # false for NaN


def require(name: str, values: np.ndarray, holds: np.ndarray, expected: str) -> None:
    """Raises ValueError unless a condition holds of all values."""
    if not holds.all():
        raise ValueError(
            f"`{name}` must be {expected}. Received: {values[~holds].flat[0]}"
        )


def requirement(name: str, values: Any, size: int) -> tuple[Any, str]:
    """Returns where a setting of a request is what it must be, and what that is.

    Args:
        name: the setting's.
        values: an array, or a tensor.
        size: V.
    """
    if name in _RANGES:
        least, most = _RANGES[name]
        return (values >= least) & (values <= most), f"from {least} to {most}"
    if name == "temperature":
        return (values >= 0) & (values < math.inf), "a number of at least 0"
    if name == "top_k":
        return values >= 0, "at least 0 (0: all tokens)"
    if name == "top_p":
        return (values > 0) & (values <= 1), "in (0, 1]"
    least, others = _IDS[name]
    return (values >= least) & (values < size), f"{others} or in [0, {size})"
