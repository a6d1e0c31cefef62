"""Checks of what a call receives: an error names it, what was expected, and what came."""

from __future__ import annotations

import numpy as np

MODERATE = "made of numbers less than 1e18 in magnitude"
"""Sums of their products with weights stay far below the largest float32."""


def moderate(values: np.ndarray) -> np.ndarray:
    """Returns where numbers are `MODERATE`."""
    is_moderate: np.ndarray = np.abs(values) < 1e18  # false for NaN
    return is_moderate


def require(name: str, values: np.ndarray, holds: np.ndarray, expected: str) -> None:
    """Raises ValueError unless a condition holds of all values."""
    if not holds.all():
        raise ValueError(
            f"`{name}` must be {expected}. Received: {values[~holds].flat[0]}"
        )
