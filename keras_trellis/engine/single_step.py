"""A single step of a stream, as in serving.

The products of the past taps of all levels are one product, and only those of the present tap go
level by level. Where rows are few, the time is that of reading the kernel, and this reads about
half as much. XLA compiles nothing here: servers may lack it.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf

from keras_trellis.core.convolution import masked
from keras_trellis.core.masks import Packing
from keras_trellis.core.network import Network, Weights
from keras_trellis.engine import caches, injection
from keras_trellis.engine.depth_loop import ascend
from keras_trellis.engine.injection import Addends
from keras_trellis.engine.level import (
    HiddenKernel,
    activate,
    hidden_kernel,
    hidden_products,
    some_taps,
)
from keras_trellis.types import Cache, State

# So many levels go without a loop; where there are more, they are one turn of it: a level takes so
# little time that a turn for each would take much of it.
_LEVELS = 8


class _Levels(NamedTuple):
    """What all levels of a step share.

    Attributes:
        network: the network's shape.
        addends: what joins the products.
        present: the hidden kernel of the present tap.
        delayed: for each state what the gates read of the past, [L, B, 1, units].
        products: the products of the past taps, [L, B, 1, blocks * units]; none for k = 1.
        take: takes one level's part of `delayed` and `products`.
    """

    network: Network
    addends: Addends
    present: HiddenKernel
    delayed: Sequence[Any]
    products: Sequence[Any]
    take: Callable[[Any, Any], tf.Tensor]


_Rows: TypeAlias = "dict[int, tf.Tensor] | tf.TensorArray"
"""The state below each level so far, [B, 1, units] each, by the order of `Cache.levels`."""


class _Carry(NamedTuple):
    """The state of the level below, each [B, 1, units], and for each of them the rows so far."""

    state: State
    rows: tuple[_Rows, ...]


def run(
    network: Network,
    weights: Weights,
    step: tf.Tensor,
    cache: Cache,
    plan: Packing | None,
    training: bool,
) -> tuple[State, State]:
    """Runs all levels on a single step.

    Args:
        network: the network's shape.
        weights: its weights.
        step: [B, 1, p].
        cache: the past.
        plan: the packing of the step; None where it is valid.
        training: as for `whole.run`.

    Returns:
        The top state, each [B, 1, units], and `levels` of the next cache.
    """
    hidden, depth = hidden_kernel(weights, training), network.depth
    levels = _Levels(
        network,
        injection.inject_step(network, weights, step, cache.inputs),
        some_taps(hidden, network.kernel_size - 1, network.kernel_size),
        _delayed(network, cache.levels),
        _past_products(network, cache.levels, hidden),
        tf.gather,
    )
    rows: tuple[_Rows, ...] = tuple(tf.TensorArray(each.dtype, depth) for each in cache.levels)
    period = network.period * max(1, _LEVELS // network.period)
    if depth <= _LEVELS:  # fewer operations, and no loop
        delayed, products = map(_unstacked, (levels.delayed, levels.products))
        levels = levels._replace(delayed=delayed, products=products, take=operator.getitem)
        rows, period = ({},) * len(rows), depth
    advance = functools.partial(_advance, levels)
    carry = _Carry(tuple(tf.zeros_like(each[:, :1]) for each in cache.levels), rows)
    carry = advance(carry, 0, 0, first=True)
    carry = ascend(advance, carry, first=1, last=depth, period=period)
    pairs = zip(cache.levels, map(_joined, carry.rows), strict=True)
    return carry.state, tuple(caches.push(past, each, network, plan) for past, each in pairs)


def _advance(
    levels: _Levels, carry: _Carry, index: int | tf.Tensor, phase: int, first: bool = False
) -> _Carry:
    """Runs a level. The state below the first one is zero."""
    network = levels.network
    place = _place(network, index, phase)
    total = injection.addend(network, levels.addends, phase)
    if not first:
        hidden = masked(carry.state[0], levels.present.mask)
        total += hidden_products(hidden, levels.present)
    for products in levels.products:
        total += levels.take(products, place)
    delayed = tuple(levels.take(each, place) for each in levels.delayed)
    state = network.begun(activate(network.gate, None, total, (), delayed), index)
    pairs = zip(carry.rows, carry.state, strict=True)
    return _Carry(state, tuple(_with_row(rows, place, each) for rows, each in pairs))


def _place(network: Network, index: int | tf.Tensor, phase: int) -> int | tf.Tensor:
    """Returns the place of a level in the order of `Cache.levels`."""
    place = phase % len(network.cycle)
    before = sum(count for count, _ in caches.sizes(network)[:place])
    return before + index // len(network.cycle)


def _with_row(rows: _Rows, place: int | tf.Tensor, row: tf.Tensor) -> _Rows:
    return rows | {place: row} if isinstance(rows, dict) else rows.write(place, row)


def _joined(rows: _Rows) -> tf.Tensor:
    """Returns the rows of all levels, [B, L, units]."""
    if isinstance(rows, dict):
        return tf.concat([rows[place] for place in range(len(rows))], axis=1)
    return tf.transpose(rows.stack()[:, :, 0], [1, 0, 2])


def _unstacked(tensors: Sequence[tf.Tensor]) -> list[list[tf.Tensor]]:
    return [tf.unstack(each) for each in tensors]


def _delayed(network: Network, pasts: State) -> list[tf.Tensor]:
    """Returns what the gates of all levels read, each [L, B, 1, units]."""
    places = [[end - dilation] for end, dilation in caches.ends(network)]
    return [tf.transpose(tf.gather(each, places, axis=1), [1, 0, 2, 3]) for each in pasts]


def _past_products(network: Network, pasts: State, hidden: HiddenKernel) -> list[tf.Tensor]:
    """Returns the products of the past taps: none, or [L, B, 1, blocks * units]."""
    taps = network.kernel_size - 1
    if not taps:
        return []
    ends = caches.ends(network)
    places = [end - tap * dilation for end, dilation in ends for tap in range(taps, 0, -1)]
    read = masked(tf.gather(pasts[0], places, axis=1), hidden.mask)
    read = tf.reshape(read, [-1, network.depth, taps * network.units])
    products = hidden_products(tf.transpose(read, [1, 0, 2]), some_taps(hidden, 0, taps))
    return [tf.expand_dims(products, 2)]
