"""Less memory in training: run tiles of time, and compute each again for its gradient.

A tile is a chunk of a stream: it begins from the cache that the tile before it leaves. Kept for the
gradient are these caches, and at any one time what one tile needs.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Collection, Sequence
from typing import NamedTuple

import tensorflow as tf

from keras_trellis.backend.tensorflow import with_static_shape
from keras_trellis.core import caches, masks
from keras_trellis.core.convolution import at_least_float32, last_steps, pad_left
from keras_trellis.core.network import Network, Weights
from keras_trellis.engine import streaming
from keras_trellis.engine.depth_loop import activations, ascend, recomputed
from keras_trellis.types import Cache, Number, State, Tensor

# So many steps, and at least so many of all rows, make a tile. With fewer, what each tile adds to
# the gradient of the kernel, and the operations around small products, take up to twice the time.
TILE_STEPS = 64
TILE_ROWS = 1024
# Tiles compute all steps. Levels compute fewer where fewer outputs than this part are needed.
_LEAST_OUTPUTS = 0.9


class _Tiles(NamedTuple):
    """What all tiles share.

    Attributes:
        network: the network's shape.
        weights: its weights.
        precise: by name those that there are, in float32 at least: the gradients of all tiles are
            summed in their dtype.
        chunks: the steps of each tile, `[B, n, p]`.
        stops: after how many levels to collect h, in order; the last one is the depth.
    """

    network: Network
    weights: Weights
    precise: dict[str, Tensor]
    chunks: tf.TensorArray
    stops: Sequence[int]


class _Tile(NamedTuple):
    """What a tile is computed from, and has gradients with respect to.

    Attributes:
        chunk: its steps, `[B, n, p]`.
        past: the inputs and the levels of the cache before it.
        weights: as `_Tiles.precise`.
    """

    chunk: Tensor
    past: Cache
    weights: dict[str, Tensor]


class _Carry(NamedTuple):
    """What goes from tile to tile.

    Attributes:
        past: the inputs and the levels of the cache before the next tile.
        outputs: of each tile h after each stop, then the top level's other states.
    """

    past: Cache
    outputs: list[tf.TensorArray]


def pay(network: Network, sequences: Tensor, num_outputs: Number | None) -> bool:
    """Returns whether tiles need half the memory of recomputation by levels, or less.

    They take as much time, or up to a tenth more.

    Args:
        network: the network's shape.
        sequences: `[B, T, p]`. Where T is unknown they do not pay: it may be one tile.
        num_outputs: how many of the last steps the levels are to compute; None for all.
    """
    rows, steps, _ = sequences.shape
    if not steps:
        return False
    if isinstance(num_outputs, int) and num_outputs < _LEAST_OUTPUTS * steps:
        return False
    states = network.gate.states
    count, size = _cut(rows, steps)
    pasts = count * sum(network.cached_steps)
    tile = size * network.depth * (states + network.gate.blocks)
    return 2 * (pasts + tile) <= steps * activations(network)


def run(
    network: Network,
    weights: Weights,
    sequences: Tensor,
    initial: State | None,
    mask: Tensor | None,
    stops: Collection[int],
    num_outputs: Number | None,
) -> tuple[list[Tensor], State]:
    """Runs all levels over whole sequences in training, as `whole.run`."""
    plan = masks.packing(mask)
    sequences = masks.pack(sequences, plan)
    before = initial or network.no_history(sequences)
    stops = {*stops}
    levels = sorted({*stops, network.depth})
    results = _run_tiles(network, weights, sequences, before, levels)
    hidden = results[: len(levels)]
    state = (hidden[-1], *results[len(levels) :])
    outputs = [masks.unpack(tensor, plan) for tensor in hidden[: len(stops)]]
    collected = [last_steps(tensor, num_outputs) for tensor in outputs]
    return collected, masks.last_valid(state, plan, before)


def _run_tiles(
    network: Network,
    weights: Weights,
    sequences: Tensor,
    before: State,
    stops: Sequence[int],
) -> list[Tensor]:
    """Returns h after each stop, then the top level's other states, each `[B, T, units]`."""
    rows, steps, channels = sequences.shape
    count, size = _cut(rows, steps)
    dtype = sequences.dtype
    chunks = tf.TensorArray(dtype, count).unstack(_split(sequences, count, size))
    tiles = _Tiles(network, weights, _precise(weights), chunks, stops)
    begin = caches.begin(network, channels, before)
    results = len(stops) + network.gate.states - 1
    carry = _Carry(
        # No tile reads these; what is carried is kept for the gradient of each tile.
        past=begin._replace(state=(), steps=()),  # type: ignore[arg-type]
        outputs=[tf.TensorArray(dtype, count) for _ in range(results)],
    )
    advance = functools.partial(_advance, tiles)
    carry = ascend(advance, carry, first=0, last=count, period=1)
    return [_join(array.stack(), steps) for array in carry.outputs]


