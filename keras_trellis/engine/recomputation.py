"""Less memory in training: keep a state once a block of levels, and compute the rest again."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from keras_trellis.core.network import Network
from keras_trellis.engine.depth_loop import Advance, Carry, ascend


def ascend_recomputing(
    network: Network, advance: Advance, carry: Carry, *, first: int, last: int, period: int
) -> Carry:
    """As `depth_loop.ascend`, but computes the levels of a block again for their gradient."""
    size = _block(network)
    blocks = (last - first) // size
    rest = first + blocks * size
    run = functools.partial(ascend, advance, period=period)
    block = recomputed(functools.partial(run, first=first, last=first + size))
    carry = ascend(lambda carry, *_: block(carry), carry, first=0, last=blocks, period=1)
    return recomputed(functools.partial(run, first=rest, last=last))(carry)


def _block(network: Network) -> int:
    """Returns how many levels make a block, in whole periods.

    What is kept is the state once a block, and the state and the products at each level of one
    block. This size makes the sum least.
    """
    states, blocks = network.gate.states, network.gate.blocks
    size = math.sqrt(network.depth * states / (states + blocks))
    return network.period * max(1, round(size / network.period))


def recomputed(function: Callable[..., Carry]) -> Callable[..., Carry]:
    """Returns `function` as one that keeps only its arguments for its gradient.

    Args:
        function: of nests of tensors. Gradients flow through these alone.
    """

    def call(*arguments: Any) -> Carry:
        def flat_function(*flat: tf.Tensor) -> Carry:
            return function(*tf.nest.pack_sequence_as(arguments, flat))

        return tf.recompute_grad(flat_function)(*tf.nest.flatten(arguments))

    return call
