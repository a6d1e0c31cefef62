"""The two evaluation protocols of a language model.

`exact` scores every target once, with all of the past that the model can see. The first token has
no past and is no target. `trellisnet` is the protocol of the authors' scripts: streams, windows,
discarded targets, and 1e-8 added to the probabilities of a mixture of softmaxes. Its scores compare
with the paper's.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from keras_trellis.heads import MixtureOfSoftmaxes
from keras_trellis.models import passes
from keras_trellis.types import Tensor
from trainers.data import streams
from trainers.tasks.measures import WORDS, Metric, Number, TokenMeasure

PROTOCOLS = ("exact", "trellisnet")
# The number that a protocol adds to the probabilities of a mixture of softmaxes.
EPSILON = {"exact": 0.0, "trellisnet": 1e-8}


class Score(NamedTuple):
    """The score of a text.

    Attributes:
        nll: the total negative log-likelihood, in nats.
        tokens: the number of scored tokens.
        metrics: the numbers that stand beside it, such as the mean of each metric.
    """

    nll: float
    tokens: int
    metrics: Mapping[Number, float] = MappingProxyType({})

    @property
    def mean(self) -> float:
        """Nats a token."""
        return self.nll / self.tokens


class Evaluator:
    """Scores texts with a model's present weights.

    Args:
        model: a language model with `score`, `get_initial_state`, `get_initial_cache` and
            `receptive_field`. If that is None, which means unbounded, `exact` takes one row.
        data: the config's group `data`: `window`, `horizon` and `history` of `trellisnet`.
        settings: the config's group `evaluation`: `batch_size`, the number of streams of
            `trellisnet`; `exact_batch_size` and `exact_chunk`, which change no number.
        metrics: what to score beside the nll.
    """

    def __init__(
        self,
        model: keras.Model,
        data: Any,
        settings: Any,
        metrics: Sequence[Metric] = (),
    ) -> None:
        self._model = model
        self._data = data
        self._settings = settings
        self._metrics = metrics
        self._call = tf.function(self._score, autograph=False)

    def with_metrics(self, metrics: Sequence[Metric]) -> "Evaluator":
        """Returns an evaluator that scores metrics too; itself if there are none."""
        if not metrics:
            return self
        return Evaluator(self._model, self._data, self._settings, metrics)

    def score(self, protocol: str, ids: np.ndarray) -> Score:
        """Returns the score of a stream of ids `[N]` under one of `PROTOCOLS`."""
        if protocol not in PROTOCOLS:
            raise ValueError(
                f"`protocol` must be one of {PROTOCOLS}. Received: {protocol=}"
            )
        return getattr(self, protocol)(ids)

    def exact(self, ids: np.ndarray) -> Score:
        """Scores each of the N - 1 targets once, with the exact history."""
        batch_size, chunk = self._settings.exact_batch_size, self._settings.exact_chunk
        rows, chunks = cut(ids, batch_size, self._model.receptive_field, chunk)
        cache = self._model.get_initial_cache(rows)
        totals, tokens = self._nothing(), 0
        how = head_epsilon("exact", self._model)
        for inputs, targets, scored in chunks:
            sums, cache = self._call(inputs, targets, scored, cache=cache, **how)
            totals += sums.numpy()
            tokens += int(scored.sum())
        return self._scored(totals, tokens)

    def trellisnet(self, ids: np.ndarray) -> Score:
        """Scores as the authors' script: discards the first `horizon` targets of each window."""
        rows = streams.contiguous_streams(ids, self._settings.batch_size)
        windows = streams.Windows(rows.shape[1], self._data.window, self._data.horizon)
        # A tuple, like the state that is carried: TensorFlow would trace again for a list.
        state = tuple(self._model.get_initial_state(len(rows)))
        how = head_epsilon("trellisnet", self._model)
        totals, tokens = self._nothing(), 0
        for index in range(windows.count):
            inputs, targets = windows.select(rows, index)
            scored = np.arange(targets.shape[1]) >= windows.discard
            sums, carried = self._call(
                inputs, targets, scored, initial_state=state, **how
            )
            state = carried if self._data.history == "carried" else state
            totals += sums.numpy()
            tokens += len(rows) * (targets.shape[1] - windows.discard)
        return self._scored(totals, tokens)

    def _nothing(self) -> np.ndarray:
        return np.zeros(1 + len(self._metrics))

    def _scored(self, totals: np.ndarray, tokens: int) -> Score:
        """Returns the score of sums over tokens, of the nll first."""
        nll, *others = map(float, totals)
        means = (total / tokens for total in others)
        return Score(nll, tokens, dict(zip(self._metrics, means, strict=True)))

    def _score(
        self, ids: Tensor, targets: Tensor, scored: Tensor, **how: Any
    ) -> tuple[Tensor, Any]:
        """Returns sums over the scored targets, of the nll first, and the past of the next ones."""
        if self._metrics:
            values, past = self._all(ids, targets, **how)
        else:
            nll, past = self._model.score(ids, targets, **how)
            values = [nll]
        # A corpus has more tokens than float32 counts.
        masked = [tf.cast(tf.where(scored, value, 0), tf.float64) for value in values]
        return tf.stack([tf.reduce_sum(value) for value in masked]), past

    def _all(
        self,
        ids: Tensor,
        targets: Tensor,
        cache: Any = None,
        initial_state: Any = None,
        **head_arguments: Any,
    ) -> tuple[list[Tensor], Any]:
        """Returns the nll and the metrics of each target, and the past of the next ones."""
        model = self._model
        outputs, past = passes.read(
            model, ids, cache=cache, initial_state=initial_state
        )
        nll = passes.nll(model, outputs, targets, **head_arguments)
        log_probs = passes.log_probs(model, outputs)
        metrics = [metric.compute(log_probs, targets) for metric in self._metrics]
        return [nll, *metrics], past


