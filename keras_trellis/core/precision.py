"""The precision of sums, squares and exponentials."""

from __future__ import annotations

import tensorflow as tf


def at_least_float32(tensor: tf.Tensor) -> tf.Tensor:
    """Casts half precision to float32; leaves float32 and float64 as they are."""
    if tensor.dtype == tf.float64:
        return tensor
    return tf.cast(tensor, tf.float32)
