"""How a language model continues rows: token by token, each row to its own end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import AnyStr, NamedTuple

import numpy as np

from keras_trellis.formats import sampling
from keras_trellis.formats.names import STEPS
from keras_trellis.formats.tokenizer import Tokenizer
from keras_trellis.serving.reading import Prediction, Reader
from keras_trellis.serving.requests import Settings
from keras_trellis.serving.sessions import Arrays


class Continuation(NamedTuple):
    """What rows are continued by, with -1 and zeros after their ends.

    Attributes:
        ids: int32 `[B, N]`.
        lengths: int32 `[B]`.
        log_probs: float32 `[B, N]`, the model's, whatever the settings make of them.
        likeliest_ids: int32 `[B, N, K]`, the most probable tokens in the place of each.
        likeliest_log_probs: float32 `[B, N, K]`.
        stopped: bool `[B]`, whether a stop ended the row.
        text: what the ids add to each text, up to where a stop text begins. Words have single
            spaces between them. A character that pieces begin and do not end reads U+FFFD.
        cache: which has read all of the ids but the last: send that one to go on.
    """

    ids: np.ndarray
    lengths: np.ndarray
    log_probs: np.ndarray
    likeliest_ids: np.ndarray
    likeliest_log_probs: np.ndarray
    stopped: np.ndarray
    text: list[str]
    cache: Arrays


def continued(
    reader: Reader,
    tokenizer: Tokenizer,
    settings: Settings,
    last: np.ndarray,
    prediction: Prediction,
) -> Continuation:
    """Draws tokens for each row until it ends, and feeds each one back.

    Rows that have ended are computed no more.

    Args:
        reader: advances the model.
        tokenizer: its tokens.
        settings: how to continue.
        last: the token before the first one, `[B]`.
        prediction: of the first token.
    """
    rows = np.arange(len(last))
    log_probs, cache = prediction
    written = _Written(tokenizer, settings, last, cache)
    how, addends = settings.sampling, settings.addends
    first = cache[STEPS].astype(np.int64)  # two calls draw what one long call does
    noise = sampling.Noise(how.seed, first, log_probs.shape[-1])
    while len(rows):
        scores = log_probs if addends is None else log_probs + addends
        token = sampling.draw(scores, how, noise)
        goes_on = written.write(rows, token, log_probs, cache)
        if not goes_on.all():
            # Noise is cut like the rest: those that go on draw what they would have drawn.
            rows, token = rows[goes_on], token[goes_on]
            noise.choose(goes_on)
            cache = {name: value[goes_on] for name, value in cache.items()}
            how = how.rows(goes_on)
            addends = None if addends is None else addends[goes_on]
        if len(rows):
            log_probs, cache = reader.step(token, cache)
    return written.continuation()


def first_stop(text: AnyStr, searched: int, stops: Iterable[AnyStr]) -> int | None:
    """Returns where the first stop text begins that a text has; None: it has none.

    Args:
        text: the text, as characters or as bytes.
        searched: how many of its first ones have no stop text.
        stops: the stop texts, none of them empty.
    """
    # It may begin in what has been searched, which has all of it but its end.
    places = (text.find(stop, max(searched - len(stop) + 1, 0)) for stop in stops)
    return min((place for place in places if place >= 0), default=None)


class _Written:
    """What is written so far.

    Args:
        tokenizer: the tokens.
        settings: how rows are continued.
        last: the token before the first one, `[B]`.
        cache: what rows have read.

    Attributes:
        columns: for each token the values of `Continuation` that it adds a place to.
    """

    def __init__(
        self, tokenizer: Tokenizer, settings: Settings, last: np.ndarray, cache: Arrays
    ) -> None:
        self._tokenizer = tokenizer
        self._settings = settings
        self._count = int(settings.alternatives.max(initial=0))
        self._has_stop_ids = bool((settings.stop_ids >= 0).any())
        self._last = last.tolist()
        self._lengths = np.zeros(len(last), np.int32)
        self._stopped = np.zeros(len(last), bool)
        # As bytes: a token may end within a character.
        self._text = [b""] * len(last)
        self._stop = [[text.encode() for text in row] for row in settings.stop]
        self._cache = {name: np.array(value) for name, value in cache.items()}
        self.columns: list[tuple[np.ndarray, ...]] = []

    def write(
        self, rows: np.ndarray, token: np.ndarray, log_probs: np.ndarray, cache: Arrays
    ) -> np.ndarray:
        """Writes a token to each of some rows; returns which of them go on.

        Args:
            rows: the rows, `[N]`.
            token: `[N]`.
            log_probs: `[N, V]`, that it was drawn from.
            cache: which has read what is before the token.
        """
        self.columns.append(self._column(rows, token, log_probs))
        self._lengths[rows] += 1
        stops = np.zeros(len(rows), bool)
        # Negative ones fill up the shorter lists: no token is equal to them.
        if self._has_stop_ids:
            stops |= (token[:, None] == self._settings.stop_ids[rows]).any(axis=1)
        for index, row in enumerate(rows.tolist()):
            stops[index] |= self._write_text(row, int(token[index]))
        self._stopped[rows] = stops
        goes_on: np.ndarray = ~stops & (
            self._lengths[rows] < self._settings.max_length[rows]
        )
        if not goes_on.all():
            for name, value in cache.items():
                # Without the last token, which has not been read: whoever goes on sends it first.
                self._cache[name][rows[~goes_on]] = value[~goes_on]
        return goes_on

    def _column(
        self, rows: np.ndarray, token: np.ndarray, log_probs: np.ndarray
    ) -> tuple[np.ndarray, ...]:
        asked = self._settings.alternatives[rows]
        values = (
            token,
            log_probs[np.arange(len(rows)), token],
            *sampling.likeliest(log_probs, self._count, asked),
        )
        if len(rows) == len(self._last):
            return values
        column = []
        for value, fill in zip(values, (-1, 0, -1, 0), strict=True):
            everywhere = np.full([len(self._last), *value.shape[1:]], fill, value.dtype)
            everywhere[rows] = value
            column.append(everywhere)
        return tuple(column)

    def _write_text(self, row: int, index: int) -> bool:
        """Adds a token's text to a row's; returns whether a stop text ends it."""
        before = self._text[row]
        text = before + self._tokenizer.added(self._last[row], index)
        self._last[row] = index
        begin = first_stop(text, len(before), self._stop[row])
        self._text[row] = text[:begin]
        return begin is not None

    def continuation(self) -> Continuation:
        """Returns what is written, once all rows have ended."""
        if not self.columns:  # there are no rows
            nothing = np.zeros(0, np.int32)
            self.columns.append(
                self._column(nothing, nothing, np.zeros([0, 1], np.float32))
            )
        values = (np.stack(each, axis=1) for each in zip(*self.columns, strict=True))
        ids, own, likeliest, best = values
        return Continuation(
            ids=ids,
            lengths=self._lengths,
            log_probs=own,
            likeliest_ids=likeliest,
            likeliest_log_probs=best,
            stopped=self._stopped,
            text=[text.decode(errors="replace") for text in self._text],
            cache=self._cache,
        )
