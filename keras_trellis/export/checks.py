"""Checks of requests in the graph: an error names the input, what was expected, and what came."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import tensorflow as tf

from keras_trellis.formats.checks import MODERATE, moderate

Tensors: TypeAlias = dict[str, tf.Tensor]
"""The inputs or the outputs of a signature by name."""


class Check(NamedTuple):
    """A condition of an input.

    Attributes:
        name: the input's.
        values: the input, or what was made of it.
        holds: booleans of the same shape.
        expected: what the input must be.
        shows_value: whether the error shows the first wrong value. A server that merges requests
            sends an error to all of them, so it must not show the words of a text.
    """

    name: str
    values: tf.Tensor
    holds: tf.Tensor
    expected: str
    shows_value: bool = True

    def refuse(self) -> tf.Operation:
        """Raises an error if the condition does not hold everywhere; takes no empty values."""
        holds = tf.reshape(self.holds, [-1])
        data = [f"`{self.name}` must be {self.expected}"]
        if self.shows_value:
            first = tf.argmin(tf.cast(holds, tf.int32))
            wrong = tf.gather(tf.reshape(self.values, [-1]), first)
            data = [f"{data[0]}. Received:", wrong]
        # The plain operation: `tf.debugging.Assert` adds two functions to the graph.
        return tf.raw_ops.Assert(condition=tf.reduce_all(holds), data=data)


def checked(
    name: str,
    values: tf.Tensor,
    holds: tf.Tensor,
    expected: str,
    shows_value: bool = True,
) -> tf.Tensor:
    """Returns `values`, if `holds` is true of all of them; see `Check`.

    Raises:
        tf.errors.InvalidArgumentError: as the graph runs.
    """
    return all_checked([Check(name, values, holds, expected, shows_value)])[0]


def all_checked(checks: Sequence[Check]) -> list[tf.Tensor]:
    """Returns the values of checks, if all of them hold. All values are empty, or none.

    Raises:
        tf.errors.InvalidArgumentError: as the graph runs; the first check's, of several.
    """

    # Finding the wrong value takes longer than knowing of none.
    def refuse() -> tf.Tensor:
        refused: list[tf.Operation] = []
        for check in checks:
            with tf.control_dependencies(refused):
                refused = [check.refuse()]
        with tf.control_dependencies(refused):
            return tf.constant(False)

    right = tf.reduce_all([tf.reduce_all(check.holds) for check in checks])
    passed = tf.cond(right, lambda: tf.constant(True), refuse)
    with tf.control_dependencies([passed]):
        return [tf.identity(check.values) for check in checks]


def sequences_and_mask(
    sequences: tf.Tensor, lengths: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the sequences of a request, and a mask `[B, T]` of their steps.

    Args:
        sequences: `[B, T, p]`; padding may be anything.
        lengths: `[B]`, the number of steps of each, at least 1.

    Raises:
        tf.errors.InvalidArgumentError: as the graph runs.
    """
    time = tf.shape(sequences)[1]
    fits = (lengths >= 1) & (lengths <= time)
    lengths = checked("lengths", lengths, fits, "from 1 to the number of steps")
    mask = tf.sequence_mask(lengths, time)
    right = moderate(sequences) | ~mask[..., None]
    return checked("sequences", sequences, right, MODERATE), mask


def same_batch(inputs: Tensors) -> Tensors:
    """Returns the inputs, if all of them have the same number of rows."""
    sizes = []
    for value in inputs.values():
        sizes.append(tf.shape(value)[0])
    message = (
        f"{', '.join(inputs)} must have one row each for every request. Received rows:"
    )
    same = tf.reduce_all(sizes == sizes[0])
    check = tf.raw_ops.Assert(
        condition=same, data=[message, sizes], summarize=len(inputs)
    )
    with tf.control_dependencies([check]):
        return {name: tf.identity(value) for name, value in inputs.items()}
