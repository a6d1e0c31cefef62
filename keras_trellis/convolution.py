"""Causal dilated convolution, as one matrix product over concatenated taps."""

from __future__ import annotations

import tensorflow as tf


def pad_left(context: tf.Tensor, sequences: tf.Tensor) -> tf.Tensor:
    """Puts the past [B, W, C] to the left of [B, T, C]: [B, W + T, C]."""
    return tf.concat([context, sequences], axis=1)


def delay(padded: tf.Tensor, width: int, steps: int) -> tf.Tensor:
    """Returns the sequence delayed by some steps, out of its padded form.

    Args:
        padded: [B, W + T, C], the past and the sequence.
        width: W, the length of the past.
        steps: the delay, 0 to W.

    Returns:
        [B, T, C]; at step t the value of step t - steps.
    """
    return padded[:, width - steps : -steps if steps else None]


def causal_convolution(
    padded: tf.Tensor, kernel: tf.Tensor, dilation: int, width: int
) -> tf.Tensor:
    """Returns sum_j kernel[j] x_{t - (k - 1 - j) dilation}.

    One two-dimensional product of the concatenated taps: on the machines measured it is faster
    than a convolution operation, forwards and backwards.

    Args:
        padded: [B, W + T, input channels], the past and the sequence.
        kernel: [k, input channels, output channels].
        dilation: the distance between two taps, in steps.
        width: W, at least (k - 1) * dilation.

    Returns:
        [B, T, output channels].
    """
    size, inputs, outputs = kernel.shape
    taps = [delay(padded, width, (size - 1 - tap) * dilation) for tap in range(size)]
    joined = taps[0] if size == 1 else tf.concat(taps, axis=-1)
    # Not tf.tensordot: with unknown sizes XLA cannot take its gradient in a loop.
    rows = tf.reshape(joined, [-1, size * inputs])
    products = tf.matmul(rows, tf.reshape(kernel, [size * inputs, outputs]))
    return tf.reshape(products, tf.concat([tf.shape(joined)[:-1], [outputs]], axis=0))
