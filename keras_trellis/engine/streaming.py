"""Chunks of sequences whose past is in a cache."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from keras_trellis.backend.tensorflow import with_static_shape
from keras_trellis.core import caches, masks, streamed
from keras_trellis.core.convolution import pad_left, time_steps
from keras_trellis.core.lines import Line
from keras_trellis.core.masks import Packing
from keras_trellis.core.network import Network, Weights
from keras_trellis.engine import convolution
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
        state, levels_after = _single_step(network, weights, sequences, cache, plan)
    else:
        advance, carry = begin(
            network, weights, sequences, cache, plan, training=training
        )
        carry = ascend(
            advance, carry, first=1, last=network.depth, period=network.period
        )
        state, levels_after = carry.state, carry.levels_after
    last = masks.last_valid(state, plan, cache.state)
    return caches.finish_chunk(
        network, sequences, cache, plan, state[0], last, levels_after
    )


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


# A single step


def _single_step(
    network: Network,
    weights: Weights,
    step: Tensor,
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
    # A cache has a past below level 0 too: its first entries may be an initial state.
    table = streamed.lines(network, step.shape[-1], step.dtype.name, history=True)
    past = _read(network, cache, table)
    state, pushed = streamed.advance(network, weights, step, past, table)
    levels = []
    for number, tensor in enumerate(cache.levels):
        steps = tf.concat([pushed[name] for name in _ends(network, number)], axis=1)
        levels.append(_push(tensor, steps, network, number, plan))
    return state, tuple(levels)


def _read(
    network: Network, cache: Cache, table: Mapping[str, Line]
) -> dict[str, Tensor]:
    """Returns the entries of all lines, those of a tensor of the cache by one reading."""
    by_tensor = [{"inputs": network.input_width}]
    by_tensor += [_ends(network, number) for number in range(len(cache.levels))]
    past: dict[str, Tensor] = {}
    # In a tensor of the cache all lines stand end to end: an entry so many steps before the present
    # one stands so many before the end of its line.
    for tensor, ends in zip((cache.inputs, *cache.levels), by_tensor, strict=True):
        places = {
            name: [end - place for place in table[name].places(1)]
            for name, end in ends.items()
            if name in table
        }
        if places:
            read = tf.gather(tensor, [*itertools.chain(*places.values())], axis=1)
            parts = tf.split(read, [*map(len, places.values())], axis=1)
            past |= zip(places, parts, strict=True)
    return past


def _ends(network: Network, state: int) -> dict[str, int]:
    """Returns for the lines of a tensor of the state where their steps end in the cache's."""
    return {
        streamed.names(network, level)[state]: end
        for level, end in enumerate(caches.ends(network, state))
    }


def _push(
    levels: Tensor, steps: Tensor, network: Network, state: int, plan: Packing | None
) -> Tensor:
    """Puts one more step at the end of what each level keeps, and drops the oldest.

    Args:
        levels: `[B, S, units]`, an entry of `Cache.levels`.
        steps: `[B, L, units]`, a step for each level, from the lowest up.
        network: the network's shape.
        state: which entry it is.
        plan: the packing of the step; None where it is valid.

    Returns:
        `[B, S, units]`.
    """
    places: list[int] = []
    begin = 0
    for number in caches.order(network):
        end = begin + network.width(number, state)
        places += range(begin + 1, end)
        # The new steps stand behind all that is kept, from the lowest level up.
        places.append(network.cached_steps[state] + number)
        begin = end
    pushed = tf.gather(pad_left(levels, steps), places, axis=1)
    if plan is None:
        return pushed
    # A masked step leaves its row as it was.
    return tf.where(tf.expand_dims(plan.valid, -1), pushed, levels)
