"""The caches of an export: dictionaries of arrays, which carry the fingerprint of their model."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from keras_trellis.formats.checks import MODERATE, moderate, require
from keras_trellis.formats.limits import MOST_STEPS
from keras_trellis.formats.manifest import Tensor
from keras_trellis.formats.names import FINGERPRINT, STEPS
from keras_trellis.serving.sessions import Arrays


class Caches:
    """Makes the caches of a model, and checks those of requests.

    Args:
        tensors: its tensors, by name.
        fingerprint: of the model.
    """

    def __init__(self, tensors: Mapping[str, Tensor], fingerprint: int) -> None:
        self._fingerprint = fingerprint
        self._first = {
            name: np.full(tensor.sizes, tensor.first, tensor.dtype)
            for name, tensor in tensors.items()
        }
        self._first[FINGERPRINT] = np.array(fingerprint, np.int64)

    def empty(self, rows: int) -> Arrays:
        """Returns the cache of no text, for so many rows."""
        return {
            name: np.repeat(one[None], rows, 0) for name, one in self._first.items()
        }

    def checked(self, cache: Mapping[str, np.ndarray], rows: int) -> Arrays:
        """Returns the cache of a request.

        Raises:
            ValueError: it is not of this model, of so many rows, or not what a call returned.
        """
        if not isinstance(cache, Mapping) or cache.keys() != self._first.keys():
            names = ", ".join(self._first)
            given = ", ".join(cache) if isinstance(cache, Mapping) else type(cache)
            raise ValueError(
                f"`cache` must be what a call of this model returned, with {names}. "
                f"Received: {given}"
            )
        return {name: self._checked(name, cache[name], rows) for name in self._first}

    def _checked(self, name: str, value: np.ndarray, rows: int) -> np.ndarray:
        first = self._first[name]
        value = np.asarray(value)
        if value.shape != (rows, *first.shape) or value.dtype != first.dtype:
            raise ValueError(
                f"`{name}` must be {first.dtype} of shape {[rows, *first.shape]}, a row for each "
                f"row of `ids`. Received: {value.dtype} of shape {list(value.shape)}"
            )
        if name == FINGERPRINT:
            holds = value == self._fingerprint
            expected = f"{self._fingerprint}: the cache must be of this model"
        elif name == STEPS:
            holds = (value >= 0) & (value <= MOST_STEPS)
            expected = f"from 0 to {MOST_STEPS}"
        elif value.dtype.kind == "f":
            holds = moderate(value)
            expected = MODERATE
        else:
            return value
        require(name, value, holds, expected)
        return value
