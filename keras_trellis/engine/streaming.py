"""Chunks of sequences whose past is in a cache."""

from __future__ import annotations

import functools
from typing import NamedTuple

import tensorflow as tf

from keras_trellis.core import masks
from keras_trellis.core.convolution import pad_left, time_steps, zeros
from keras_trellis.core.masks import Packing
from keras_trellis.core.network import Network, Weights
from keras_trellis.engine import caches, injection, single_step
from keras_trellis.engine.depth_loop import ascend, with_shape_of
from keras_trellis.engine.injection import Addends
from keras_trellis.engine.level import HiddenKernel, Reach, hidden_kernel, level
from keras_trellis.types import Cache, State

_Arrays = tuple[list[tf.TensorArray], ...]
"""For each state and each place in the cycle what its levels keep for the next chunk."""


class _Levels(NamedTuple):
    """What all levels of a chunk share.

    Attributes:
        network: the network's shape.
        hidden: the hidden kernel.
        addends: what joins the products.
        pasts: for each state and each place in the cycle the past, [B, levels, steps, units].
        plan: the chunk's packing.
        training: as for `whole.run`.
    """

    network: Network
    hidden: HiddenKernel
    addends: Addends
    pasts: list[list[tf.Tensor]]
    plan: Packing | None
    training: bool


class _Carry(NamedTuple):
    state: State
    arrays: _Arrays


def run(
    network: Network,
    weights: Weights,
    sequences: tf.Tensor,
    cache: Cache,
    mask: tf.Tensor | None = None,
    *,
    training: bool = False,
) -> tuple[tf.Tensor, Cache]:
    """Runs all levels on their cached past.

    Args:
        network: the network's shape.
        weights: its weights.
        sequences: the next steps, [B, n, p].
        cache: the past.
        mask: bool [B, n], or None.
        training: as for `whole.run`.

    Returns:
        h of the top level, [B, n, units], and the next cache.
    """
    plan = masks.packing(mask)
    sequences = masks.pack(sequences, plan)
    if sequences.shape[1] == 1:
        state, kept = single_step.run(network, weights, sequences, cache, plan, training)
        return next_cache(network, sequences, cache, plan, state, kept)
    sizes = caches.sizes(network)
    levels = _Levels(
        network,
        hidden_kernel(weights, training),
        injection.inject(network, weights, sequences, cache.inputs),
        [caches.split_levels(each, sizes) for each in cache.levels],
        plan,
        training,
    )
    advance = functools.partial(_advance, levels)
    state = (zeros(sequences, None, network.units),) * network.gate.states
    arrays = tuple([tf.TensorArray(each.dtype, count) for count, _ in sizes] for each in state)
    # Below level 0 all is zero but its past.
    carry = advance(_Carry(state, arrays), 0, 0, network.width(0))
    carry = ascend(advance, carry, first=1, last=network.depth, period=network.period)
    kept = tuple(map(_joined, carry.arrays))
    return next_cache(network, sequences, cache, plan, carry.state, kept)


def _advance(
    levels: _Levels, carry: _Carry, index: int | tf.Tensor, phase: int, filled: int | None = None
) -> _Carry:
    """Runs a level on its past, and keeps what the next chunk needs."""
    network = levels.network
    place, turn = phase % len(network.cycle), index // len(network.cycle)
    past = tuple(tf.gather(each[place], turn, axis=1) for each in levels.pasts)
    arrays = tuple(list(each) for each in carry.arrays)
    for array, left, below in zip(arrays, past, carry.state, strict=True):
        kept = caches.keep(pad_left(left, below), network.width(phase), levels.plan)
        array[place] = array[place].write(turn, kept)
    reach = Reach(network.kernel_size, network.dilation(phase), filled)
    run_level = level(network.gate, reach, levels.hidden, training=levels.training)
    addend = injection.addend(network, levels.addends, phase)
    state = run_level(past, carry.state, addend)
    state = tuple(map(with_shape_of, state, carry.state))
    return _Carry(network.begun(state, index), arrays)


def _joined(arrays: list[tf.TensorArray]) -> tf.Tensor:
    """Returns an entry of `Cache.levels`, [B, S, units]."""
    pieces = []
    for array in arrays:
        piece = tf.transpose(array.stack(), [1, 0, 2, 3])
        pieces.append(tf.reshape(piece, [tf.shape(piece)[0], -1, piece.shape[-1]]))
    return tf.concat(pieces, axis=1)


def next_cache(
    network: Network,
    sequences: tf.Tensor,
    cache: Cache,
    plan: Packing | None,
    state: State,
    levels: State,
) -> tuple[tf.Tensor, Cache]:
    """Returns h of the top level, its steps moved back, and the cache after a chunk.

    Args:
        network: the network's shape.
        sequences: the chunk, packed, [B, n, p].
        cache: the cache before it.
        plan: its packing.
        state: the top level's state, each [B, n, units].
        levels: those of the next cache.
    """
    last = cache.state[0]
    seen = tf.expand_dims(cache.steps > 0, -1)
    hidden = masks.unpack(state[0], plan, tf.where(seen, last, tf.zeros_like(last)))
    padded = pad_left(cache.inputs, sequences)
    return hidden, Cache(
        inputs=caches.keep(padded, network.input_width, plan),
        levels=levels,
        state=masks.last_valid(state, plan, cache.state),
        steps=cache.steps + (time_steps(sequences) if plan is None else plan.count),
    )
