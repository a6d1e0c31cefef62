"""Rows advanced together, token by token: they join and leave between two steps."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from keras_trellis.formats.limits import CHUNK
from keras_trellis.serving.batch import together
from keras_trellis.serving.rows import Row
from keras_trellis.serving.runtime import LanguageModel

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
        self._batch = model.batch()
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
        self._batch = self._model.batch()

    def warm_up(self, count: int) -> None:
        """Fills free slots with rows that are read by chunks and by steps, and continued."""
        settings = self._model.vocabulary.settings(count, max_length=2, seed=0)
        ids = np.full(CHUNK + 2, self._model.tokenizer.eos_id, np.int32)
        tokenizer = self._model.tokenizer
        self.add([Row(ids, tokenizer, one) for one in settings])
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
        self._batch.drop_ended()
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
            ids[index, :count] = row.ids[row.place : row.place + count]
        mask = np.arange(CHUNK) < np.array(counts)[:, None]
        # What stands behind a row's ids is masked: it leaves the row's cache as it is.
        before = together([row.cache for row in rows])
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
