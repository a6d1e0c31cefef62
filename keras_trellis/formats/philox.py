"""Random numbers that depend on a seed, a number and a place alone: Philox 4x32-10.

Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

import sys

import numpy as np

_ROUNDS = 10
_MULTIPLIERS = np.array([0xD2511F53, 0xCD9E8D57], np.uint64)
_INCREMENTS = np.array([0x9E3779B9, 0xBB67AE85], np.uint32)
_WORDS = 4  # of a block
# With this key TensorFlow makes a key and the first counter of a seed.
_SEED_KEY = np.array([0x3EC8F720, 0x02461E29], np.uint32)
# Where the halves of a product stand, read as two words.
_LOW, _HIGH = (0, 1) if sys.byteorder == "little" else (1, 0)


def philox(counters: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Returns the block of each counter.

    Args:
        counters: `[..., 4]` uint32.
        keys: `[..., 2]` uint32.

    Returns:
        `[..., 4]` uint32.
    """
    counters, keys = (np.moveaxis(each, -1, 0) for each in (counters, keys))
    return _blocks(counters[::2], counters[1::2], keys)


def _blocks(first: np.ndarray, others: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Returns `philox` of the words 0 and 2 of counters, of words 1 and 3, each `[2, ...]`."""
    ones = (1,) * (first.ndim - 1)
    multipliers = _MULTIPLIERS.reshape(2, *ones)
    increments = _INCREMENTS.reshape(2, *ones)
    for _ in range(_ROUNDS):
        products = (first * multipliers)[::-1]
        halves = products[..., None].view(np.uint32)
        first = halves[..., _HIGH] ^ others
        first ^= key
        others = halves[..., _LOW]
        key = key + increments
    blocks = np.empty([*first.shape[1:], _WORDS], np.uint32)
    blocks[..., 0], blocks[..., 2] = first
    blocks[..., 1], blocks[..., 3] = others
    return blocks


def bits(seeds: np.ndarray, numbers: np.ndarray, count: int) -> np.ndarray:
    """Returns uniform uint32 numbers `[B, count]`.

    Those from place 4 i on are the block of the counter (i, 0, n, 0) and the key (s mod 2^32,
    s div 2^32), for a row's seed s mod 2^64 and its number n.

    Args:
        seeds: int64 `[B]`.
        numbers: `[B]`, in [0, 2^32): of each row's draw.
        count: how many for each row, up to 2^34.
    """
    rows, blocks = len(seeds), -(-count // _WORDS)
    first = np.empty([2, rows, blocks], np.uint32)
    first[0] = np.arange(blocks, dtype=np.uint32)
    first[1] = np.asarray(numbers)[:, None]
    seeds = np.ascontiguousarray(seeds, np.int64)
    words = seeds[:, None].view(np.uint32)
    key = np.stack([words[:, _LOW], words[:, _HIGH]])[..., None]
    found = _blocks(first, np.zeros_like(first), key)
    return found.reshape(rows, -1)[:, :count]


def stateless_bits(count: int, seed: tuple[int, int]) -> np.ndarray:
    """Returns the uint32 numbers `[count]` of `tf.random.stateless_uniform`, `alg="philox"`.

    Args:
        count: how many, less than 2^34.
        seed: two integers of 64 bits.
    """
    words = np.array(seed, np.int64)[:, None].view(np.uint32)
    counter = words[:, [_LOW, _HIGH]].reshape(_WORDS)
    mixed = philox(counter, _SEED_KEY)
    counters = np.zeros([-(-count // _WORDS), _WORDS], np.uint32)
    counters[:, 0] = np.arange(len(counters))
    counters[:, 2:] = mixed[2:]
    keys = np.broadcast_to(mixed[:2], [len(counters), 2])
    return philox(counters, keys).reshape(-1)[:count]


def gumbel(seeds: np.ndarray, numbers: np.ndarray, count: int) -> np.ndarray:
    """Returns standard Gumbel noise, float32 `[B, count]`: -log(-log u).

    u = ((bits div 2^9) + 1/2) 2^-23, the middle of one of 2^23 equal parts of (0, 1).

    Args:
        seeds: as for `bits`, and so are the others.
        numbers: of each row's draw.
        count: how many for each row.
    """
    noise = (bits(seeds, numbers, count) >> np.uint32(9)).astype(np.float32)
    noise += np.float32(0.5)
    noise *= np.float32(2.0**-23)
    for _ in range(2):
        np.log(noise, out=noise)
        np.negative(noise, out=noise)
    return noise
