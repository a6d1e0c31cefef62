"""The parts of a cache, as the engine splits them and puts them together."""

from __future__ import annotations

import tensorflow as tf

from keras_trellis.core.caches import order
from keras_trellis.core.convolution import pad_left
from keras_trellis.core.masks import Packing
from keras_trellis.core.network import Network


def split_levels(network: Network, levels: tf.Tensor) -> list[tf.Tensor]:
    """Splits what the levels keep of one state by their place in the dilation cycle.

    Args:
        network: the network's shape.
        levels: `[B, S, units]`, an entry of `Cache.levels`.

    Returns:
        for each place `[B, levels, steps, units]`.
    """
    cycle = len(network.cycle)
    shapes = []
    sizes = []
    for place in range(cycle):
        count = len(range(place, network.depth, cycle))
        width = network.width(place)
        shapes.append([-1, count, width, network.units])
        sizes.append(count * width)
    parts = tf.split(levels, sizes, axis=1)
    return list(map(tf.reshape, parts, shapes))


def push(
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
    for level in order(network):
        end = begin + network.width(level)
        places += [*range(begin + 1, end), network.cached_steps + level]
        begin = end
    pushed = tf.gather(pad_left(levels, steps), places, axis=1)
    if plan is None:
        return pushed
    return tf.where(tf.expand_dims(plan.mask, -1), pushed, levels)
