"""The parts of a cache: what each level keeps of its past."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import tensorflow as tf

from keras_trellis.core.convolution import repeated, time_steps, zeros
from keras_trellis.core.masks import Packing
from keras_trellis.core.network import Network
from keras_trellis.types import Cache, State


def sizes(network: Network) -> list[tuple[int, int]]:
    """Returns for each place in the dilation cycle the number of its levels, and their width.

    The width is the number of time steps that each of these levels keeps.
    """
    cycle = len(network.cycle)
    counts = [len(range(place, network.depth, cycle)) for place in range(cycle)]
    return [(count, network.width(place)) for place, count in enumerate(counts)]


def begin(network: Network, inputs: int, state: State) -> Cache:
    """Returns the cache of sequences that have not begun.

    Args:
        network: the network's shape.
        inputs: the number of input channels, p.
        state: what stands to the left of every level, each [B, units].
    """
    total = sum(count * width for count, width in sizes(network))
    return Cache(
        inputs=zeros(state[0], network.input_width, inputs),
        levels=tuple(repeated(each, total) for each in state),
        state=tuple(state),
        steps=tf.zeros_like(state[0][:, 0], tf.int32),
    )


def keep(padded: tf.Tensor, width: int, plan: Packing | None) -> tf.Tensor:
    """Returns the last `width` valid steps of the past and the chunk together.

    Args:
        padded: [B, width + T, C], the past and the chunk, whose valid steps stand first.
        width: the length of the past.
        plan: the chunk's packing; None where all its steps are valid.

    Returns:
        [B, width, C].
    """
    if plan is None:
        return padded[:, time_steps(padded) - width :]
    places = tf.expand_dims(plan.count, 1) + tf.range(width)
    return tf.gather(padded, places, axis=1, batch_dims=1)


def split_levels(levels: tf.Tensor, parts: Sequence[tuple[int, int]]) -> list[tf.Tensor]:
    """Splits what the levels keep of one state by their place in the dilation cycle.

    Args:
        levels: [B, S, units], an entry of `Cache.levels`.
        parts: what `sizes` returns.

    Returns:
        For each place [B, levels, steps, units].
    """
    pieces = tf.split(levels, [count * width for count, width in parts], axis=1)
    return [
        tf.reshape(piece, [tf.shape(piece)[0], count, width, piece.shape[-1]])
        for piece, (count, width) in zip(pieces, parts, strict=True)
    ]


def ends(network: Network) -> Iterator[tuple[int, int]]:
    """Yields for each level, in the order of `Cache.levels`, where its steps end; its dilation."""
    end = 0
    for (count, width), dilation in zip(sizes(network), network.cycle, strict=True):
        for _ in range(count):
            end += width
            yield end, dilation


def push(levels: tf.Tensor, steps: tf.Tensor, network: Network, plan: Packing | None) -> tf.Tensor:
    """Puts one more step at the end of what each level keeps, and drops the oldest.

    Args:
        levels: [B, S, units], an entry of `Cache.levels`.
        steps: [B, L, units], a step for each level, in the same order.
        network: the network's shape.
        plan: the packing of the step; None where it is valid.

    Returns:
        [B, S, units].
    """
    places, begin = [], 0
    # A loop over steps may have lost the static shape of the cache.
    total = sum(count * width for count, width in sizes(network))
    for level, (end, _) in enumerate(ends(network)):
        places += [*range(begin + 1, end), total + level]
        begin = end
    pushed = tf.gather(tf.concat([levels, steps], axis=1), places, axis=1)
    return pushed if plan is None else tf.where(tf.expand_dims(plan.mask, -1), pushed, levels)
