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
    # The words that a round multiplies stand together, and so do the others.
    multiplied = np.stack([counters[..., 0], counters[..., 2]])
    others = np.stack([counters[..., 1], counters[..., 3]])
    key = np.stack([keys[..., 0], keys[..., 1]])
    ones = (1,) * (multiplied.ndim - 1)
    multipliers = _MULTIPLIERS.reshape(2, *ones)
    increments = _INCREMENTS.reshape(2, *ones)
    for _ in range(_ROUNDS):
        products = (multiplied * multipliers)[::-1]
        halves = products[..., None].view(np.uint32)
        multiplied = halves[..., _HIGH] ^ others
        multiplied ^= key
        others = halves[..., _LOW]
        key = key + increments
    return np.stack([multiplied[0], others[0], multiplied[1], others[1]], axis=-1)


def bits(seeds: np.ndarray, numbers: np.ndarray, count: int) -> np.ndarray:
    """Returns uniform uint32 numbers `[B, count]`.

    Those from place 4 i on are the block of the counter (i, 0, n, 0) and the key (s mod 2^32,
    s div 2^32), for a row's seed s mod 2^64 and its number n.

    Args:
        seeds: int64 `[B]`.
        numbers: `[B]`, in [0, 2^32): of each row's draw.
        count: how many for each row, up to 2^34.
    """
    blocks = -(-count // _WORDS)
    counters = np.zeros([len(seeds), blocks, _WORDS], np.uint32)
    counters[..., 0] = np.arange(blocks)
    counters[..., 2] = np.asarray(numbers)[:, None]
    seeds = np.asarray(seeds, np.int64).view(np.uint64)
    keys = np.stack([seeds, seeds >> np.uint64(32)], axis=-1).astype(np.uint32)
    return philox(counters, keys[:, None]).reshape(len(seeds), -1)[:, :count]


def gumbel(seeds: np.ndarray, numbers: np.ndarray, count: int) -> np.ndarray:
    """Returns standard Gumbel noise, float32 `[B, count]`: -log(-log u).

    u = ((bits div 2^9) + 1/2) 2^-23, the middle of one of 2^23 equal parts of (0, 1).

    Args:
        seeds: as for `bits`, and so are the others.
        numbers: of each row's draw.
        count: how many for each row.
    """
    parts = (bits(seeds, numbers, count) >> np.uint32(9)).astype(np.float32)
    uniform = (parts + np.float32(0.5)) * np.float32(2.0**-23)
    return -np.log(-np.log(uniform))
