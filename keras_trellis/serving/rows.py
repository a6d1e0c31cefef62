"""A row: one text that a server reads, scores and continues, and what has come of it so far."""

from __future__ import annotations

import codecs
import enum
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_trellis.formats import sampling
from keras_trellis.formats.tokenizer import Tokenizer
from keras_trellis.serving.requests import Settings
from keras_trellis.serving.sessions import Arrays


class Outcome(enum.Enum):
    """How a row ended."""

    READ = "read"
    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    LATE = "late"
    FAILED = "failed"


class Token(NamedTuple):
    """A token that was written.

    Attributes:
        token_id: its id.
        text: what it adds to the text, a stop text included. A character that several tokens make
            is the last one's.
        log_prob: the model's, whatever the settings make of it.
        likeliest_ids: the most probable tokens in its place, if any were asked for.
        likeliest_log_probs: their log-probabilities.
    """

    token_id: int
    text: str
    log_prob: float
    likeliest_ids: Sequence[int] = ()
    likeliest_log_probs: Sequence[float] = ()


class Compared(NamedTuple):
    """How probable `T` tokens that a row reads are.

    Attributes:
        log_probs: float32 `[T]`.
        ranks: int32 `[T]`, 1 for the most probable token.
        likeliest_ids: int32 `[T, K]`, the most probable tokens in the place of each.
        likeliest_log_probs: float32 `[T, K]`.
    """

    log_probs: np.ndarray
    ranks: np.ndarray
    likeliest_ids: np.ndarray
    likeliest_log_probs: np.ndarray


class Row:
    """A row at work.

    One thread advances it. Others may read `written`, which only grows, and all of it once
    `outcome` is set.

    Args:
        ids: int32 `[T]`, the text after a line break; they are in the vocabulary.
        tokenizer: the model's tokens.
        continued: how to continue it; None: not at all.
        scored: whether to compare each id but the first with what the model expects in its place.
        alternatives: how many of the most probable tokens to return in the place of each token
            that is scored or written.
        count: how many of the most probable tokens after the text to return.
        streams: whether each token is news, or only the end.

    Attributes:
        listener: whom news of it concern; it means nothing here.
        deadline: until when, by `time.monotonic`.
        place: how many ids have been read.
        end: how many are to be read.
        compared: how probable the ids are, in the parts in which they were read.
        after: the most probable tokens after the text, `K` ids and log-probabilities.
        written: the tokens that continue the text.
        text: what they add to it, up to where a stop text begins.
        outcome: how it ended; None: it has not.
        cancelled: whether nobody waits for it any more; anyone may set it.
        cache: what it has read, while it waits for its next chunk.
    """

    def __init__(
        self,
        ids: np.ndarray,
        tokenizer: Tokenizer,
        continued: Settings | None = None,
        *,
        scored: bool = False,
        alternatives: int = 0,
        count: int = 0,
        streams: bool = False,
    ) -> None:
        self.ids = ids
        self.continued = continued
        self.alternatives = alternatives
        self.listener: Any = None
        self.deadline = np.inf
        self.streams = streams
        self.place = 0
        # The last id of a text that is only scored is a target.
        self.end = len(ids) - (continued is None and not count)
        self.compared: list[Compared] = []
        self.after: tuple[list[int], list[float]] | None = None
        self.written: list[Token] = []
        self.text = ""
        self.outcome = None if self.end else Outcome.READ
        self.cancelled = False
        self.cache: Arrays | None = None
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._scored, self._count = scored, count
        self._last = int(ids[-1])

    @property
    def is_read(self) -> bool:
        """Whether all ids have been read that are to be."""
        return self.place == self.end

    def read(self, log_probs: np.ndarray) -> None:
        """Takes what follows each of the next ids, `[k, V]`."""
        # What follows id i is compared with id i + 1: the first id of a text is no target.
        begin = self.place + 1
        self.place += len(log_probs)
        if self._scored:
            targets = self.ids[begin : self.place + 1]
            # The last id has none behind it.
            if count := len(targets):
                compared = Compared(
                    log_probs[np.arange(count), targets],
                    sampling.ranks(log_probs[:count], targets),
                    *sampling.likeliest(log_probs[:count], self.alternatives),
                )
                self.compared.append(compared)
        if self.is_read and self.continued is None:
            ids, values = sampling.likeliest(log_probs[-1:], self._count)
            self.after = ids[0].tolist(), values[0].tolist()
            self.outcome = Outcome.READ

    def write(
        self,
        token_id: int,
        log_prob: float,
        likeliest_ids: Sequence[int] = (),
        likeliest_log_probs: Sequence[float] = (),
    ) -> None:
        """Adds a token to the text; see `Token`."""
        assert self.continued is not None
        ends = token_id in self.continued.stop_ids
        is_last = len(self.written) + 1 == self.continued.max_length
        added = self._tokenizer.added(self._last, token_id)
        # A token may end within a character: its bytes wait for the next token, if one comes.
        piece = self._decoder.decode(added, final=ends or is_last)
        self._last = token_id
        text = self.text + piece
        # Searched with what was written before: a stop text may reach over several tokens.
        stops = self.continued.stop
        begin = _first_stop(text, len(self.text), stops) if stops else None
        self.text = text[:begin]
        token = Token(token_id, piece, log_prob, likeliest_ids, likeliest_log_probs)
        self.written.append(token)
        # Last of all: once it is set, other threads read the rest. A stop goes before the length.
        if begin is not None or ends:
            self.outcome = Outcome.STOP
        elif is_last:
            self.outcome = Outcome.LENGTH

    def all_compared(self) -> Compared:
        """Returns how probable the ids are, once they have been read."""
        if not self.compared:
            nothing = np.zeros([0, self.alternatives])
            return Compared(nothing.sum(1), nothing.sum(1), nothing, nothing)
        return Compared(*map(np.concatenate, zip(*self.compared, strict=True)))

    def give_up(self, now: float) -> None:
        """Ends it if nobody waits for it, or its deadline has passed."""
        if self.outcome:
            return
        if self.cancelled:
            self.outcome = Outcome.CANCELLED
        elif now > self.deadline:
            self.outcome = Outcome.LATE


def _first_stop(text: str, searched: int, stops: Sequence[str]) -> int | None:
    """Returns where the first stop text begins that a text has; None: it has none.

    Args:
        text: the text.
        searched: how many of its first ones have no stop text.
        stops: the stop texts, none of them empty.
    """
    # It may begin in what has been searched, which has all of it but its end.
    places = (text.find(stop, max(searched - len(stop) + 1, 0)) for stop in stops)
    return min((place for place in places if place >= 0), default=None)