def _advance(tiles: _Tiles, carry: _Carry, index: Number, _: int) -> _Carry:
    """Runs a tile."""
    tile = _Tile(tiles.chunks.read(index), carry.past, tiles.precise)
    past, results = recomputed(functools.partial(_run_tile, tiles), tile)
    outputs = [
        array.write(index, tensor)
        for array, tensor in zip(carry.outputs, results, strict=True)
    ]
    past = tf.nest.map_structure(with_static_shape, past, carry.past)
    return _Carry(past, outputs)


def _run_tile(tiles: _Tiles, tile: _Tile) -> tuple[Cache, list[Tensor]]:
    """Returns what the next tile begins from, and what is written of this one."""
    network = tiles.network
    # Rounded within the tile: so the gradients of all tiles are by the precise weights, and are
    # summed in their dtype.
    weights = _rounded(tile.weights, tiles.weights)
    advance, carry = streaming.begin(
        network, weights, tile.chunk, tile.past, None, training=True
    )
    collected = []
    # `begin` has run level 0.
    for first, last in itertools.pairwise([1, *tiles.stops]):
        carry = ascend(advance, carry, first=first, last=last, period=network.period)
        collected.append(carry.state[0])
    padded = pad_left(tile.past.inputs, tile.chunk)
    inputs = last_steps(padded, network.input_width)
    past = tile.past._replace(inputs=inputs, levels=carry.levels_after)
    return past, [*collected, *carry.state[1:]]


def _precise(weights: Weights) -> dict[str, Tensor]:
    """Returns the weights that there are, by name, in float32 at least."""
    present = {
        name: value for name, value in weights._asdict().items() if value is not None
    }
    return {name: at_least_float32(value) for name, value in present.items()}


def _rounded(precise: dict[str, Tensor], weights: Weights) -> Weights:
    """Returns precise weights in the dtypes that they had."""
    dtypes = {name: getattr(weights, name).dtype for name in precise}
    rounded = {name: tf.cast(value, dtypes[name]) for name, value in precise.items()}
    return Weights(**rounded)


def _cut(rows: int | None, steps: int) -> tuple[int, int]:
    """Returns the number of tiles and their steps; `rows` is B, or None where it is unknown."""
    wanted = TILE_STEPS
    if rows:
        wanted = max(wanted, TILE_ROWS // rows)
    count = max(round(steps / wanted), 1)
    return count, math.ceil(steps / count)


def _split(sequences: Tensor, count: int, size: int) -> Tensor:
    """Returns `[B, T, p]` as `[count, B, size, p]`, with zeros at the end."""
    _, steps, channels = sequences.shape
    missing = count * size - steps
    # Behind the last step: the network is causal, so that no step of the sequence reads them.
    padded = tf.pad(sequences, [[0, 0], [0, missing], [0, 0]])
    tiles = tf.reshape(padded, [-1, count, size, channels])
    return tf.transpose(tiles, [1, 0, 2, 3])


def _join(tiles: Tensor, steps: int) -> Tensor:
    """Returns the first T steps of `[count, B, size, C]`, `[B, T, C]`."""
    count, _, size, channels = tiles.shape
    ordered = tf.transpose(tiles, [1, 0, 2, 3])
    joined = tf.reshape(ordered, [-1, count * size, channels])
    return joined[:, :steps]
