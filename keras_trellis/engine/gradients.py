"""Gradients of our own, which have no gradients themselves."""

from __future__ import annotations

import tensorflow as tf


def only_first(gradient: tf.Tensor | None, message: str) -> tf.Tensor | None:
    """Returns a gradient that cannot be differentiated; the error of that says `message`."""
    if gradient is None:
        return None
    return tf.raw_ops.PreventGradient(input=gradient, message=message)
