"""Random bits on JAX that are TensorFlow's: Philox 4x32-10 of a seed and a place.

Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from typing import Any, TypeAlias

import jax
import numpy as np
from jax import numpy as jnp

from keras_trellis.types import Tensor

Words: TypeAlias = tuple[Tensor, ...]

_ROUNDS = 10
_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_INCREMENTS = np.array([0x9E3779B9, 0xBB67AE85], "uint32")
# With this key TensorFlow makes a key and the first counter of a seed.
_SEED_KEY = np.array([0x3EC8F720, 0x02461E29], "uint32")


def stream_seed(seed: Tensor, name: str) -> Tensor:
    """Returns the seed `[2]` of the random stream `name`; see TensorFlow's."""
    return fold_in(seed, zlib.crc32(name.encode()) >> 1)


def fold_in(seed: Tensor, data: int) -> Tensor:
    """Returns a new seed `[2]` that depends on a seed, int32 `[2]`, and on an integer."""
    first = uniform_bits([1], seed)[0].astype("int32")
    return jnp.stack([first, jnp.asarray(data, "int32")])


def dropout_mask(
    seed: Tensor, name: str, rate: float, shape: Sequence[int], dtype: Any
) -> Tensor:
    """Returns a mask of inverted dropout; see TensorFlow's, whose bits it has."""
    bits = uniform_bits(shape, stream_seed(seed, name))
    is_retained = bits >= np.uint32(int(rate * 2**32))
    return is_retained.astype(dtype) * (1.0 / (1.0 - rate))


def uniform_bits(shape: Sequence[int], seed: Tensor) -> Tensor:
    """Returns the uint32 numbers of `tf.random.stateless_uniform`.

    Args:
        shape: the result's shape, of less than 2**34 numbers.
        seed: int32 `[2]`.
    """
    seed = jnp.asarray(seed, "int32")
    low, high = seed.astype("uint32"), (seed >> 31).astype("uint32")  # of 64 bits each
    words = _philox((low[0], high[0], low[1], high[1]), _SEED_KEY)
    count = math.prod(shape)
    places = jnp.arange(-(-count // 4), dtype="uint32")
    others = [jnp.broadcast_to(word, places.shape) for word in (0, *words[2:])]
    counters = (places, *(other.astype("uint32") for other in others))
    blocks = jnp.stack(_philox(counters, jnp.stack(words[:2])), axis=-1)
    return blocks.reshape(-1)[:count].reshape(shape)


def _philox(counters: Words, key: Any) -> Words:
    """Returns the four words of the block of each counter, of four words, and a key `[2]`."""

    # A loop: without one, XLA computes most of each round again in the next.
    def turn(_: Any, state: tuple[Words, Tensor]) -> tuple[Words, Tensor]:
        (first, second, third, fourth), key = state
        (high_0, low_0), (high_1, low_1) = map(_product, (first, third), _MULTIPLIERS)
        mixed = high_1 ^ second ^ key[0], low_1, high_0 ^ fourth ^ key[1], low_0
        return mixed, key + _INCREMENTS

    words, _ = jax.lax.fori_loop(0, _ROUNDS, turn, (counters, jnp.asarray(key)))
    return words


def _product(word: Tensor, multiplier: int) -> tuple[Tensor, Tensor]:
    """Returns both words of a product of two: JAX has no longer integers unless it is told to."""
    half = np.uint32(0xFFFF)
    low, high = np.uint32(multiplier & 0xFFFF), np.uint32(multiplier >> 16)
    below, above = word & half, word >> 16
    middle = above * low + (below * low >> 16)
    carried = below * high + (middle & half)
    return (
        above * high + (middle >> 16) + (carried >> 16),
        word * np.uint32(multiplier),
    )
