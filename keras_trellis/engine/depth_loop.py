"""The depth loop: one level's map applied again and again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import tensorflow as tf

from keras_trellis.types import Number, Tensor

Carry = TypeVar("Carry")

Advance = Callable[[Carry, Number, int], Carry]
"""From what the levels below leave, a level and its phase to what the level leaves.

The phase, level % period, is a Python integer.
"""


def ascend(
    advance: Advance, carry: Carry, *, first: int, last: int, period: int
) -> Carry:
    """Applies `advance` for the levels first, ..., last - 1 in a `tf.while_loop`.

    Everything that differs between levels repeats with the period. One turn of the loop is one
    period, so that what differs is constant in the graph. The size of the graph thus depends on
    the period, not on the depth. The levels that are left over follow the loop.

    Args:
        advance: see `Advance`.
        carry: what goes from level to level, a nest of tensors.
        first: the first level.
        last: the level to stop before.
        period: after how many levels everything repeats.

    Returns:
        the carry after the last level.
    """
    turns = (last - first) // period
    if turns == 1:  # a loop would only take longer to trace
        turns = 0

    def turn(index: Tensor, carry: Carry) -> tuple[Tensor, Carry]:
        for offset in range(period):
            level = first + index * period + offset
            carry = advance(carry, level, (first + offset) % period)
        return index + 1, carry

    if turns:
        _, carry = tf.while_loop(
            lambda index, _: index < turns,
            turn,
            (tf.constant(0), carry),
            maximum_iterations=turns,  # without it XLA cannot differentiate the loop
            parallel_iterations=1,  # a turn that starts early only waits, and holds memory
        )
    for level in range(first + turns * period, last):
        carry = advance(carry, level, level % period)
    return carry


def handed_on(tensor: Tensor) -> Tensor:
    """Copies a loop variable that a loop returns unchanged.

    TensorFlow counts a loop variable that comes back as it went in as captured. `tf.identity`
    would do, but XLA fails on constants that pass unchanged through three loops.
    """
    return tf.reshape(tensor, tf.shape(tensor))
