"""Some time steps of a sequence alone: those that later levels still need."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from keras_trellis.core.convolution import rows, time_steps
from keras_trellis.engine.products import join_taps, multiply
from keras_trellis.types import Number


class Steps(NamedTuple):
    """The time steps of a sequence that are still needed: from one on, every so many.

    Attributes:
        begin: the first one; an integer, or a scalar where T is unknown.
        every: their distance.
    """

    begin: Number
    every: int


ALL = Steps(0, 1)
"""All steps. Compare with `is`: where T is unknown, `begin` is a tensor."""


def take_steps(sequences: tf.Tensor, needed: Steps) -> tf.Tensor:
    """Returns the steps of `[B, T, C]` that are needed."""
    if needed is ALL:
        return sequences
    begin, every = needed
    if every > 1:
        return sequences[:, begin::every]
    sizes = [begin, time_steps(sequences) - begin]
    _, rest = tf.split(sequences, sizes, axis=1)  # `delay` says why, and why not -1
    return rest


def strided_convolution(
    padded: tf.Tensor, kernel: tf.Tensor, dilation: int, width: int, needed: Steps
) -> tf.Tensor:
    """As `core.convolution.causal_convolution`, at some steps alone.

    Args:
        padded: `[B, W + T, input channels]`, the past and the sequence.
        kernel: `[k, input channels, output channels]`.
        dilation: the distance between two taps, in steps.
        width: W, at least (k - 1) * dilation.
        needed: the steps to compute.

    Returns:
        `[B, T', output channels]`, T' the number of steps needed.
    """
    taps = join_taps(padded, width, kernel.shape[0], dilation)
    return multiply(take_steps(taps, needed), rows(kernel))
