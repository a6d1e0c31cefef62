"""A single step of a stream, as in serving.

The products of the past taps of all levels are one product, and only those of the present tap go
level by level. Where rows are few, the time is that of reading the kernel, and this reads about
half as much. XLA compiles nothing here: servers may lack it.
"""

from __future__ import annotations

import functools
import operator
from typing import NamedTuple

import tensorflow as tf

from keras_trellis.core import caches
from keras_trellis.core.convolution import masked, pad_left
from keras_trellis.core.masks import Packing
from keras_trellis.core.network import Network, Weights
from keras_trellis.engine import convolution
from keras_trellis.engine.convolution import Addends, multiply
from keras_trellis.engine.depth_loop import ascend
from keras_trellis.engine.level import activate
from keras_trellis.types import Cache, Number, State

# So many levels go without a loop; where there are more, they are one turn of it: a level takes so
# little time that a turn for each would take much of it.
_LEVELS = 8


class _Levels(NamedTuple):
    """What all levels of a step share.

    Attributes:
        network: the network's shape.
        addends: what joins the products.
        kernel: the hidden kernel of the present tap, `[units, blocks * units]`.
        mask: the dropout mask of what enters the product, `[B, 1, units]`, or None.
        delayed: for each state what the gates read of the past, `[B, L, units]`.
        products: the products of the past taps, `[B, L, blocks * units]`; None for k = 1.
    """

    network: Network
    addends: Addends
    kernel: tf.Tensor
    mask: tf.Tensor | None
    delayed: list[tf.Tensor]
    products: tf.Tensor | None


class _Carry(NamedTuple):
    """What goes from level to level.

    Attributes:
        state: the state of the level below, each `[B, 1, units]`.
        rows: for each state those of all levels below, from the lowest up.
    """

    state: State
    rows: list[tf.TensorArray]


def run(
    network: Network,
    weights: Weights,
    step: tf.Tensor,
    cache: Cache,
    plan: Packing | None,
) -> tuple[State, State]:
    """Runs all levels on a single step.

    Args:
        network: the network's shape.
        weights: its weights.
        step: `[B, 1, p]`.
        cache: the past.
        plan: the packing of the step; None where it is valid.

    Returns:
        the top state, each `[B, 1, units]`, and `levels` of the next cache.
    """
    depth = network.depth
    period = network.period
    if period < _LEVELS:
        period *= _LEVELS // period
    levels = _levels(network, weights, step, cache)
    state = tuple(tf.zeros_like(tensor[:, :1]) for tensor in cache.levels)
    rows = [tf.TensorArray(tensor.dtype, depth) for tensor in state]
    advance = functools.partial(_advance, levels)
    carry = advance(_Carry(state, rows), 0, 0, first=True)
    carry = ascend(advance, carry, first=1, last=depth, period=period)
    pasts = []
    for past, array in zip(cache.levels, carry.rows, strict=True):
        # From [L, B, 1, units] to [B, L, units].
        stacked = tf.squeeze(array.stack(), 2)
        below = tf.transpose(stacked, [1, 0, 2])
        pasts.append(_push(past, below, network, plan))
    return carry.state, tuple(pasts)


def _levels(
    network: Network, weights: Weights, step: tf.Tensor, cache: Cache
) -> _Levels:
    kernel = tf.cast(weights.recurrent_kernel, step.dtype)
    addends = convolution.inject_step(network, weights, step, cache.inputs)
    dilations = [network.dilation(level) for level in range(network.depth)]
    ends = caches.ends(network)
    places = list(map(operator.sub, ends, dilations))
    delayed = [tf.gather(tensor, places, axis=1) for tensor in cache.levels]
    products = None
    if network.kernel_size > 1:
        hidden = masked(cache.levels[0], weights.state_mask)
        products = convolution.past_products(hidden, kernel[:-1], ends, dilations)
    return _Levels(network, addends, kernel[-1], weights.state_mask, delayed, products)


def _advance(
    levels: _Levels, carry: _Carry, index: Number, phase: int, first: bool = False
) -> _Carry:
    """Runs a level. The state below the first one is zero."""
    network = levels.network
    state = carry.state
    total = convolution.addend(network, levels.addends, phase)
    if not first:
        hidden = masked(state[0], levels.mask)
        total += multiply(hidden, levels.kernel)
    if levels.products is not None:
        total += _part(levels.products, index)
    delayed = tuple(_part(tensor, index) for tensor in levels.delayed)
    after = activate(network.gate, None, total, (), delayed)
    pairs = zip(carry.rows, state, strict=True)
    rows = [array.write(index, row) for array, row in pairs]
    return _Carry(network.begun(after, index), rows)


def _part(by_level: tf.Tensor, index: Number) -> tf.Tensor:
    """Returns the part of one level, `[B, 1, C]`."""
    return tf.gather(by_level, [index], axis=1)


def _push(
    levels: tf.Tensor, steps: tf.Tensor, network: Network, plan: Packing | None
) -> tf.Tensor:
    """Puts one more step at the end of what each level keeps, and drops the oldest.

    Args:
        levels: `[B, S, units]`, an entry of `Cache.levels`.
        steps: `[B, L, units]`, a step for each level, from the lowest up.
        network: the network's shape.
        plan: the packing of the step; None where it is valid.

    Returns:
        `[B, S, units]`.
    """
    places = []
    begin = 0
    for level in caches.order(network):
        end = begin + network.width(level)
        places += [*range(begin + 1, end), network.cached_steps + level]
        begin = end
    pushed = tf.gather(pad_left(levels, steps), places, axis=1)
    if plan is None:
        return pushed
    return tf.where(tf.expand_dims(plan.mask, -1), pushed, levels)
