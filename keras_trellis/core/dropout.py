"""Dropout masks as values: a layer draws them once a call and passes them on.

A mask is a pure function of a seed, the same eagerly, in a graph and under XLA. The generator is
always Philox, since TensorFlow's default differs under XLA.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, TypeAlias

import keras
import tensorflow as tf

from keras_trellis import arguments
from keras_trellis.types import Number

_GENERATOR = "philox"

Shape: TypeAlias = Sequence[Number] | tf.Tensor


class Rate:
    """A dropout rate as an attribute of a layer: you may set it at any time, to a rate in [0, 1).

    The layer has a `seed`. Its constructor sets all rates first, then `seed_generator` to
    `generator_for(seed, *rates)`.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    # There is no `__get__`: Python then reads the value among the layer's own attributes.
    def __set__(self, layer: Any, value: Any) -> None:
        rate = vars(layer)[self._name] = arguments.rate(self._name, value)
        if rate and vars(layer).get("seed_generator", self) is None:
            # Not by assignment: Keras lets a built layer have no more variables. A generator from
            # the start, as an LSTM has it, would shift the variables of models saved before.
            object.__setattr__(
                layer, "seed_generator", keras.random.SeedGenerator(layer.seed)
            )


def generator_for(seed: int | None, *rates: float) -> keras.random.SeedGenerator | None:
    """Returns the generator of masks; None if all rates are zero."""
    if any(rates):
        return keras.random.SeedGenerator(seed)
    return None


def next_seed(seed_generator: keras.random.SeedGenerator) -> tf.Tensor:
    """Advances the generator and returns a seed, int32 `[2]`; every replica gets another one."""
    seed = tf.cast(seed_generator.next(), tf.int32)
    replica = tf.distribute.get_replica_context()
    if replica is None or replica.num_replicas_in_sync == 1:
        return seed
    return fold_in(seed, replica.replica_id_in_sync_group)


def stream_seed(seed: tf.Tensor, name: str) -> tf.Tensor:
    """Returns the seed `[2]` of the random stream `name`, derived from `seed` `[2]`.

    The name is hashed the same way in every process. Give each use a name of its own.
    """
    return fold_in(seed, zlib.crc32(name.encode()) >> 1)  # an int32


def fold_in(seed: tf.Tensor, data: Number) -> tf.Tensor:
    """Returns a new seed `[2]` that depends on `seed` `[2]` and on an integer."""
    return tf.random.fold_in(seed, data, alg=_GENERATOR)


def dropout_mask(
    shape: Shape, rate: float, seed: tf.Tensor, dtype: tf.DType
) -> tf.Tensor:
    """Returns a mask of inverted dropout: 0 with probability `rate`, else 1 / (1 - rate).

    Args:
        shape: the mask's shape.
        rate: the probability of a zero, in [0, 1).
        seed: int32 `[2]`.
        dtype: the mask's type.
    """
    least = tf.constant(int(rate * 2**32), tf.uint32)
    is_retained = uniform_bits(shape, seed) >= least
    return tf.cast(is_retained, dtype) * (1.0 / (1.0 - rate))


def stream_mask(
    seed: tf.Tensor | None,
    name: str,
    rate: float,
    shape: Shape,
    dtype: tf.DType,
) -> tf.Tensor | None:
    """Returns the mask of the random stream `name`; None without a seed or a rate.

    Args:
        seed: the seed of the call, int32 `[2]`; None for a call without dropout.
        name: the name of the random stream.
        rate: the probability of a zero, in [0, 1).
        shape: the mask's shape.
        dtype: the mask's type.
    """
    if seed is None or not rate:
        return None
    return dropout_mask(shape, rate, stream_seed(seed, name), dtype)


def uniform_bits(shape: Shape, seed: tf.Tensor) -> tf.Tensor:
    """Returns uniform uint32 numbers.

    They are integers: XLA and TensorFlow's kernels turn the same bits into different floats.

    Args:
        shape: the result's shape.
        seed: int32 `[2]`.
    """
    return tf.random.stateless_uniform(
        shape, seed, minval=None, maxval=None, dtype=tf.uint32, alg=_GENERATOR
    )
