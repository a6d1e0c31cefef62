"""The parts of a cache: what each level keeps of its past."""

from __future__ import annotations

import itertools

import tensorflow as tf

from keras_trellis.core.convolution import pad_left, repeated, zeros
from keras_trellis.core.masks import Packing
from keras_trellis.core.network import Network
from keras_trellis.types import Cache, State


def order(network: Network) -> list[int]:
    """Returns the levels in the order of `Cache.levels`, by their place in the dilation cycle."""
    cycle = len(network.cycle)
    return sorted(range(network.depth), key=lambda level: level % cycle)


def ends(network: Network) -> list[int]:
    """Returns for each level, from the lowest up, where its steps end in `Cache.levels`."""
    levels = order(network)
    sums = itertools.accumulate(map(network.width, levels))
    end_by_level = dict(zip(levels, sums, strict=True))
    return [end_by_level[level] for level in range(network.depth)]


def begin(network: Network, inputs: int, state: State) -> Cache:
    """Returns the cache of sequences that have not begun.

    Args:
        network: the network's shape.
        inputs: the number of input channels, p.
        state: what stands to the left of every level, each `[B, units]`.
    """
    return Cache(
        inputs=zeros(state[0], network.input_width, inputs),
        levels=tuple(repeated(tensor, network.cached_steps) for tensor in state),
        state=state,
        steps=tf.zeros_like(state[0][:, 0], tf.int32),
    )


def shapes(network: Network, inputs: int, rows: int | None) -> Cache:
    """Returns the shapes of a cache of so many rows; None where their number is unknown."""
    units = network.units
    states = network.gate.states
    level = tf.TensorShape([rows, network.cached_steps, units])
    state = tf.TensorShape([rows, units])
    return Cache(
        inputs=tf.TensorShape([rows, network.input_width, inputs]),
        levels=(level,) * states,
        state=(state,) * states,
        steps=tf.TensorShape([rows]),
    )


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
