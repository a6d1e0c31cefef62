"""Rows advanced together, token by token: they join and leave between two steps."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_trellis.formats import sampling
from keras_trellis.formats.limits import CHUNK
from keras_trellis.formats.names import STEPS
from keras_trellis.formats.sampling import Noise, Sampling
from keras_trellis.serving.rows import Asked, Row, continuations
from keras_trellis.serving.runtime import LanguageModel
from keras_trellis.serving.sessions import Arrays

_READ_AT_ONCE = (
    8  # rows; more of them would keep those that are written waiting for longer
)
_BY_STEPS = 3  # so few ids are read sooner by steps than by a chunk


class Slots:
    """A number of slots, each of which advances one row.

    All rows but those with much to read share a batch: a step gives each of them one token, the
    next one of its text or one that is drawn. Between two steps one chunk is read of some of those
    with more to read. A row's answer depends on nothing of this.

    Args:
        model: the model.
        size: the number of slots.

    Attributes:
        tokens: how many tokens have been read, and written.
    """

    def __init__(self, model: LanguageModel, size: int) -> None:
        self._model = model
        self._size = size
        most = model.reader.most_rows(CHUNK)
        self._read_at_once = min(most, _READ_AT_ONCE)
        self._reading: list[Row] = []  # by chunks, the next ones first
        self._batch = _Batch(model)
        self.tokens = 0, 0

    @property
    def rows(self) -> list[Row]:
        """The rows at work."""
        return [*self._batch.rows, *self._reading]

    @property
    def free(self) -> int:
        """The number of slots without a row."""
        return self._size - len(self._batch.rows) - len(self._reading)

    def add(self, rows: Sequence[Row]) -> None:
        """Gives slots to rows, as many as are free at most."""
        self._reading += rows
        for row in rows:
            row.cache = self._model.empty_cache(1)

    def clear(self) -> None:
        """Frees all slots; nothing is left of the rows that had them."""
        self._reading = []
        self._batch = _Batch(self._model)

    def warm_up(self, count: int) -> None:
        """Fills free slots with rows that are read by chunks and by steps, and continued."""
        settings = self._model.vocabulary.settings(count, max_length=2, seed=0)
        ids = np.full(CHUNK + 2, self._model.tokenizer.eos_id, np.int32)
        asked = (Asked(ids, one) for one in continuations(settings))
        self.add([Row(one, self._model.tokenizer) for one in asked])
        while self.rows:
            self.step()

    def step(self) -> list[Row]:
        """Advances rows by a token, or by a chunk of what they read.

        Returns:
            those that have ended, and those that stream and have written.
        """
        now = time.monotonic()
        for row in self.rows:
            # First, so that nothing is computed for a row that nobody waits for.
            row.give_up(now)
        ended = [row for row in self.rows if row.outcome]
        self._reading = [row for row in self._reading if not row.outcome]
        self._batch.drop_ended()
        self._join()
        # A chunk may leave a row with little to read: it joins the batch in this step already.
        by_chunks = self._read_chunks()
        self._join()
        news, by_steps, wrote = self._batch.step()
        read, written = self.tokens
        self.tokens = read + by_chunks + by_steps, written + wrote
        return [*ended, *news]

    def _join(self) -> None:
        """Lets rows into the batch that have little left to read."""
        # Beside others a row costs a step little.
        # The last id counts apart: a step reads it in any case, and draws by its answer.
        most = 1 + (CHUNK if self._batch.rows else _BY_STEPS)
        joins = [row for row in self._reading if row.end - row.place <= most]
        if joins:
            self._batch.add(joins)
            self._reading = [row for row in self._reading if row not in joins]

    def _read_chunks(self) -> int:
        """Reads a chunk of those that have waited longest; a step reads the last id.

        Returns:
            how many tokens it has read.
        """
        rows = self._reading[: self._read_at_once]
        if not rows:
            return 0
        ids = np.zeros([len(rows), CHUNK], np.int32)
        counts = [min(row.end - 1 - row.place, CHUNK) for row in rows]
        for index, (row, count) in enumerate(zip(rows, counts, strict=True)):
            ids[index, :count] = row.asked.ids[row.place : row.place + count]
        mask = np.arange(CHUNK) < np.array(counts)[:, None]
        # What stands behind a row's ids is masked: it leaves the row's cache as it is.
        before = _together([row.cache for row in rows])
        log_probs, cache = self._model.reader.chunk(ids, mask, before)
        for index, (row, count) in enumerate(zip(rows, counts, strict=True)):
            row.read(log_probs[index, :count])
            # Each row takes its cache along: the next chunk may be read of other rows together.
            row.cache = {
                name: value[index : index + 1] for name, value in cache.items()
            }
        # Behind those that wait, so that no long text holds up another one.
        self._reading = [*self._reading[len(rows) :], *rows]
        return sum(counts)


class _Batch:
    """The rows that a step advances.

    Args:
        model: the model.

    Attributes:
        rows: the rows, `N` of them.
    """

    def __init__(self, model: LanguageModel) -> None:
        self._reader = model.reader
        self._vocabulary_size = model.vocabulary_size
        self.rows: list[Row] = []
        self._ids = np.zeros(0, np.int32)  # the next one of each row
        self._cache = model.empty_cache(0)
        self._noise: Noise | None = None
        self._arrange()

    def add(self, rows: Sequence[Row]) -> None:
        """Adds rows, each of which has at least one id to read."""
        self._cache = _together([self._cache, *(row.cache for row in rows)])
        ids = np.array([row.asked.ids[row.place] for row in rows], np.int32)
        self._ids = np.concatenate([self._ids, ids])
        for row in rows:
            # The batch has it now.
            row.cache = None
        self.rows = [*self.rows, *rows]
        self._arrange()

    def drop_ended(self) -> None:
        """Removes the rows that have ended."""
        goes_on = np.array([row.outcome is None for row in self.rows], bool)
        if goes_on.all():
            return
        self.rows = [row for row in self.rows if row.outcome is None]
        self._ids = self._ids[goes_on]
        self._cache = {name: value[goes_on] for name, value in self._cache.items()}
        self._arrange()

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
                self._ids[index] = row.asked.ids[row.place]
            elif not row.outcome:
                writers.append(index)
        if writers:
            self._write(writers, log_probs)
        else:
            self._noise = None  # its next draw would be that of a step ago
        wrote = (self.rows[index] for index in writers)
        news = [row for row in wrote if row.streams and not row.outcome]
        news += [row for row in self.rows if row.outcome]
        self.drop_ended()
        return news, read, len(writers)

    def _write(self, writers: Sequence[int], log_probs: np.ndarray) -> None:
        """Draws a token for some of the rows."""
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
        for index in writers:
            token = int(tokens[index])
            self._ids[index] = token
            self.rows[index].write(token, own[index], *likeliest.get(index, ()))

    def _likeliest(
        self, writers: Sequence[int], log_probs: np.ndarray
    ) -> dict[int, tuple[list[int], list[float]]]:
        """Returns the most probable tokens for those rows that ask for them."""
        asks = {index: self.rows[index].asked.alternatives for index in writers}
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
        asked = [row.asked.continued for row in self.rows]
        greedy = Sampling(
            temperature=np.zeros(1, np.float32),
            top_k=np.full(1, self._vocabulary_size),
            top_p=np.ones(1, np.float32),
            seed=np.zeros(1, np.int64),
        )
        # Rows that are only read need some setting, too; nobody looks at their draws.
        how = [greedy if one is None else one.sampling for one in asked]
        if how:
            self._how = Sampling(*map(np.concatenate, zip(*how, strict=True)))
        addends = [None if one is None else one.addends for one in asked]
        self._addends = None
        if any(one is not None for one in addends):
            nothing = np.zeros([1, self._vocabulary_size], np.float32)
            filled = [nothing if one is None else one for one in addends]
            self._addends = np.concatenate(filled)


def _together(caches: Sequence[Any]) -> Arrays:
    """Returns the cache of all rows of several caches."""
    return {
        name: np.concatenate([cache[name] for cache in caches]) for name in caches[0]
    }
