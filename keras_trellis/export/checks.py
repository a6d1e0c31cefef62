"""Checks of requests in the graph: an error names the input, what was expected, and what came."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

# Products of such with weights, and their sums, are far from where float32 ends.
MODERATE = "made of numbers less than 1e18 in magnitude"


def checked(
    name: str, values: tf.Tensor, holds: tf.Tensor, expected: str, told: bool = True
) -> tf.Tensor:
    """Returns `values`, once `holds` is true of all of them.

    Args:
        name: the input's.
        values: the input, or what was made of it.
        holds: booleans of the same shape.
        expected: what the input must be.
        told: whether the error tells the first value that is wrong. A server that merges requests
            gives it to all of them, so that words of a text are not for it.

    Raises:
        tf.errors.InvalidArgumentError: as the graph runs.
    """

    def refuse() -> tf.Tensor:  # looking for the value takes longer than seeing that there is none
        message = f"`{name}` must be {expected}"
        wrong = [f"{message}. Received:", tf.boolean_mask(values, ~holds)[:1]]
        tf.debugging.Assert(False, wrong if told else [message])
        return tf.constant(False)

    check = tf.cond(tf.reduce_all(holds), lambda: tf.constant(True), refuse)
    with tf.control_dependencies([check]):
        return tf.identity(values)


def moderate(values: tf.Tensor) -> tf.Tensor:
    """Returns where numbers are `MODERATE`: a model computes numbers of them, and not NaN."""
    return tf.abs(values) < 1e18  # false for NaN


def same_batch(inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Returns the inputs, once all of them have the same number of rows."""
    sizes = tf.stack([tf.shape(value)[0] for value in inputs.values()])
    message = f"{', '.join(inputs)} must have one row each for every request. Received rows:"
    check = tf.debugging.Assert(
        tf.reduce_all(sizes == sizes[0]), [message, sizes], summarize=len(inputs)
    )
    with tf.control_dependencies([check]):
        return {name: tf.identity(value) for name, value in inputs.items()}
