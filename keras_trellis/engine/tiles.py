"""Less memory in training: run tiles of time, and compute each again for its gradient.

A tile begins from the cache that the tile before it leaves, as a chunk of a stream does. Kept for
the gradient are these caches, and at any one time what one tile needs.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Sequence
from typing import NamedTuple

import tensorflow as tf

from keras_trellis.backend.tensorflow import with_static_shape
from keras_trellis.core import caches
from keras_trellis.core.convolution import last_steps, pad_left
from keras_trellis.core.network import Network, Weights
from keras_trellis.engine import streaming
from keras_trellis.engine.recomputation import activations, recomputed
from keras_trellis.engine.schedule import Segment
from keras_trellis.types import Cache, State, Tensor

# So many steps, and at least so many of all rows, make a tile. With fewer, what each tile adds to
# the gradient of the kernel, and the operations around small products, take up to twice the time.
TILE_STEPS = 64
TILE_ROWS = 1024
# Tiles compute all steps. They do not pay where levels compute less of them than this.
_LEAST_COMPUTED = 0.9


class _Tile(NamedTuple):
    """What a tile is computed from.

    Attributes:
        chunk: its steps, `[B, n, p]`.
        inputs: `Cache.inputs` before it.
        levels: `Cache.levels` before it.
        weights: the weights that there are, by name.
    """

    chunk: Tensor
    inputs: Tensor
    levels: State
    weights: dict[str, Tensor]


def pay(network: Network, sequences: Tensor, parts: Sequence[Segment]) -> bool:
    """Returns whether tiles need half the memory of recomputation by levels, or less.

    They take as much time, or up to a tenth more.

    Args:
        network: the network's shape.
        sequences: `[B, T, p]`. Where T is unknown they do not pay: it may be one tile.
        parts: the segments that levels run in.
    """
    rows, steps, _ = sequences.shape
    if not steps:
        return False
    states = network.gate.states
    blocks = network.gate.blocks
    count = _count(rows, steps)
    caches_between = count * network.cached_steps * states
    tile = _size(count, steps) * network.depth * (states + blocks)
    levels = steps * activations(network)
    sizes = [(part.last - part.first) * part.after.size(steps) for part in parts]
    computed = sum(sizes) / (network.depth * steps)
    return 2 * (caches_between + tile) <= levels and computed >= _LEAST_COMPUTED


def run(
    network: Network,
    weights: Weights,
    sequences: Tensor,
    initial: State,
    stops: Collection[int],
) -> tuple[list[Tensor], State]:
    """Runs all levels over whole sequences in training.

    Args:
        network: the network's shape.
        weights: its weights.
        sequences: `[B, T, p]`.
        initial: the state to the left of every level, each `[B, units]`.
        stops: after how many levels to collect h.

    Returns:
        h after each stop, and the state of the top level, each `[B, T, units]`.
    """
    rows, steps, _ = sequences.shape
    count = _count(rows, steps)
    size = _size(count, steps)
    cut = _cut(sequences, count, size)
    chunks = tf.TensorArray(sequences.dtype, count).unstack(cut)
    cache = caches.begin(network, sequences.shape[-1], initial)
    present = {
        name: value for name, value in weights._asdict().items() if value is not None
    }
    tops = sorted({*stops, network.depth})
    run_tile = functools.partial(_run_tile, network, cache, tops)

    def turn(
        index: Tensor, inputs: Tensor, levels: State, outputs: list[tf.TensorArray]
    ) -> tuple:
        tile = _Tile(chunks.read(index), inputs, levels, present)
        after, levels_after, collected = recomputed(run_tile, tile)
        inputs = with_static_shape(after, inputs)
        levels = tuple(map(with_static_shape, levels_after, levels))
        written = [
            array.write(index, tensor)
            for array, tensor in zip(outputs, collected, strict=True)
        ]
        return index + 1, inputs, levels, written

    others = network.gate.states - 1
    outputs = [
        tf.TensorArray(sequences.dtype, count) for _ in range(len(tops) + others)
    ]
    *_, outputs = tf.while_loop(
        lambda index, *_: index < count,
        turn,
        (tf.constant(0), cache.inputs, cache.levels, outputs),
        maximum_iterations=count,  # see `depth_loop.ascend`
        parallel_iterations=1,
    )
    joined = [_join(array.stack(), steps) for array in outputs]
    hidden = joined[: len(tops)]
    collected = [h for level, h in zip(tops, hidden, strict=True) if level in stops]
    return collected, (hidden[-1], *joined[len(tops) :])


def _run_tile(
    network: Network, begin: Cache, stops: Sequence[int], tile: _Tile
) -> tuple[Tensor, State, list[Tensor]]:
    """Returns inputs and levels of the next cache, h after the stops, and the state's others."""
    cache = begin._replace(inputs=tile.inputs, levels=tile.levels)
    weights = Weights(**tile.weights)
    collected, top, levels = streaming.climb(
        network, weights, tile.chunk, cache, None, stops, training=True
    )
    padded = pad_left(tile.inputs, tile.chunk)
    inputs = last_steps(padded, network.input_width)
    return inputs, levels, [*collected, *top[1:]]


def _count(rows: int | None, steps: int) -> int:
    """Returns the number of tiles; `rows` is B, or None where it is unknown."""
    wanted = TILE_STEPS
    if rows:
        wanted = max(wanted, TILE_ROWS // rows)
    return max(round(steps / wanted), 1)


def _size(count: int, steps: int) -> int:
    """Returns the number of steps of a tile."""
    return math.ceil(steps / count)


def _cut(sequences: Tensor, count: int, size: int) -> Tensor:
    """Returns `[B, T, p]` as `[count, B, size, p]`, with zeros at the end."""
    _, steps, channels = sequences.shape
    missing = count * size - steps
    padded = tf.pad(sequences, [[0, 0], [0, missing], [0, 0]])
    tiles = tf.reshape(padded, [-1, count, size, channels])
    return tf.transpose(tiles, [1, 0, 2, 3])


def _join(tiles: Tensor, steps: int) -> Tensor:
    """Returns the first T steps of `[count, B, size, C]`, `[B, T, C]`."""
    count, _, size, channels = tiles.shape
    ordered = tf.transpose(tiles, [1, 0, 2, 3])
    joined = tf.reshape(ordered, [-1, count * size, channels])
    return joined[:, :steps]
