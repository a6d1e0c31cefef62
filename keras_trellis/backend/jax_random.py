"""Random bits on JAX that are TensorFlow's: `formats.philox` of a seed and a place."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from typing import Any, TypeAlias

import jax
import numpy as np
from jax import Array as Tensor
from jax import numpy as jnp

from keras_trellis.formats import philox

Words: TypeAlias = tuple[Tensor, ...]


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
    seed = jnp.asarray(seed, "int32")[:, None]
    low, high = seed.astype("uint32"), (seed >> 31).astype("uint32")  # of 64 bits each
    words = low[0], high[0], low[1], high[1]
    return philox.seeded(words, math.prod(shape), jnp, _philox).reshape(shape)


def row_bits(seeds: Tensor, numbers: Tensor, count: int) -> Tensor:
    """Returns uniform uint32 numbers `[B, count]`; see TensorFlow's."""
    *key, row = seeds.astype("uint32").T[..., None]
    number = numbers.astype("uint32")[:, None]
    others = row, number, jnp.zeros_like(number)
    return philox.stream(key, others, count, jnp, _philox)


def _philox(counters: Words, key: Words) -> Words:
    """Returns the four words of the block of each counter, of four words, and a key of two."""

    # A loop: without one, XLA computes most of each round again in the next.
    def turn(_: Any, state: tuple[Words, Words]) -> tuple[Words, Words]:
        return philox.turned(*state, _product)

    words, _ = jax.lax.fori_loop(0, philox.ROUNDS, turn, (counters, key))
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