def cut(
    ids: np.ndarray, batch_size: int, receptive_field: int | None, chunk: int
) -> tuple[int, Iterator[tuple[np.ndarray, ...]]]:
    """Cuts a stream in rows of one length that together score each target once.

    The first row starts where the stream starts. Each other row starts `receptive_field - 1` tokens
    before the input of its first scored target, so that this target sees what it sees in one pass.
    Rows are padded to whole chunks; the padding is not scored.

    Args:
        ids: the stream `[N]`.
        batch_size: the greatest number of rows; a short stream has fewer.
        receptive_field: time steps that an output reaches back, its own included; None: all.
        chunk: time steps a call; rows are a multiple of it long.

    Returns:
        the number of rows, and an iterator over their chunks, so that memory does not grow with the
        stream: the ids, the targets, and whether each is scored, each `[B, n]`.

    Raises:
        ValueError: the stream has fewer than two tokens.
    """
    targets = len(ids) - 1
    if targets < 1:
        raise ValueError(
            f"`ids` must hold at least 2 tokens. Received: {len(ids)} tokens"
        )
    if receptive_field is None:
        batch_size = receptive_field = 1
    warmup = receptive_field - 1
    shared = max(targets - warmup, 1)
    share = math.ceil(shared / max(1, min(batch_size, shared // chunk)))
    rows = math.ceil(shared / share)  # more would have nothing to score
    starts = share * np.arange(rows)[:, None]
    stops = np.minimum(starts + warmup + share, targets)

    def pieces(first: int) -> tuple[np.ndarray, ...]:
        columns = np.arange(first, first + chunk)
        inside = starts + columns < stops
        scored = inside & ((columns >= warmup) | (starts == 0))
        positions = np.where(inside, starts + columns, 0)
        return np.asarray(ids[positions]), np.asarray(ids[positions + 1]), scored

    return rows, map(pieces, range(0, warmup + share, chunk))


def describe(name: str, scores: dict[str, Score], measure: TokenMeasure = WORDS) -> str:
    """Returns one line: the scores of a text under each protocol, with their tokens."""
    parts = []
    for protocol, score in scores.items():
        value = measure.from_nats(score.mean)
        parts.append(f"{protocol} {measure.format_score(value, score.tokens)}")
        parts += [metric.format(value) for metric, value in score.metrics.items()]
    return f"{name} {measure.name}: {', '.join(parts)}"


def check_text(name: str, tokens: int, data: Any, settings: Any) -> None:
    """Raises ValueError if the protocols cannot score a text. Call it before training.

    Args:
        name: the name of the text, for errors.
        tokens: its length.
        data: the config's group `data`.
        settings: the config's group `evaluation`.
    """
    stream = data.horizon + 2  # of these one is scored
    if tokens < settings.batch_size * stream:
        remedy = "give"
        if fitting := tokens // stream:
            remedy = f"use --config.evaluation.batch_size={fitting}, or give"
        raise ValueError(
            f"{name} holds {tokens} tokens; expected at least {settings.batch_size * stream}, "
            f"{stream} (config.data.horizon + 2) in each of config.evaluation.batch_size="
            f"{settings.batch_size} streams: {remedy} more text"
        )


def head_epsilon(protocol: str, model: keras.Model) -> dict[str, float]:
    """Returns the argument `epsilon` of `score` under a protocol; only a mixture has one."""
    if not isinstance(model.head, MixtureOfSoftmaxes):
        return {}
    return {"epsilon": EPSILON[protocol]}
