"""What a model of recordings learns, and how it is scored: classes, numbers, the steps to come."""

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from ml_collections import ConfigDict

from keras_trellis.types import Tensor
from trainers.data.recordings import NO_CLASS, Facts, Recording, SeriesData
from trainers.time_series.models import scaled_steps, whole

_LEAST, _MOST = -7.0, 7.0  # of the logarithm of a predicted variance, in scaled units
_LOG_TWO_PI = math.log(2 * math.pi)


class Terms(NamedTuple):
    """What a batch is scored by.

    Attributes:
        losses: of each target.
        known: which of them there are: 1 or 0, of the same shape.
        hits: 1 where the answer is right, else 0; None if it is no class.
    """

    losses: Tensor
    known: Tensor
    hits: Tensor | None = None


class Score(NamedTuple):
    """The score of a model on a split.

    Attributes:
        loss: the mean of the known targets.
        targets: their number, or that of windows.
        values: the task's numbers by name; shares are in percent.
        counts: what a number is of, in words, by the number's name.
        confusion: how often a class was taken for another, by recording; None if there is none.
    """

    loss: float
    targets: int
    values: Mapping[str, float] = MappingProxyType({})
    counts: Mapping[str, str] = MappingProxyType({})
    confusion: Any = None


Outputs = Callable[[np.ndarray], np.ndarray]
"""From windows `[N, W, p]` to the model's outputs."""
Streams = Callable[[Sequence[np.ndarray]], list[np.ndarray]]
"""From recordings `[T, p]` to the model's outputs at each step `[T, outputs]`."""


class Objective:
    """A kind of loss and of scores.

    Args:
        config: the run's config.
        data: the recordings.
    """

    shares: tuple[
        str, ...
    ] = ()  # of `evaluate` and of training that are shown in percent

    def __init__(self, config: ConfigDict, data: SeriesData) -> None:
        self._config, self._data, self._facts = config, data, data.facts

    def terms(self, inputs: Tensor, targets: Tensor, outputs: Tensor) -> Terms:
        """Returns the losses of a batch of windows.

        Args:
            inputs: `[B, W, p]`.
            targets: `[B]`, or `[B, W, ...]`.
            outputs: those of the model.
        """
        raise NotImplementedError

    def score(self, split: str, outputs: Outputs, streams: Streams) -> Score:
        """Scores a split.

        Args:
            split: "validation" or "test".
            outputs: runs the model over windows.
            streams: runs it over whole recordings.
        """
        raise NotImplementedError

    def display(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Returns what people read of metrics, the task's measure first where it is known."""
        shown = {name: 100 * metrics[name] for name in self.shares if name in metrics}
        return {**shown, "loss": metrics["loss"]}


class Classes(Objective):
    """Cross entropy of one class for each recording, or for each step.

    A recording's class is that of the greatest mean of log-probabilities over its windows.
    """

    shares: tuple[str, ...] = ("accuracy",)

    def terms(self, inputs: Tensor, targets: Tensor, outputs: Tensor) -> Terms:
        """Returns cross entropies and hits."""
        known = targets != NO_CLASS
        labels = tf.where(known, targets, 0)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, outputs)
        predicted = tf.argmax(outputs, -1, output_type=targets.dtype)
        floats = tf.cast(known, losses.dtype)
        return Terms(losses, floats, tf.cast(predicted == labels, losses.dtype))

    def score(self, split: str, outputs: Outputs, streams: Streams) -> Score:
        """Scores windows and recordings, or steps."""
        if self._facts.every_step:
            return self._step_score(self._data.recordings[split], streams)
        return self.window_score(split, outputs)

    def window_score(self, split: str, outputs: Outputs) -> Score:
        """Scores windows and recordings by what gives the logits of windows."""
        examples = getattr(self._data, split)
        log_probs = log_softmax(outputs(examples.inputs))
        loss, right = _class_means(log_probs, examples.targets)
        score = Score(loss, len(log_probs), {"accuracy": right})
        return self._with_recordings(split, score, log_probs)

    def _with_recordings(
        self, split: str, score: Score, log_probs: np.ndarray
    ) -> Score:
        """Returns a score of windows with that of the recordings that they are of."""
        owners = self._data.owners[split]
        places, means = by_owner(owners, log_probs)
        recordings = self._data.recordings[split]
        targets = np.array([recordings[place].target for place in places])
        predicted, classes = means.argmax(-1), len(self._facts.classes)
        matrix = np.zeros((classes, classes), int)
        np.add.at(matrix, (targets, predicted), 1)
        score = score._replace(confusion=matrix.tolist())
        if len(places) == score.targets:  # each recording is one window
            return score
        share = 100 * float(np.mean(predicted == targets))
        return score._replace(
            values={**score.values, "recording_accuracy": share},
            counts={"recording_accuracy": f"of {len(places):,} recordings"},
        )

    def _step_score(self, recordings: Sequence[Recording], streams: Streams) -> Score:
        outputs = np.concatenate(
            streams([recording.values for recording in recordings])
        )
        targets = np.concatenate([recording.target for recording in recordings])
        known = targets != NO_CLASS
        return self.rate_steps(log_softmax(outputs[known]), targets[known])

    def rate_steps(self, log_probs: np.ndarray, targets: np.ndarray) -> Score:
        """Returns the score of log-probabilities `[N, classes]`, of N steps."""
        loss, right = _class_means(log_probs, targets)
        return Score(loss, len(targets), {"accuracy": right})


