"""The two evaluation protocols of a language model.

`exact`: every target is scored once (all tokens but the first, which has no context), with the
whole of the past that the model can see. `trellisnet`: the protocol of the authors' scripts
(streams, windows, discarded targets, 1e-8 added to the probabilities of a mixture of softmaxes), so
that a number can stand beside the paper's.
"""

import contextlib
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from keras_trellis.heads import MixtureOfSoftmaxes
from trainers.data import streams
from trainers.tasks.measures import WORDS, TokenMeasure, perplexity

PROTOCOLS = ("exact", "trellisnet")
# What a protocol adds to the probabilities of a mixture of softmaxes, however it was trained.
_EPSILON = {"exact": 0.0, "trellisnet": 1e-8}


class Score(NamedTuple):
    """Total negative log-likelihood, in nats, of a number of scored tokens."""

    nll: float
    tokens: int

    @property
    def mean(self) -> float:
        """Nats a token."""
        return self.nll / self.tokens

    @property
    def perplexity(self) -> float:
        """`exp(mean)`."""
        return perplexity(self.mean)


class Pieces(NamedTuple):
    """Columns of a stream cut for the protocol `exact`: [B, n] each."""

    ids: np.ndarray
    targets: np.ndarray
    scored: np.ndarray  # bool


class Evaluator:
    """Scores id arrays with a model's present weights.

    Args:
        model: A language model with `score`, `get_initial_state`, `get_initial_cache`,
            `receptive_field` (None: unbounded, so that `exact` takes one row).
        data: The config's group `data`: `window`, `horizon` and `history` of `trellisnet`.
        settings: The config's group `evaluation`: `batch_size`, the number of streams of
            `trellisnet`; `exact_batch_size` and `exact_chunk`, which change no number.
    """

    def __init__(self, model: keras.Model, data: Any, settings: Any) -> None:
        self._model = model
        self._data = data
        self._settings = settings
        self._through_cache = tf.function(self._score_with_cache)
        self._through_state = tf.function(self._score_with_state)

    def score(self, protocol: str, ids: np.ndarray) -> Score:
        """Returns the score of a stream of ids [N] under one of `PROTOCOLS`."""
        if protocol not in PROTOCOLS:
            raise ValueError(
                f"`protocol` must be one of {PROTOCOLS}. Received: protocol={protocol!r}"
            )
        return getattr(self, protocol)(ids)

    def exact(self, ids: np.ndarray) -> Score:
        """Scores each of the N - 1 targets once, with the exact history."""
        batch_size, chunk = self._settings.exact_batch_size, self._settings.exact_chunk
        rows, chunks = cut(ids, batch_size, self._model.receptive_field, chunk)
        cache = self._model.get_initial_cache(rows)
        total, tokens = 0.0, 0
        for pieces in chunks:
            with epsilon_of("exact", self._model):
                nll, cache = self._through_cache(*pieces, cache)
            total += float(nll)
            tokens += int(pieces.scored.sum())
        return Score(total, tokens)

    def trellisnet(self, ids: np.ndarray) -> Score:
        """Scores as the authors' script: only what has `horizon` steps of its window before it."""
        rows = streams.contiguous_streams(ids, self._settings.batch_size)
        windows = streams.Windows(rows.shape[1], self._data.window, self._data.horizon)
        # A tuple, as what is carried: a list would be traced apart.
        state = tuple(self._model.get_initial_state(len(rows)))
        total, tokens = 0.0, 0
        for index in range(windows.count):
            inputs, targets = windows.of(rows, index)
            with epsilon_of("trellisnet", self._model):
                nll, carried = self._through_state(inputs, targets, state)
            state = carried if self._data.history == "carried" else state
            total += float(nll)
            tokens += len(rows) * (targets.shape[1] - windows.discard)
        return Score(total, tokens)

    def _score_with_cache(
        self, ids: tf.Tensor, targets: tf.Tensor, scored: tf.Tensor, cache: Any
    ) -> tuple[tf.Tensor, Any]:
        nll, cache = self._model.score(ids, targets, cache=cache)
        return _total(tf.where(scored, nll, 0)), cache

    def _score_with_state(
        self, ids: tf.Tensor, targets: tf.Tensor, state: Any
    ) -> tuple[tf.Tensor, Any]:
        nll, state = self._model.score(ids, targets, initial_state=state)
        return _total(nll[:, self._data.horizon :]), state


