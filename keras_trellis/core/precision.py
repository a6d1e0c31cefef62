"""The precision of sums, squares and exponentials."""

from __future__ import annotations

import keras
from keras import ops

from keras_trellis.types import Tensor


def at_least_float32(tensor: Tensor) -> Tensor:
    """Casts half precision to float32; leaves float32 and float64 as they are."""
    if keras.backend.standardize_dtype(tensor.dtype) == "float64":
        return tensor
    return ops.cast(tensor, "float32")
