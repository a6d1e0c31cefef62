"""The depth loop: one level's map applied again and again.

With less memory in training it keeps a state once a block of levels, and computes the rest again.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, TypeVar

import tensorflow as tf

from keras_trellis.core.network import Network
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


def ascend_recomputing(
    network: Network,
    advance: Advance,
    carry: Carry,
    *,
    first: int,
    last: int,
    period: int,
) -> Carry:
    """As `ascend`, but computes the levels of a block again for their gradient."""
    size = _block(network)
    blocks = (last - first) // size
    rest = first + blocks * size
    run = functools.partial(ascend, advance, period=period)
    block = functools.partial(run, first=first, last=first + size)

    def advance_block(carry: Carry, *_: Any) -> Carry:
        return recomputed(block, carry)

    carry = ascend(advance_block, carry, first=0, last=blocks, period=1)
    # Fewer levels than a block, or none.
    remainder = functools.partial(run, first=rest, last=last)
    return recomputed(remainder, carry)


def activations(network: Network) -> float:
    """Returns how many numbers of a channel and a step `ascend_recomputing` keeps."""
    size = _block(network)
    states = network.gate.states
    blocks = network.gate.blocks
    return network.depth / size * states + size * (states + blocks)


def _block(network: Network) -> int:
    """Returns how many levels make a block, in whole periods.

    What is kept is the state once a block, and the state and the products at each level of one
    block. This size makes the sum least.
    """
    # The root of the derivative of `activations`.
    states = network.gate.states
    blocks = network.gate.blocks
    size = math.sqrt(network.depth * states / (states + blocks))
    periods = max(1, round(size / network.period))
    return periods * network.period


def recomputed(function: Callable[[Carry], Any], carry: Carry) -> Any:
    """Applies a function, and keeps only its argument, a nest of tensors, for its gradient."""

    def flat_function(*flat: Tensor) -> Any:
        return function(tf.nest.pack_sequence_as(carry, flat))

    # A captured tensor would get no gradient: whatever has one comes in as an argument.
    recomputed = tf.recompute_grad(flat_function)
    return recomputed(*tf.nest.flatten(carry))
