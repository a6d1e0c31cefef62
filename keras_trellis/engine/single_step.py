"""A single step of a stream whose past is in a cache."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import tensorflow as tf

from keras_trellis.core import caches, streamed
from keras_trellis.core.convolution import pad_left
from keras_trellis.core.lines import Line
from keras_trellis.core.masks import Packing
from keras_trellis.core.network import Network, Weights
from keras_trellis.types import Cache, State, Tensor


def run(
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
    for level in caches.order(network):
        end = begin + network.width(level, state)
        places += range(begin + 1, end)
        # The new steps stand behind all that is kept, from the lowest level up.
        places.append(network.cached_steps[state] + level)
        begin = end
    pushed = tf.gather(pad_left(levels, steps), places, axis=1)
    if plan is None:
        return pushed
    # A masked step leaves its row as it was.
    return tf.where(tf.expand_dims(plan.valid, -1), pushed, levels)
