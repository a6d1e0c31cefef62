"""Chunks of sequences whose past is in a cache."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from keras_trellis.backend.tensorflow import with_static_shape
from keras_trellis.core import masks
from keras_trellis.core.caches import finish_chunk
from keras_trellis.core.convolution import pad_left, time_steps
from keras_trellis.core.masks import Packing
from keras_trellis.core.network import Network, Weights
from keras_trellis.engine import convolution, single_step
from keras_trellis.engine.convolution import Addends
from keras_trellis.engine.depth_loop import Advance, ascend
from keras_trellis.engine.level import HiddenKernel, Reach, hidden_kernel, level
from keras_trellis.types import Cache, Number, State, Tensor


class _Levels(NamedTuple):
    """What all levels of a chunk share.

    Attributes:
        network: the network's shape.
        hidden: the hidden kernel.
        addends: what joins the products.
        pasts: for each place in the cycle the past of each state, `[B, levels, steps, units]`.
        plan: the chunk's packing.
        training: as for `whole.run`.
    """

    network: Network
    hidden: HiddenKernel
    addends: Addends
    pasts: list[State]
    plan: Packing | None
    training: bool


class _Carry(NamedTuple):
    """What goes from level to level.

    Attributes:
        state: the state of the level below, each `[B, n, units]`.
        next_pasts: for each place in the cycle and each state what its levels keep for the next
            chunk.
    """

    state: State
    next_pasts: list[list[tf.TensorArray]]

    @property
    def levels_after(self) -> State:
        """`Cache.levels` of the next cache, after the top level."""
        return tuple(map(_joined, zip(*self.next_pasts, strict=True)))


def run(
    network: Network,
    weights: Weights,
    sequences: Tensor,
    cache: Cache,
    mask: Tensor | None = None,
    *,
    training: bool = False,
) -> tuple[Tensor, Cache]:
    """Runs all levels on their cached past, as `core.trellis.stream`.

    `training` is what it is for `whole.run`.
    """
    plan = masks.packing(mask)
    sequences = masks.pack(sequences, plan)
    if sequences.shape[1] == 1:
        state, levels_after = single_step.run(network, weights, sequences, cache, plan)
    else:
        advance, carry = begin(
            network, weights, sequences, cache, plan, training=training
        )
        carry = ascend(
            advance, carry, first=1, last=network.depth, period=network.period
        )
        state, levels_after = carry.state, carry.levels_after
    last = masks.last_valid(state, plan, cache.state)
    return finish_chunk(network, sequences, cache, plan, state[0], last, levels_after)


def begin(
    network: Network,
    weights: Weights,
    sequences: Tensor,
    cache: Cache,
    plan: Packing | None,
    *,
    training: bool,
) -> tuple[Advance, _Carry]:
    """Runs level 0.

    Args:
        network: the network's shape.
        weights: its weights.
        sequences: the chunk, packed, `[B, n, p]`.
        cache: the cache before it, of which `inputs` and `levels` are read.
        plan: its packing.
        training: as for `whole.run`.

    Returns:
        what `ascend` applies for the levels above, and what level 0 leaves.
    """
    hidden = hidden_kernel(weights, training)
    addends = convolution.inject(
        network, weights, sequences, cache.inputs, training=training
    )
    split = [
        _split_levels(network, number, tensor)
        for number, tensor in enumerate(cache.levels)
    ]
    pasts = list(zip(*split, strict=True))
    levels = _Levels(network, hidden, addends, pasts, plan, training)
    advance = functools.partial(_advance, levels)
    bottom = network.bottom(sequences, time_steps(sequences))
    arrays = []
    for past in pasts:
        empty = [tf.TensorArray(tensor.dtype, tensor.shape[1]) for tensor in past]
        arrays.append(empty)
    carry = _Carry(bottom, arrays)
    # Below level 0 all is zero but its past.
    return advance, advance(carry, 0, 0, network.width(0))


def _advance(
    levels: _Levels, carry: _Carry, index: Number, phase: int, filled: int | None = None
) -> _Carry:
    """Runs a level on its past, and keeps what the next chunk needs."""
    network = levels.network
    dilation = network.dilation(phase)
    cycle = len(network.cycle)
    place = phase % cycle
    turn = index // cycle
    arrays = list(carry.next_pasts)
    pasts = levels.pasts[place]
    # Gathered: in the loop over levels the turn is a tensor.
    past = tuple(tf.gather(tensor, turn, axis=1) for tensor in pasts)
    written = []
    by_state = zip(arrays[place], past, carry.state, network.widths(phase), strict=True)
    for array, left, below, width in by_state:
        # A level keeps what stands below it; what it makes is the past of the next one.
        padded = pad_left(left, below)
        steps = masks.last_valid_steps(padded, width, levels.plan)
        written.append(array.write(turn, steps))
    arrays[place] = written
    reach = Reach(network.kernel_size, dilation, filled)
    run_level = level(network.gate, reach, levels.hidden, training=levels.training)
    addend = convolution.addend(network, levels.addends, phase)
    state = run_level(past, carry.state, addend)
    state = tuple(map(with_static_shape, state, carry.state))
    # After each level, since chunks are not cut into segments.
    state = network.begun(state, index)
    return _Carry(state, arrays)


def _split_levels(network: Network, state: int, levels: Tensor) -> list[Tensor]:
    """Splits what the levels keep of one state by their place in the dilation cycle.

    Args:
        network: the network's shape.
        state: which one.
        levels: `[B, S, units]`, this entry of `Cache.levels`.

    Returns:
        for each place `[B, levels, steps, units]`.
    """
    cycle = len(network.cycle)
    shapes = []
    sizes = []
    for place in range(cycle):
        count = len(range(place, network.depth, cycle))
        width = network.width(place, state)
        shapes.append([-1, count, width, network.units])
        sizes.append(count * width)
    parts = tf.split(levels, sizes, axis=1)
    return list(map(tf.reshape, parts, shapes))


def _joined(arrays: Sequence[tf.TensorArray]) -> Tensor:
    """Returns an entry of `Cache.levels`, `[B, S, units]`."""
    pieces = []
    for array in arrays:
        # `[levels, B, W, units]`: in the cache a row has one level behind another, by
        # `caches.order`.
        piece = tf.transpose(array.stack(), [1, 0, 2, 3])
        shape = [tf.shape(piece)[0], -1, piece.shape[-1]]
        pieces.append(tf.reshape(piece, shape))
    return tf.concat(pieces, axis=1)