class Numbers(Objective):
    """Squared error of one number for each recording, or of some for each step.

    The loss is of scaled numbers, the root mean square of the numbers themselves. A recording's
    number is the mean over its windows.
    """

    def terms(self, inputs: Tensor, targets: Tensor, outputs: Tensor) -> Terms:
        """Returns squared errors."""
        known = tf.math.is_finite(targets)
        outputs = tf.reshape(outputs, tf.shape(targets))
        errors = (outputs - tf.where(known, targets, 0.0)) / self._facts.scale
        return Terms(tf.square(errors), tf.cast(known, errors.dtype))

    def score(self, split: str, outputs: Outputs, streams: Streams) -> Score:
        """Scores recordings, or their steps."""
        recordings = self._data.recordings[split]
        if self._facts.every_step:
            predicted = np.concatenate(
                streams([recording.values for recording in recordings])
            )
            targets = np.concatenate([recording.target for recording in recordings])
        else:
            windows = outputs(getattr(self._data, split).inputs)
            places, predicted = by_owner(self._data.owners[split], windows)
            targets = np.array([recordings[place].target for place in places])
        return self.error_score(predicted.reshape(targets.shape), targets)

    def error_score(self, predicted: np.ndarray, targets: np.ndarray) -> Score:
        """Returns the score of numbers; those without a target do not count."""
        known = np.isfinite(targets)
        errors = np.subtract(predicted, targets, dtype="float64")[known]
        square = float(np.mean(errors**2))
        loss = square / self._facts.scale**2
        return Score(loss, int(known.sum()), {"rmse": math.sqrt(square)})

    def display(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Returns the root of the mean square, in the numbers' unit."""
        return {"rmse": self._facts.scale * math.sqrt(metrics["loss"])}


class NextStep(Objective):
    """Surprise: negative log-likelihood of the step `data.ahead` steps later, in nats a channel.

    At each step the network returns mean and logarithm of the variance of each channel, scaled, of
    a normal distribution. Recordings of other kinds than those of training should surprise it more.
    The validation loss, by which the best epoch is chosen, is that of recordings like them alone.
    """

    shares = ("average_precision",)

    def terms(self, inputs: Tensor, targets: Tensor, outputs: Tensor) -> Terms:
        """Returns the surprises of the steps that come after enough others."""
        return next_step_terms(self._facts, self._config.data.ahead, inputs, outputs)

    def score(self, split: str, outputs: Outputs, streams: Streams) -> Score:
        """Scores whole recordings, read as a stream, and windows of them."""
        recordings = self._data.recordings[split]
        ahead = self._config.data.ahead
        scores = step_scores(self._facts, ahead, recordings, streams)
        strange = np.array([recording.target for recording in recordings], bool)
        # The first steps have no score.
        normal = [s for s, other in zip(scores, strange, strict=True) if not other]
        loss = float(np.nanmean(np.concatenate(normal)))
        means, owners = self._window_means(scores)
        values = {
            "average_precision": average_precision(strange[owners], means),
            "recording_average_precision": average_precision(
                strange, [np.nanmean(steps) for steps in scores]
            ),
            "nll": loss,
        }
        share = 100 * float(np.mean(strange))
        counts = {
            "recording_average_precision": f"of {len(recordings):,} recordings, {share:.2f} % "
            "of them anomalies"
        }
        return Score(loss, len(means), values, counts)

    def _window_means(
        self, scores: Sequence[np.ndarray]
    ) -> tuple[list[float], list[int]]:
        """Returns the mean surprise in each window, and the window's recording."""
        means, owners = [], []
        for owner, steps in enumerate(scores):
            for start in range(0, len(steps), self._facts.window):
                window = steps[start : start + self._facts.window]
                if np.isfinite(window).any():
                    means.append(float(np.nanmean(window)))
                    owners.append(owner)
        return means, owners

    def display(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Returns the surprise, and the precision where anomalies are among the data."""
        shown = super().display(metrics)
        return {"nll": shown.pop("loss"), **shown}


OBJECTIVES: dict[str, type[Objective]] = {
    "classes": Classes,
    "numbers": Numbers,
    "next_step": NextStep,
}
"""What `SeriesTask.objective` names."""


def next_step_terms(facts: Facts, ahead: int, inputs: Tensor, outputs: Tensor) -> Terms:
    """Returns the surprise of each step that comes after `ahead` others: `[B, T - ahead]`.

    Args:
        facts: those of the data.
        ahead: how many steps later the step is that an output predicts.
        inputs: `[B, T, p]`.
        outputs: `[B, T, 2 p]`.
    """
    mask = whole(inputs)
    scaled = tf.where(mask[..., None], scaled_steps(inputs, facts), 0.0)
    later, before = scaled[:, ahead:], outputs[:, :-ahead]
    known = mask[:, ahead:] & mask[:, :-ahead]
    return Terms(surprises(later, before), tf.cast(known, before.dtype))


def step_scores(
    facts: Facts, ahead: int, recordings: Sequence[Recording], streams: Streams
) -> list[np.ndarray]:
    """Returns the surprise at each step `[T]` of recordings; NaN where there is none."""
    scores = []
    outputs = streams([recording.values for recording in recordings])
    for recording, output in zip(recordings, outputs, strict=True):
        terms = next_step_terms(facts, ahead, recording.values[None], output[None])
        known = np.where(terms.known[0], terms.losses[0], np.nan)
        missing = np.full(len(recording.values) - len(known), np.nan)
        scores.append(np.concatenate([missing, known]))
    return scores


def surprises(later: Tensor, outputs: Tensor) -> Tensor:
    """Returns negative log-likelihoods of steps `[..., p]`, nats a channel: `[...]`.

    Args:
        later: the scaled steps.
        outputs: `[..., 2 p]`, their predicted means and the logarithms of their variances.
    """
    mean, log_variance = tf.split(outputs, 2, -1)
    log_variance = tf.clip_by_value(log_variance, _LEAST, _MOST)
    squares = tf.square(later - mean) * tf.exp(-log_variance)
    return tf.reduce_mean(0.5 * (squares + log_variance + _LOG_TWO_PI), -1)


def average_precision(positive: np.ndarray, scores: Sequence[float]) -> float:
    """Returns the average precision of scores, in percent; NaN without positives.

    Raises:
        ImportError: scikit-learn is not installed.
    """
    metrics = scikit_metrics()
    if not np.any(positive):
        return math.nan
    return 100 * float(metrics.average_precision_score(positive, scores))


def scikit_metrics() -> Any:
    """Returns scikit-learn's metrics; raises ImportError if it is not installed."""
    try:
        from sklearn import metrics
    except ImportError as error:
        raise ImportError(
            "--task=anomaly needs scikit-learn, which computes average precision: "
            "pip install scikit-learn"
        ) from error
    return metrics


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Returns log-probabilities `[..., classes]`."""
    return tf.nn.log_softmax(logits).numpy()


def by_owner(owners: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the recordings that windows are of, and the mean of `[N, ...]` over each's."""
    places, index = np.unique(owners, return_inverse=True)
    sums = np.zeros((len(places), *values.shape[1:]))
    np.add.at(sums, index, values)
    counts = np.bincount(index).reshape(-1, *[1] * (values.ndim - 1))
    return places, sums / counts


def _class_means(log_probs: np.ndarray, targets: np.ndarray) -> tuple[float, float]:
    """Returns the mean cross entropy, and the share of right classes in percent."""
    losses = -np.take_along_axis(log_probs, targets[:, None], -1)
    right = np.mean(log_probs.argmax(-1) == targets)
    return float(np.mean(losses, dtype="float64")), 100 * float(right)
