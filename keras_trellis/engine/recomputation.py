"""Less memory in training: keep a state once a block of levels, and compute the rest again."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from keras_trellis.core.network import Network
from keras_trellis.engine.depth_loop import Advance, Carry, ascend
from keras_trellis.types import Tensor


def ascend_recomputing(
    network: Network,
    advance: Advance,
    carry: Carry,
    *,
    first: int,
    last: int,
    period: int,
) -> Carry:
    """As `depth_loop.ascend`, but computes the levels of a block again for their gradient."""
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
