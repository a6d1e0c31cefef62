"""The choice of the next token, in NumPy, and in `keras.ops` for models and their exports."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from keras_trellis.formats import philox

_AHEAD = 16  # rows of noise that are computed at once, which takes little longer than one of them


class Sampling(NamedTuple):
    """How the tokens of each row are chosen, one value a row; or of one row.

    Attributes:
        temperature: divides the log-probabilities; 0: the most probable token.
        top_k: choose from so many of the most probable tokens; V or more: from all.
        top_p: choose from the fewest tokens of this probability, in (0, 1].
        seed: int64; the noise of a draw depends on it and on the draw's number alone.
    """

    temperature: Any
    top_k: Any
    top_p: Any
    seed: Any


def gumbel(bits: Any, dtype: Any = "float32", arrays: Any = np) -> Any:
    """Returns standard Gumbel noise of uint32 numbers: -log(-log u).

    u = ((bits div 2^9) + 1/2) 2^-23, the middle of one of 2^23 equal parts of (0, 1).

    Args:
        bits: of any shape.
        dtype: of the noise.
        arrays: NumPy or `keras.ops`.
    """
    parts = arrays.array(arrays.right_shift(bits, 9), dtype)
    return -arrays.log(-arrays.log((parts + 0.5) * 2.0**-23))


class Noise:
    """The Gumbel noise of one draw of each row after the other.

    Args:
        seeds: int64 `[B]`.
        numbers: `[B]`, the number of each row's first draw.
        size: V.
    """

    def __init__(self, seeds: np.ndarray, numbers: np.ndarray, size: int) -> None:
        self._seeds = seeds
        self._numbers = numbers
        self._size = size
        self._ahead = np.zeros([len(seeds), 0, size], np.float32)

    def __call__(self) -> np.ndarray:
        """Returns the noise of each row's next draw, `[B, V]`."""
        if not self._ahead.shape[1]:
            count = max(_AHEAD // max(len(self._seeds), 1), 1)
            numbers = self._numbers[:, None] + np.arange(count)
            seeds = np.repeat(self._seeds, count)
            noise = gumbel(philox.bits(seeds, numbers.ravel(), self._size))
            self._ahead = noise.reshape(-1, count, self._size)
            self._numbers = self._numbers + count
        noise, self._ahead = self._ahead[:, 0], self._ahead[:, 1:]
        return noise


class Operations(NamedTuple):
    """What a draw takes of a library of arrays.

    Attributes:
        arrays: what has the names that NumPy and `keras.ops` share.
        cond: calls one of two functions.
        argmax: `[B, V]` to the places of the largest, int32 `[B]`; of equals the first.
        greatest: scores `[B, V]` and a number n to at least the n greatest, the greatest first.
    """

    arrays: Any
    cond: Callable[..., Any]
    argmax: Callable[..., Any]
    greatest: Callable[..., Any]


def _greatest(scores: np.ndarray, count: int) -> np.ndarray:
    """Returns the greatest `count` values of `[B, V]`, the greatest first."""
    negative = -scores
    if count < scores.shape[-1]:
        negative = np.partition(negative, count - 1, axis=-1)[:, :count]
    return -np.sort(negative, axis=-1)


NUMPY = Operations(
    arrays=np,
    cond=lambda holds, one, other: one() if holds else other(),
    argmax=lambda scores: scores.argmax(axis=-1).astype(np.int32),
    greatest=_greatest,
)
"""NumPy's."""


def draw(
    scores: Any, how: Sampling, noise: Callable[[], Any], by: Operations = NUMPY
) -> Any:
    """Draws a token for each row: the place of the largest of filtered scores plus Gumbel noise.

    Args:
        scores: `[B, V]`, log-probabilities; minus infinity for what is never drawn.
        how: how to choose.
        noise: returns the noise of the draw, `[B, V]`.
        by: the operations.

    Returns:
        int32 `[B]`; of equal scores the first.
    """
    arrays = by.arrays
    temperature = how.temperature[:, None]
    random = temperature > 0

    def drawn() -> Any:
        # With the greatest at 0 a quotient that overflows is never that one's.
        greatest = arrays.max(scores, axis=-1, keepdims=True, initial=-math.inf)
        shifted = (scores - greatest) / arrays.where(random, temperature, 1)
        noisy = filtered(shifted, how.top_k, how.top_p, by) + noise()
        return by.argmax(arrays.where(random, noisy, scores))

    # Noise takes longer than the time step of many models.
    with np.errstate(over="ignore"):
        return by.cond(arrays.any(random), drawn, lambda: by.argmax(scores))


def filtered(scores: Any, top_k: Any, top_p: Any, by: Operations = NUMPY) -> Any:
    """Returns scores with minus infinity in place of those that are not chosen from.

    It keeps the `top_k` greatest; of these the fewest whose softmax has at least the sum `top_p`
    (nucleus sampling: Holtzman et al., 2020). What equals the least of those stays too.

    Args:
        scores: `[B, V]`.
        top_k: `[B]`, at least 1.
        top_p: `[B]`, in (0, 1].
        by: the operations.
    """
    arrays = by.arrays
    size = arrays.shape(scores)[-1]
    narrows = (top_k < size) | (top_p < 1)

    def narrowed() -> Any:
        most = arrays.max(arrays.where(narrows, arrays.minimum(top_k, size), 1))
        ordered = by.greatest(scores, most)
        places = arrays.arange(arrays.shape(ordered)[-1], dtype="int32")
        chosen = places < top_k[:, None]
        exponentials = arrays.where(chosen, arrays.exp(ordered - ordered[:, :1]), 0)
        sums = arrays.cumsum(exponentials, axis=-1)
        before = (sums - exponentials) / sums[:, -1:]
        # The sum may round to 1 before the last one; a `top_p` of 1 keeps all of them anyway.
        chosen &= (before < top_p[:, None]) | (top_p >= 1)[:, None]
        candidates = arrays.where(chosen, ordered, math.inf)
        least = arrays.min(candidates, axis=-1, initial=math.inf)
        least = arrays.where(narrows, least, -math.inf)
        return arrays.where(scores >= least[:, None], scores, -math.inf)

    # Sorting a large vocabulary takes longer than the rest of a draw.
    return by.cond(arrays.any(narrows), narrowed, lambda: scores)


def likeliest(
    log_probs: np.ndarray, count: int, asked: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the most probable tokens of `[N, V]` and their log-probabilities, each `[N, count]`.

    The most probable comes first, and of equals the one with the smaller id.

    Args:
        log_probs: the log-probabilities.
        count: how many, at most V.
        asked: `[N]`, after how many of a row stand -1 and 0; None: after none.
    """
    ids = np.zeros([len(log_probs), count], np.int32)
    if not ids.size:
        return ids, ids.astype(log_probs.dtype)
    least = _greatest(log_probs, count)[:, -1]
    for row, values in enumerate(log_probs):
        candidates = np.flatnonzero(values >= least[row])
        order = np.argsort(-values[candidates], kind="stable")
        ids[row] = candidates[order[:count]]
    best = np.take_along_axis(log_probs, ids, axis=-1)
    if asked is None:
        return ids, best
    inside = np.arange(count) < asked[:, None]
    return np.where(inside, ids, -1), np.where(inside, best, 0)


def ranks(log_probs: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Returns how many tokens of `[N, V]` are more probable than each target `[N]`, plus 1."""
    own = np.take_along_axis(log_probs, targets[:, None], axis=-1)
    above: np.ndarray = (log_probs > own).sum(axis=-1, dtype=np.int32)
    return 1 + above