def cut(
    ids: np.ndarray, batch_size: int, receptive_field: int | None, chunk: int
) -> tuple[int, Iterator[Pieces]]:
    """Cuts a stream in rows of one length that together score each target once.

    Each row but the first starts `receptive_field - 1` tokens before its first scored target's
    input, so that this target sees what it would see in one pass; the first row begins at the
    stream's own beginning. The end is padded to whole chunks, unscored.

    Args:
        ids: The stream [N].
        batch_size: At most this many rows; fewer where the stream is too short for them.
        receptive_field: Steps that an output reaches back, its own included; None: all.
        chunk: Steps a call; rows are a multiple of it long.

    Returns:
        The number of rows, and their chunks one after another, so that memory does not grow with
        the stream.

    Raises:
        ValueError: The stream has fewer than two tokens.
    """
    targets = len(ids) - 1
    if targets < 1:
        raise ValueError(f"`ids` must hold at least 2 tokens. Received: {len(ids)} tokens")
    warmup = 0 if receptive_field is None else receptive_field - 1
    rows = 1 if receptive_field is None else max(1, min(batch_size, (targets - warmup) // chunk))
    share = math.ceil(max(targets - warmup, 1) / rows)
    rows = math.ceil(max(targets - warmup, 1) / share)  # the others would have nothing to score
    starts = share * np.arange(rows)[:, None]
    stops = np.minimum(starts + warmup + share, targets)

    def pieces(first: int) -> Pieces:
        columns = np.arange(first, first + chunk)
        inside = starts + columns < stops
        scored = inside & ((columns >= warmup) | (starts == 0))
        positions = np.where(inside, starts + columns, 0)
        return Pieces(np.asarray(ids[positions]), np.asarray(ids[positions + 1]), scored)

    return rows, map(pieces, range(0, warmup + share, chunk))


def describe(name: str, scores: dict[str, Score], measure: TokenMeasure = WORDS) -> str:
    """Returns one line: what a text measures under each protocol, and how many tokens it is of."""
    parts = [
        f"{protocol} {measure.told(measure.of(score.mean), score.tokens)}"
        for protocol, score in scores.items()
    ]
    return f"{name} {measure.name}: " + ", ".join(parts)


def check_text(name: str, tokens: int, data: Any, settings: Any) -> None:
    """Raises ValueError where the protocols cannot score a text: to be known before training.

    Args:
        name: What to call the text.
        tokens: Its length.
        data: The config's group `data`.
        settings: The config's group `evaluation`.
    """
    stream = data.horizon + 2  # of these one is scored
    if tokens < settings.batch_size * stream:
        fitting = tokens // stream
        remedy = f"use --config.evaluation.batch_size={fitting}, or give" if fitting else "give"
        raise ValueError(
            f"{name} holds {tokens} tokens; expected at least {settings.batch_size * stream}, "
            f"{stream} (config.data.horizon + 2) in each of config.evaluation.batch_size="
            f"{settings.batch_size} streams: {remedy} more text"
        )


@contextlib.contextmanager
def epsilon_of(protocol: str, model: keras.Model) -> Iterator[None]:
    """Gives a mixture of softmaxes the epsilon of a protocol, for what is traced meanwhile."""
    head = model.head
    if not isinstance(head, MixtureOfSoftmaxes):
        yield
        return
    before, head.epsilon = head.epsilon, _EPSILON[protocol]
    try:
        yield
    finally:
        head.epsilon = before


def _total(nll: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(tf.cast(nll, tf.float64))  # a corpus has more tokens than float32 counts
