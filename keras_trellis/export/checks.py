"""Checks of requests in the graph: an error names the input, what was expected, and what came."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

# Products of such with weights, and their sums, are far from where float32 ends.
MODERATE = "made of numbers less than 1e18 in magnitude"


class Check(NamedTuple):
    """What must hold of an input.

    Attributes:
        name: the input's.
        values: the input, or what was made of it.
        holds: booleans of the same shape.
        expected: what the input must be.
        told: whether the error tells the first value that is wrong. A server that merges requests
            gives it to all of them, so that words of a text are not for it.
    """

    name: str
    values: tf.Tensor
    holds: tf.Tensor
    expected: str
    told: bool = True

    def refuse(self) -> tf.Operation:
        """Raises where something does not hold. The values must not be empty."""
        # The plain operation: `tf.debugging.Assert` adds two functions to the graph.
        message, holds = f"`{self.name}` must be {self.expected}", tf.reshape(self.holds, [-1])
        first = tf.argmin(tf.cast(holds, tf.int32))
        wrong = [f"{message}. Received:", tf.gather(tf.reshape(self.values, [-1]), first)]
        data = wrong if self.told else [message]
        return tf.raw_ops.Assert(condition=tf.reduce_all(holds), data=data)


def checked(
    name: str, values: tf.Tensor, holds: tf.Tensor, expected: str, told: bool = True
) -> tf.Tensor:
    """Returns `values`, once `holds` is true of all of them; see `Check`.

    Raises:
        tf.errors.InvalidArgumentError: as the graph runs.
    """
    return all_checked([Check(name, values, holds, expected, told)])[0]


def all_checked(checks: Sequence[Check]) -> list[tf.Tensor]:
    """Returns the values of checks, which are all empty or none is, once all of them hold.

    Raises:
        tf.errors.InvalidArgumentError: as the graph runs; of several, the first one's.
    """

    def refuse() -> tf.Tensor:  # looking for the value takes longer than seeing that there is none
        refused: list[tf.Operation] = []
        for check in checks:
            with tf.control_dependencies(refused):
                refused = [check.refuse()]
        with tf.control_dependencies(refused):
            return tf.constant(False)

    right = tf.reduce_all([tf.reduce_all(check.holds) for check in checks])
    check = tf.cond(right, lambda: tf.constant(True), refuse)
    with tf.control_dependencies([check]):
        return [tf.identity(each.values) for each in checks]


def moderate(values: tf.Tensor) -> tf.Tensor:
    """Returns where numbers are `MODERATE`: a model computes numbers of them, and not NaN."""
    return tf.abs(values) < 1e18  # false for NaN


def same_batch(inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Returns the inputs, once all of them have the same number of rows."""
    sizes = tf.stack([tf.shape(value)[0] for value in inputs.values()])
    message = f"{', '.join(inputs)} must have one row each for every request. Received rows:"
    same = tf.reduce_all(sizes == sizes[0])
    check = tf.raw_ops.Assert(condition=same, data=[message, sizes], summarize=len(inputs))
    with tf.control_dependencies([check]):
        return {name: tf.identity(value) for name, value in inputs.items()}
