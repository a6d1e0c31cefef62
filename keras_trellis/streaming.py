"""What a trellis network keeps of its past: the parts of a cache, and a stateful layer's memory."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from keras_trellis.masks import Packing
from keras_trellis.types import Cache


class Memory(tf.Module):
    """The variables that hold a stateful layer's cache.

    They are not among the layer's weights, as an LSTM's are not: the weights of a layer trained
    without state fit the same layer with it.
    """

    def create(self, cache: Cache) -> None:
        """Creates the variables, with the values of `cache`."""
        self._cache = tf.nest.map_structure(self._variable, cache)

    @staticmethod
    def _variable(value: tf.Tensor) -> tf.Variable:
        # Under a strategy every replica goes on with its own rows.
        return tf.Variable(
            value,
            trainable=False,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )

    def read(self) -> Cache:
        """Returns the variables' values."""
        return tf.nest.map_structure(lambda variable: variable.read_value(), self._cache)

    def write(self, cache: Cache) -> None:
        """Gives the variables the values of `cache`."""
        tf.nest.map_structure(lambda variable, value: variable.assign(value), self._cache, cache)

    def reset(self) -> None:
        """Sets all variables to zero, the cache of sequences that have not begun."""
        tf.nest.map_structure(
            lambda variable: variable.assign(tf.zeros_like(variable)), self._cache
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
        return padded[:, tf.shape(padded)[1] - width :]
    places = tf.expand_dims(plan.count, 1) + tf.range(width)
    return tf.gather(padded, places, axis=1, batch_dims=1)


def split_levels(levels: tf.Tensor, sizes: Sequence[tuple[int, int]]) -> list[tf.Tensor]:
    """Splits what the levels keep of one state by their place in the dilation cycle.

    Args:
        levels: [B, S, units], an entry of `Cache.levels`.
        sizes: for each place the number of its levels and the steps that each keeps.

    Returns:
        For each place [B, levels, steps, units].
    """
    parts = tf.split(levels, [count * width for count, width in sizes], axis=1)
    return [
        tf.reshape(part, [tf.shape(part)[0], count, width, part.shape[-1]])
        for part, (count, width) in zip(parts, sizes, strict=True)
    ]


def join_levels(arrays: Sequence[tf.TensorArray], units: int) -> tf.Tensor:
    """Joins what `split_levels` splits.

    Args:
        arrays: for each place in the cycle [B, steps, units] a level.
        units: the number of hidden channels.

    Returns:
        [B, S, units].
    """
    parts = []
    for array in arrays:
        part = tf.transpose(array.stack(), [1, 0, 2, 3])
        parts.append(tf.reshape(part, [tf.shape(part)[0], -1, units]))
    return tf.concat(parts, axis=1)
