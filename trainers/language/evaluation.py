"""Scores texts by the two protocols of `trainers.language.protocols`, on TensorFlow."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from keras_trellis import arguments
from keras_trellis.types import Tensor
from trainers.data import streams
from trainers.kinds.measures import WORDS, Metric, Number, TokenMeasure
from trainers.language.protocols import PROTOCOLS, cut, head_epsilon


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
            raise arguments.refusal("protocol", protocol, f"one of {PROTOCOLS}")
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
        outputs, past = model.read(ids, cache, initial_state)
        nll = model.nll(outputs, targets, **head_arguments)
        log_probs = model.log_probs(outputs)
        metrics = [metric.compute(log_probs, targets) for metric in self._metrics]
        return [nll, *metrics], past


def describe(name: str, scores: dict[str, Score], measure: TokenMeasure = WORDS) -> str:
    """Returns one line: the scores of a text under each protocol, with their tokens."""
    parts = []
    for protocol, score in scores.items():
        value = measure.from_nats(score.mean)
        parts.append(f"{protocol} {measure.format_score(value, score.tokens)}")
        parts += [metric.format(value) for metric, value in score.metrics.items()]
    return f"{name} {measure.name}: {', '.join(parts)}"
