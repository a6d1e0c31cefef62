"""How a language model reads ids: chunk after chunk, each row to its own end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

import numpy as np

from keras_trellis.formats.limits import CHUNK
from keras_trellis.formats.names import FINGERPRINT
from keras_trellis.serving.sessions import Arrays, Session

_RETURNED = 2**22  # log-probabilities that one call returns at most, 16 MiB of them
_STEPS = 3  # so few columns are read sooner by steps than by a chunk

Visit: TypeAlias = Callable[[np.ndarray, np.ndarray, np.ndarray], None]
"""Takes rows `[N]`, places `[N]` in them, and the log-probabilities `[N, V]` of what follows."""


class Prediction(NamedTuple):
    """What comes next.

    Attributes:
        log_probs: float32 `[B, V]`, of the next token.
        cache: what was read, for the calls that go on.
    """

    log_probs: np.ndarray
    cache: Arrays


class Reader:
    """Reads ids from a cache on; nothing is checked.

    Args:
        step: (ids `[B]` and a cache) to (log-probabilities `[B, V]` and the next cache).
        chunk: the same for ids and a mask `[B, CHUNK]`, whose valid places come first, and
            log-probabilities `[B, CHUNK, V]`.
        vocabulary_size: V.
    """

    def __init__(self, step: Session, chunk: Session, vocabulary_size: int) -> None:
        self._step = step
        self._chunk = chunk
        self._size = vocabulary_size

    def step(self, ids: np.ndarray, cache: Mapping[str, np.ndarray]) -> Prediction:
        """Reads one token a row, `[B]`."""
        return _prediction(self._step({"ids": ids, **cache}), cache)

    def chunk(
        self, ids: np.ndarray, mask: np.ndarray, cache: Mapping[str, np.ndarray]
    ) -> Prediction:
        """Reads up to `CHUNK` tokens a row.

        Args:
            ids: `[B, CHUNK]`.
            mask: bool `[B, CHUNK]`, which of them count: the first ones of each row.
            cache: what came before.

        Returns:
            log-probabilities `[B, CHUNK, V]` of what follows each, and the next cache.
        """
        return _prediction(self._chunk({"ids": ids, "mask": mask, **cache}), cache)

    def most_rows(self, size: int) -> int:
        """Returns how many rows of so many tokens one call may have."""
        return max(_RETURNED // (size * self._size), 1)

    def read(
        self,
        ids: np.ndarray,
        lengths: np.ndarray,
        cache: Mapping[str, np.ndarray],
        visit: Visit | None = None,
    ) -> Prediction:
        """Reads rows to their ends.

        Args:
            ids: `[B, T]`.
            lengths: `[B]`, how many of each row to read; what comes after an empty row, which no
                other precedes, is what comes after no text.
            cache: what came before; it stays as it is.
            visit: is given what follows each id.
        """
        if ids.shape[1] == 1 and visit is None and lengths.all():
            return self.step(ids[:, 0], cache)
        log_probs = np.zeros([len(ids), self._size], np.float32)
        # So that the last chunk is as long as the others: the export takes no other length.
        padded = np.pad(ids, [(0, 0), (0, CHUNK)])
        cache = {name: np.array(value) for name, value in cache.items()}
        for rows, begin, size in self._calls(lengths):
            places = begin + np.arange(size)
            valid = places < lengths[rows, None]
            chunk = padded[rows, begin : begin + size]
            given = {name: value[rows] for name, value in cache.items()}
            # A step takes no mask: `_calls` gives it no row that has ended.
            if size == 1:
                last, after = self.step(chunk[:, 0], given)
                answer = last[:, None]
            else:
                answer, after = self.chunk(chunk, valid, given)
            for name, value in after.items():
                cache[name][rows] = value
            if visit is not None and valid.any():
                row, place = np.nonzero(valid)
                visit(rows[row], place + begin, answer[valid])
            # Rows whose last id stands in this call. An empty one has its answer at a masked place,
            # the first: that of no text.
            ends = lengths[rows] <= begin + size
            last = np.maximum(lengths[rows] - begin - 1, 0)
            log_probs[rows[ends]] = answer[ends, last[ends]]
        return Prediction(log_probs, cache)

    def _calls(self, lengths: np.ndarray) -> Iterator[tuple[np.ndarray, int, int]]:
        """Yields which rows to read at once, from which place on, and how many of their ids."""
        width = max(int(lengths.max(initial=0)), 1)
        begin = 0
        while begin < width:
            # Empty rows are read once too, for what comes after no text.
            rows = np.flatnonzero((lengths > begin) | (begin == 0))
            size = 1 if width - begin <= _STEPS and lengths[rows].all() else CHUNK
            most = self.most_rows(size)
            for first in range(0, len(rows), most):
                yield rows[first : first + most], begin, size
            begin += size


def _prediction(answer: Arrays, before: Mapping[str, np.ndarray]) -> Prediction:
    log_probs = answer.pop("log_probs")
    return Prediction(log_probs, {**answer, FINGERPRINT: before[FINGERPRINT]})
