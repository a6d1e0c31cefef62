"""Sequences without a time step, where a loop over time needs one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from keras_trellis.core.convolution import time_steps, zeros
from keras_trellis.types import State


def run(
    loop: Callable[[tf.Tensor, State, Any], tuple[tf.Tensor, State]],
    sequences: tf.Tensor,
    state: State,
    mask: tf.Tensor | None,
) -> tuple[tf.Tensor, State]:
    """Runs a loop over time. Without a step there are no outputs, and the state stays.

    Args:
        loop: from sequences `[B, T, p]` with T >= 1, a state and a mask to the outputs and the
            state after the last step.
        sequences: `[B, T, p]`.
        state: the state before the first step, each `[B, channels]`.
        mask: bool `[B, T]`, or None.

    Returns:
        the outputs `[B, T, channels]` and the state after the last step.
    """
    if sequences.shape[1]:
        return loop(sequences, state, mask)
    time = time_steps(sequences)
    is_empty = tf.equal(time, 0)
    missing = tf.cast(is_empty, tf.int32)
    more = zeros(sequences, missing, sequences.shape[-1])
    sequences = tf.concat([sequences, more], axis=1)
    if mask is not None:
        mask = tf.pad(mask, [[0, 0], [0, missing]])
    outputs, after = loop(sequences, state, mask)
    pairs = zip(state, after, strict=True)
    return outputs[:, :time], tuple(tf.where(is_empty, *pair) for pair in pairs)
