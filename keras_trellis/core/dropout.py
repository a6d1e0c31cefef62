"""Dropout masks as values: drawn once a call, passed on, never kept.

Masks are a pure function of a seed, and the same one whether the caller runs eagerly, in a graph
or under XLA: the generator is named (Philox), since TensorFlow's default differs between them.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from keras_trellis import arguments

_GENERATOR = "philox"


class Rate:
    """A dropout rate as an attribute of a layer: it may be set at any time, to a rate in [0, 1).

    The layer has a `seed`, and sets `seed_generator` to `generator_for(seed, *rates)` when it
    has set all of its rates.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, layer: Any, owner: type | None = None) -> Any:
        if layer is None:
            return self
        try:
            return vars(layer)[self._name]
        except KeyError:
            raise AttributeError(self._name) from None

    def __set__(self, layer: Any, value: Any) -> None:
        rate = vars(layer)[self._name] = arguments.rate(self._name, value)
        if rate and vars(layer).get("seed_generator", self) is None:
            # Past Keras, which lets a built layer have no more variables. An LSTM has its generator
            # from the start, here one would shift the variables of models that were saved before.
            object.__setattr__(layer, "seed_generator", keras.random.SeedGenerator(layer.seed))


def generator_for(seed: int | None, *rates: float) -> keras.random.SeedGenerator | None:
    """Returns what masks of these rates are drawn from: None where nothing is dropped."""
    return keras.random.SeedGenerator(seed) if any(rates) else None


def next_seed(seed_generator: keras.random.SeedGenerator) -> tf.Tensor:
    """Advances the generator and returns a seed, int32 [2], another one on every replica."""
    seed = tf.cast(seed_generator.next(), tf.int32)
    replica = tf.distribute.get_replica_context()
    if replica is None or replica.num_replicas_in_sync == 1:
        return seed
    return fold_in(seed, replica.replica_id_in_sync_group)


def stream_seed(seed: tf.Tensor, name: str) -> tf.Tensor:
    """Returns the seed [2] of the random stream `name` among those that derive from `seed` [2].

    The name is hashed the same way in every process. Give each use a name of its own.
    """
    return fold_in(seed, zlib.crc32(name.encode()) >> 1)  # an int32


def fold_in(seed: tf.Tensor, data: int | tf.Tensor) -> tf.Tensor:
    """Returns a new seed [2] that depends on `seed` [2] and on an integer."""
    return tf.random.fold_in(seed, data, alg=_GENERATOR)


def dropout_mask(
    shape: Sequence[int | tf.Tensor] | tf.Tensor, rate: float, seed: tf.Tensor, dtype: tf.DType
) -> tf.Tensor:
    """Returns a mask of inverted dropout: 0 with probability `rate`, else 1 / (1 - rate).

    Args:
        shape: the mask's shape.
        rate: the probability of a zero, in [0, 1).
        seed: int32 [2].
        dtype: the mask's type.
    """
    kept = uniform_bits(shape, seed) >= tf.constant(int(rate * 2**32), tf.uint32)
    return tf.cast(kept, dtype) * tf.constant(1.0 / (1.0 - rate), dtype)


def uniform_bits(shape: Sequence[int | tf.Tensor] | tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Returns uniform uint32 numbers.

    Integers, because XLA makes other floats of the generator's bits than TensorFlow's kernels.

    Args:
        shape: the result's shape.
        seed: int32 [2].
    """
    return tf.random.stateless_uniform(
        shape, seed, minval=None, maxval=None, dtype=tf.uint32, alg=_GENERATOR
    )
