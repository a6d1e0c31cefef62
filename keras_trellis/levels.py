"""The depth loop: one level's map applied again and again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import tensorflow as tf

Carry = TypeVar("Carry")


def iterate_levels(
    advance: Callable[[Carry, int | tf.Tensor, int], Carry],
    carry: Carry,
    *,
    first: int,
    last: int,
    period: int,
) -> Carry:
    """Applies `advance` for the levels first, ..., last - 1 in a `tf.while_loop`.

    Everything that differs between levels repeats with the dilation cycle. One turn of the loop
    is one turn of the cycle, so that each level's dilation is a constant in the graph and the
    graph's size depends on the cycle, not on the depth; the levels that are left over follow
    the loop.

    Args:
        advance: (carry, level, phase) -> carry; phase = level % period is a Python integer.
        carry: what goes from level to level, a nest of tensors.
        first: the first level.
        last: the level to stop before.
        period: the length of the dilation cycle.

    Returns:
        The carry after the last level.
    """
    turns, rest = divmod(last - first, period)

    def levels(start: int | tf.Tensor, count: int, carry: Carry) -> Carry:
        for offset in range(count):
            carry = advance(carry, start + offset, (first + offset) % period)
        return carry

    if turns:
        _, carry = tf.while_loop(
            lambda turn, _: turn < turns,
            lambda turn, carry: (turn + 1, levels(first + turn * period, period, carry)),
            (tf.constant(0), carry),
            maximum_iterations=turns,  # without it XLA cannot take the gradient
        )
    return levels(first + turns * period, rest, carry)
