"""The choice of the next token, in NumPy: what the signatures of an export do in their graph."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from keras_trellis.formats import philox

_AHEAD = 16  # rows of noise that are computed at once, which takes little longer than one of them


class Sampling(NamedTuple):
    """How the tokens of each row are chosen, one value a row.

    Attributes:
        temperature: divides the log-probabilities; 0: the most probable token.
        top_k: choose from so many of the most probable tokens; V or more: from all.
        top_p: choose from the fewest tokens of this probability, in (0, 1].
        seed: int64; the noise of a draw depends on it and on the draw's number alone.
    """

    temperature: np.ndarray
    top_k: np.ndarray
    top_p: np.ndarray
    seed: np.ndarray

    def rows(self, rows: np.ndarray) -> Sampling:
        """Returns the values of some rows."""
        return Sampling(*(values[rows] for values in self))


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

    def next(self) -> np.ndarray:
        """Returns the noise of each row's next draw, `[B, V]`."""
        if not self._ahead.shape[1]:
            count = max(_AHEAD // max(len(self._seeds), 1), 1)
            numbers = self._numbers[:, None] + np.arange(count)
            seeds = np.repeat(self._seeds, count)
            noise = philox.gumbel(seeds, numbers.ravel(), self._size)
            self._ahead = noise.reshape(-1, count, self._size)
            self._numbers = self._numbers + count
        noise, self._ahead = self._ahead[:, 0], self._ahead[:, 1:]
        return noise

    def choose(self, rows: np.ndarray) -> None:
        """Goes on with some of the rows."""
        self._seeds, self._numbers = self._seeds[rows], self._numbers[rows]
        self._ahead = self._ahead[rows]


def draw(scores: np.ndarray, how: Sampling, noise: Noise) -> np.ndarray:
    """Draws a token for each row: the place of the largest of filtered scores plus Gumbel noise.

    Args:
        scores: float32 `[B, V]`, log-probabilities; minus infinity for what is never drawn.
        how: how to choose.
        noise: of the draws.

    Returns:
        int32 `[B]`; of equal scores the first.
    """
    random = how.temperature > 0
    if random.any():
        # With the greatest at 0 a quotient that overflows is never that one's.
        scores = scores - scores.max(axis=-1, keepdims=True, initial=-np.inf)
        divisor = np.where(random, how.temperature, 1).astype(np.float32)
        with np.errstate(over="ignore"):
            scores = scores / divisor[:, None]
        noisy = noise.next() + filtered(scores, how.top_k, how.top_p)
        scores = noisy if random.all() else np.where(random[:, None], noisy, scores)
    return scores.argmax(axis=-1).astype(np.int32)


def filtered(scores: np.ndarray, top_k: np.ndarray, top_p: np.ndarray) -> np.ndarray:
    """Returns scores with minus infinity in place of those that are not chosen from.

    It keeps the `top_k` greatest; of these the fewest whose softmax has at least the sum `top_p`.
    What equals the least of those stays too.

    Args:
        scores: `[B, V]`.
        top_k: `[B]`, at least 1.
        top_p: `[B]`, in (0, 1].
    """
    size = scores.shape[-1]
    narrows = (top_k < size) | (top_p < 1)
    if not narrows.any():
        return scores
    count = int(np.where(narrows, np.minimum(top_k, size), 1).max())
    ordered = _greatest(scores, count)
    chosen = np.arange(count) < top_k[:, None]
    exponentials = np.where(chosen, np.exp(ordered - ordered[:, :1]), 0)
    sums = np.cumsum(exponentials, axis=-1)
    before = (sums - exponentials) / sums[:, -1:]
    # The sum may round to 1 before the last one; a `top_p` of 1 keeps all of them anyway.
    chosen &= (before < top_p[:, None]) | (top_p >= 1)[:, None]
    least = np.where(chosen, ordered, np.inf).min(axis=-1)
    least = np.where(narrows, least, -np.inf)
    return np.where(scores >= least[:, None], scores, -np.inf).astype(scores.dtype)


def _greatest(scores: np.ndarray, count: int) -> np.ndarray:
    """Returns the greatest `count` values of `[B, V]`, the greatest first."""
    negative = -scores
    if count < scores.shape[-1]:
        negative = np.partition(negative, count - 1, axis=-1)[:, :count]
    return -np.sort(negative, axis=-1)


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
    return 1 + (log_probs > own).sum(axis=-1, dtype=np.int32)
