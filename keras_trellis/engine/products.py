"""Taps and products as `keras_trellis.core.convolution` has them, in TensorFlow's fastest form."""

from __future__ import annotations

import functools

import tensorflow as tf

from keras_trellis.core import convolution
from keras_trellis.core.convolution import rows, time_steps


def delay(padded: tf.Tensor, width: int, steps: int) -> tf.Tensor:
    """Returns a sequence delayed by some steps, cut from its padded form.

    Args:
        padded: `[B, W + T, C]`, the past and the sequence.
        width: W, the length of the past.
        steps: the delay, 0 to W.

    Returns:
        `[B, T, C]`; at step t the value of step t - steps.
    """
    # The gradient of a split takes a fraction of the time of that of an index. ONNX Runtime has no
    # split of size -1 where T is unknown.
    sizes = [width - steps, time_steps(padded) - width, steps]
    _, delayed, _ = tf.split(padded, sizes, axis=1)
    return delayed


join_taps = functools.partial(convolution.join_taps, delay=delay)
"""`core.convolution.join_taps`, by this module's `delay`."""


def multiply(
    sequences: tf.Tensor, matrix: tf.Tensor, transpose: bool = False
) -> tf.Tensor:
    """Returns `[B, T, C]` times `[C, C']` (or its transpose), `[B, T, C']`, as one 2-D product.

    `tf.tensordot` will not do: XLA cannot differentiate it in a loop with unknown sizes.
    """
    products = tf.matmul(rows(sequences), matrix, transpose_b=transpose)
    channels = products.shape[-1]
    steps = sequences.shape[1]
    if steps:  # fewer operations, which counts where there is a single step
        return tf.reshape(products, [-1, steps, channels])
    rows_and_steps = tf.shape(sequences)[:2]
    shape = tf.concat([rows_and_steps, [channels]], axis=0)
    return tf.reshape(products, shape)
