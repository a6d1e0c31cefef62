"""A batch of rows, whose tokens are drawn and read, one a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_trellis.formats import sampling
from keras_trellis.formats.names import STEPS
from keras_trellis.formats.sampling import Noise, Sampling
from keras_trellis.serving.reading import Reader
from keras_trellis.serving.rows import Row
from keras_trellis.serving.sessions import Arrays


class Batch:
    """Rows advanced together: a step gives each of them one token, read or drawn.

    What is drawn for a row depends neither on the other rows nor on when it came.

    Args:
        reader: advances the model.
        size: V.
        cache: that of no rows.

    Attributes:
        rows: the rows, `N` of them.
    """

    def __init__(self, reader: Reader, size: int, cache: Arrays) -> None:
        self._reader = reader
        self._vocabulary_size = size
        self.rows: list[Row] = []
        self._ids = np.zeros(0, np.int32)  # the next one of each row
        self._cache = cache
        self._noise: Noise | None = None
        self._arrange()

    def add(self, rows: Sequence[Row]) -> None:
        """Adds rows; one that has read all of its ids is to be given to `write`."""
        self._cache = together([self._cache, *(row.cache for row in rows)])
        ids = np.array([row.ids[min(row.place, row.end - 1)] for row in rows], np.int32)
        self._ids = np.concatenate([self._ids, ids])
        for row in rows:
            # The batch has it now.
            row.cache = None
        self.rows = [*self.rows, *rows]
        self._arrange()

    def drop_ended(self) -> list[tuple[Row, Arrays]]:
        """Removes the rows that have ended.

        Returns:
            these, each with the cache of what it has read, which lacks the last token written.
        """
        if not any(row.outcome for row in self.rows):
            return []
        goes_on = np.array([row.outcome is None for row in self.rows], bool)
        ended = [
            (self.rows[index], {name: self._cache[name][index] for name in self._cache})
            for index in np.flatnonzero(~goes_on)
        ]
        self.rows = [row for row in self.rows if row.outcome is None]
        self._ids = self._ids[goes_on]
        self._cache = {name: value[goes_on] for name, value in self._cache.items()}
        self._arrange()
        return ended

    def step(self) -> tuple[list[Row], int, int]:
        """Reads an id of each row, and draws the next one of those that have no other.

        Returns:
            the rows with news, see `Slots.step`; how many tokens of texts were read, and written.
        """
        if not self.rows:
            return [], 0, 0
        log_probs, self._cache = self._reader.step(self._ids, self._cache)
        writers, read = [], 0
        for index, row in enumerate(self.rows):
            if not row.is_read:
                row.read(log_probs[index : index + 1])
                read += 1
            # Asked again: the id may have been the last one, after which this step draws.
            if not row.is_read:
                self._ids[index] = row.ids[row.place]
            elif not row.outcome:
                writers.append(index)
        if writers:
            self.write(writers, log_probs)
        else:
            self._noise = None  # its next draw would be that of a step ago
        wrote = (self.rows[index] for index in writers)
        news = [row for row in wrote if row.streams and not row.outcome]
        news += [row for row in self.rows if row.outcome]
        return news, read, len(writers)

    def write(self, writers: Sequence[int], log_probs: np.ndarray) -> None:
        """Draws a token for some of the rows.

        Args:
            writers: their places among all rows.
            log_probs: `[N, V]`, of the next token of each row.
        """
        if self._noise is None:
            # The number of a draw is that of the row's steps: what is drawn depends neither on the
            # other rows nor on when it came.
            numbers = self._cache[STEPS].astype(np.int64)
            self._noise = Noise(self._how.seed, numbers, self._vocabulary_size)
        scores = log_probs if self._addends is None else log_probs + self._addends
        # For all rows, so that the draws of each go on with its steps; only writers use theirs.
        tokens = sampling.draw(scores, self._how, self._noise)
        own = log_probs[np.arange(len(tokens)), tokens].tolist()
        likeliest = self._likeliest(writers, log_probs)
        self._ids[writers] = tokens[writers]
        drawn = tokens.tolist()
        for index in writers:
            more = likeliest.get(index, ())
            self.rows[index].write(drawn[index], own[index], *more)

    def _likeliest(
        self, writers: Sequence[int], log_probs: np.ndarray
    ) -> dict[int, tuple[list[int], list[float]]]:
        """Returns the most probable tokens for those rows that ask for them."""
        asks = {index: self.rows[index].alternatives for index in writers}
        asks = {index: count for index, count in asks.items() if count}
        if not asks:
            return {}
        # As many for all as one row asks for at most; each takes its first ones.
        ids, values = sampling.likeliest(log_probs[[*asks]], max(asks.values()))
        rows = zip(asks.items(), ids.tolist(), values.tolist(), strict=True)
        return {
            index: (own[:count], best[:count]) for (index, count), own, best in rows
        }

    def _arrange(self) -> None:
        """Joins the settings of all rows, after some have come or gone."""
        self._noise = None
        # Rows that are only read need some setting, too; nobody looks at their draws.
        greedy = Sampling(np.float32(0), self._vocabulary_size, np.float32(1), 0)
        asked = [row.continued for row in self.rows]
        how = [greedy if one is None else one.sampling for one in asked]
        if how:
            self._how = Sampling(*map(np.array, zip(*how, strict=True)))
        addends = [None if one is None else one.addends for one in asked]
        self._addends = None
        if any(one is not None for one in addends):
            nothing = np.zeros(self._vocabulary_size, np.float32)
            filled = [nothing if one is None else one for one in addends]
            self._addends = np.stack(filled)


def together(caches: Sequence[Any]) -> Arrays:
    """Returns the cache of all rows of several caches."""
    return {
        name: np.concatenate([cache[name] for cache in caches]) for name in caches[0]
    }
