"""Random numbers that depend on a seed, a number and a place alone: Philox 4x32-10.

Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.

NumPy computes them here. With other arrays `philox` is another function, made of `turned`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

# The words of a block, of those of a counter and of a key.
_Philox: TypeAlias = Callable[[Any, Any], Any]

ROUNDS = 10
_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_INCREMENTS = np.uint32(0x9E3779B9), np.uint32(0xBB67AE85)
# With this key TensorFlow makes a key and the first counter of a seed.
_SEED_KEY = np.array([[0x3EC8F720], [0x02461E29]], np.uint32)


def turned(words: Any, key: Any, product: Callable[..., Any]) -> tuple[Any, Any]:
    """Returns the four words of counters after a round, and the two of the next round's key.

    Args:
        words: of the counters, arrays of uint32.
        key: two such words.
        product: of words and a word as an integer; returns its upper word and its lower one.
    """
    first, second, third, fourth = words
    high_0, low_0 = product(first, _MULTIPLIERS[0])
    high_1, low_1 = product(third, _MULTIPLIERS[1])
    turned_words = high_1 ^ second ^ key[0], low_1, high_0 ^ fourth ^ key[1], low_0
    return turned_words, (key[0] + _INCREMENTS[0], key[1] + _INCREMENTS[1])


def philox(counters: Any, key: Any) -> Any:
    """Returns the four words of the blocks of counters, of four words each, and of a key of two."""
    for _ in range(ROUNDS):
        counters, key = turned(counters, key, _product)
    return counters


def _product(words: np.ndarray, multiplier: int) -> tuple[np.ndarray, np.ndarray]:
    products = words * np.uint64(multiplier)
    return (products >> np.uint64(32)).astype(np.uint32), products.astype(np.uint32)


def stream(
    key: Any, others: Any, count: int, arrays: Any = np, philox: _Philox = philox
) -> Any:
    """Returns uniform uint32 numbers `[B, count]`; from place 4 i on, the block of a counter.

    Args:
        key: two words `[B, 1]`.
        others: three words `[B, 1]`: the counter is (i, *others).
        count: how many for each row, up to 2^34.
        arrays: NumPy, or what has its names.
        philox: of such arrays.
    """
    places = arrays.arange(-(-count // 4), dtype="uint32")
    counters = arrays.broadcast_arrays(places, *others)
    blocks = arrays.stack(philox(tuple(counters), tuple(key)), axis=-1)
    return blocks.reshape(len(blocks), -1)[:, :count]


def bits(seeds: np.ndarray, numbers: np.ndarray, count: int, row: Any = 0) -> Any:
    """Returns uniform uint32 numbers `[B, count]`.

    Those from place 4 i on are the block of the counter (i, r, n, 0) and the key (s mod 2^32,
    s div 2^32), for a row's seed s mod 2^64, its number n, and r.

    Args:
        seeds: int64 `[B]`.
        numbers: `[B]`, in [0, 2^32): of each row's draw.
        count: how many for each row, up to 2^34.
        row: r, where rows share a seed: integers `[B]`.
    """
    words = [np.ravel(each)[:, None] for each in (seeds, seeds >> 32, row, numbers, 0)]
    *key, row, numbers, zero = (each.astype(np.uint32) for each in words)
    return stream(key, (row, numbers, zero), count)


def seeded(words: Any, count: int, arrays: Any = np, philox: _Philox = philox) -> Any:
    """Returns the uint32 numbers `[1, count]` of `tf.random.stateless_uniform`, `alg="philox"`.

    Args:
        words: `[1]` each, of a seed of two integers of 64 bits, the lower word of each first.
        count: how many, less than 2^34.
        arrays: as for `stream`, and so is `philox`.
        philox: of such arrays.
    """
    *key, third, fourth = philox(tuple(words), tuple(_SEED_KEY))
    zero = arrays.zeros_like(third)
    return stream(key, (zero[:, None], third, fourth), count, arrays, philox)


def stateless_bits(count: int, seed: tuple[int, int]) -> np.ndarray:
    """Returns the numbers `[count]` of `seeded`, of two integers of 64 bits."""
    words = [np.array([part >> shift]) for part in seed for shift in (0, 32)]
    row: np.ndarray = seeded([word.astype(np.uint32) for word in words], count)[0]
    return row
