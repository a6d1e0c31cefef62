"""The depth loop: one level's map applied again and again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import tensorflow as tf

Carry = TypeVar("Carry")

# A new segment begins where one step in so many of the first one's has become needless: a narrower
# loop is less work, but one more loop to trace, to compile and to run.
_PARTS = 14


class Segment(NamedTuple):
    """Levels that run at one width.

    Attributes:
        first: the first level.
        last: the level to stop before.
        start: the first steps, on which nothing that is kept depends, that the levels leave out.
    """

    first: int
    last: int
    start: int


def segments(
    widths: Sequence[int], *, stops: Sequence[int] = (), steps: int | None, discard: int
) -> Iterator[Segment]:
    """Cuts the levels where their outputs are collected and where they can become narrower.

    An output depends on ever fewer steps the nearer to it a level is. Where the first `discard`
    outputs are not kept, a level can leave out the steps that none of the kept ones depends on.
    What its segment computes beyond these is wrong, since it has lost its past, and harmless.

    Args:
        widths: how many steps of its past each level reads.
        stops: levels before which a segment ends.
        steps: T; None where it is not known, and all levels keep their full width.
        discard: how many of the first outputs are not kept.
    """
    depth = len(widths)
    needed = [0] * (depth + 1)  # the first step of each level's input that something depends on
    if steps is not None:
        needed[depth] = min(discard, steps - 1)  # the last step is the state, and always kept
        for level in reversed(range(depth)):
            needed[level] = max(0, needed[level + 1] - widths[level])
    first, start = 0, needed[0]
    width = (steps or 0) - start
    for level in range(1, depth):
        narrower = (needed[level] - start) * _PARTS >= width > 0
        if narrower or level in stops:
            yield Segment(first, level, start)
            first = level
            start = needed[level] if narrower else start
    yield Segment(first, depth, start)


def recomputed(function: Callable[..., Carry]) -> Callable[..., Carry]:
    """Returns `function` as one that keeps nothing but its arguments for its gradient.

    Args:
        function: of nests of tensors, through which alone gradients flow.
    """

    def call(*arguments: Any) -> Carry:
        def flat_function(*flat: tf.Tensor) -> Carry:
            return function(*tf.nest.pack_sequence_as(arguments, flat))

        return tf.recompute_grad(flat_function)(*tf.nest.flatten(arguments))

    return call


def iterate_levels(
    advance: Callable[[Carry, int | tf.Tensor, int], Carry],
    carry: Carry,
    *,
    first: int,
    last: int,
    period: int,
) -> Carry:
    """Applies `advance` for the levels first, ..., last - 1 in a `tf.while_loop`.

    Everything that differs between levels repeats with the period. One turn of the loop is one
    period, so that what differs is constant in the graph and the graph's size depends on the
    period, not on the depth; the levels that are left over follow the loop.

    Args:
        advance: (carry, level, phase) -> carry; phase = level % period is a Python integer.
        carry: what goes from level to level, a nest of tensors.
        first: the first level.
        last: the level to stop before.
        period: after how many levels everything repeats.

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
            parallel_iterations=1,  # what runs ahead of its turn only waits, in memory
        )
    return levels(first + turns * period, rest, carry)
