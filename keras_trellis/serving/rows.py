"""A row: one text that a server reads, scores and continues, and what has come of it so far."""

from __future__ import annotations

import codecs
import enum
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_trellis.formats import sampling
from keras_trellis.formats.tokenizer import Tokenizer
from keras_trellis.serving.requests import Settings
from keras_trellis.serving.sessions import Arrays
from keras_trellis.serving.writing import first_stop


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


class Asked(NamedTuple):
    """What is asked of a row.

    Attributes:
        ids: int32 `[T]`, the text after a line break; they are in the vocabulary.
        continued: how to continue it, with one value of each setting; None: not at all.
        scored: whether to compare each id but the first with what the model expects in its place.
        alternatives: how many of the most probable tokens to return in the place of each token
            that is scored or written.
        after: how many of the most probable tokens after the text to return.
        deadline: until when, by `time.monotonic`.
    """

    ids: np.ndarray
    continued: Settings | None = None
    scored: bool = False
    alternatives: int = 0
    after: int = 0
    deadline: float = np.inf


def continuations(settings: Settings) -> Iterator[Settings]:
    """Yields the settings of each row alone."""
    for row in range(len(settings.max_length)):
        one = np.array([row])
        yield Settings(
            sampling=settings.sampling.rows(one),
            max_length=settings.max_length[one],
            addends=None if settings.addends is None else settings.addends[one],
            stop_ids=settings.stop_ids[one],
            stop=[settings.stop[row]],
            alternatives=settings.alternatives[one],
        )


class Row:
    """A row at work.

    One thread advances it. Others may read `written`, which only grows, and all of it once
    `outcome` is set.

    Args:
        asked: what is asked.
        tokenizer: the model's tokens.
        listener: whom news of it concern; it means nothing here.
        streams: whether each token is news, or only the end.

    Attributes:
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
        asked: Asked,
        tokenizer: Tokenizer,
        listener: Any = None,
        streams: bool = False,
    ) -> None:
        self.asked = asked
        self.listener = listener
        self.streams = streams
        self.place = 0
        # The last id of a text that is only scored is a target.
        self.end = len(asked.ids) - (asked.continued is None and not asked.after)
        self.compared: list[Compared] = []
        self.after: tuple[list[int], list[float]] | None = None
        self.written: list[Token] = []
        self.text = ""
        self.outcome = None if self.end else Outcome.READ
        self.cancelled = False
        self.cache: Arrays | None = None
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._last = int(asked.ids[-1])
        self._stops: Sequence[str] = ()
        self._stop_ids: frozenset[int] = frozenset()
        self._most = 0
        if asked.continued is not None:
            (self._stops,) = asked.continued.stop
            self._stop_ids = frozenset(asked.continued.stop_ids[0].tolist())
            self._most = int(asked.continued.max_length[0])

    @property
    def is_read(self) -> bool:
        """Whether all ids have been read that are to be."""
        return self.place == self.end

    def read(self, log_probs: np.ndarray) -> None:
        """Takes what follows each of the next ids, `[k, V]`."""
        # What follows id i is compared with id i + 1: the first id of a text is no target.
        begin = self.place + 1
        self.place += len(log_probs)
        if self.asked.scored:
            targets = self.asked.ids[begin : self.place + 1]
            # The last id has none behind it.
            if len(targets):
                compared = _compared(
                    log_probs[: len(targets)], targets, self.asked.alternatives
                )
                self.compared.append(compared)
        if self.is_read and self.asked.continued is None:
            ids, values = sampling.likeliest(log_probs[-1:], self.asked.after)
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
        ends = token_id in self._stop_ids
        is_last = len(self.written) + 1 == self._most
        added = self._tokenizer.added(self._last, token_id)
        # A token may end within a character: its bytes wait for the next token, if one comes.
        piece = self._decoder.decode(added, final=ends or is_last)
        self._last = token_id
        text = self.text + piece
        # Searched with what was written before: a stop text may reach over several tokens.
        begin = first_stop(text, len(self.text), self._stops) if self._stops else None
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
            nothing = np.zeros([0, self.asked.alternatives])
            return Compared(nothing.sum(1), nothing.sum(1), nothing, nothing)
        return Compared(*map(np.concatenate, zip(*self.compared, strict=True)))

    def give_up(self, now: float) -> None:
        """Ends it if nobody waits for it, or its deadline has passed."""
        if self.outcome:
            return
        if self.cancelled:
            self.outcome = Outcome.CANCELLED
        elif now > self.asked.deadline:
            self.outcome = Outcome.LATE


def _compared(
    log_probs: np.ndarray, targets: np.ndarray, alternatives: int
) -> Compared:
    own = log_probs[np.arange(len(targets)), targets]
    return Compared(
        own,
        sampling.ranks(log_probs, targets),
        *sampling.likeliest(log_probs, alternatives),
    )
