"""Classification and regression of sequences as a task of the training loop."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from ml_collections import ConfigDict

from keras_trellis.types import Tensor
from trainers.data.sequences import SequenceData
from trainers.kinds.measures import Metric
from trainers.sequences.layer import TrainedLayer
from trainers.tasks import registry
from trainers.training.experiment import ShuffledExamples

_SHARES = ("accuracy", "right_answers")


class Score(NamedTuple):
    """The score of a model on examples.

    Attributes:
        loss: the mean cross entropy in nats, or the mean squared error.
        accuracy: the share of right classes; None for values.
        targets: the number of targets.
        predictions: the class with the greatest logit, for each target; empty for values.
        right_answers: the share of answers all of whose symbols are right; None if the task asks
            for no answers.
        metrics: the mean of each of the task's metrics over the targets.
    """

    loss: float
    accuracy: float | None
    targets: int
    predictions: np.ndarray
    right_answers: float | None = None
    metrics: Mapping[Metric, float] = MappingProxyType({})

    @property
    def shares(self) -> dict[str, float]:
        """The shares that there are, by their names."""
        shares = {name: getattr(self, name) for name in _SHARES}
        return {name: share for name, share in shares.items() if share is not None}


class SequenceModeling(TrainedLayer, ShuffledExamples):
    """The loop's `Task` for a model that maps `[B, T, p]` to logits or to values.

    Args:
        model: a model, built.
        config: the run's config.
        data: the examples.

    Raises:
        ValueError: the batch size does not suit the data.
    """

    def __init__(
        self, model: keras.Model, config: ConfigDict, data: SequenceData
    ) -> None:
        super().__init__(config, data)
        self.model = model
        task = registry.get(config.task)
        self._measure, self._has_answers = task.measure, task.has_answers
        self._metrics = task.metrics
        # Only images have it.
        self._smoothing = config.training.get("label_smoothing", 0.0)
        self.unit = self._measure.counted
        self._outputs = tf.function(self._run, reduce_retracing=True, autograph=False)

    def loss(
        self, batch: tuple, state: Any, **stage: Any
    ) -> tuple[Tensor, Tensor, Any, dict]:
        """Returns the loss summed over the targets, their number, (), and the right ones.

        Args:
            batch: this replica's rows of (inputs, targets).
            state: ().
            **stage: `depth` where fewer levels train.
        """
        inputs, targets = batch
        losses, hits = self.target_scores(
            inputs, targets, training=True, smoothing=self._smoothing, **stage
        )
        right = {}
        count = tf.cast(tf.size(targets), losses.dtype)
        if hits is not None:
            right["accuracy"] = tf.reduce_sum(hits)
            if self._has_answers:
                # The loop divides every sum by `count`, also this one, which is of answers.
                whole = tf.reduce_min(hits, axis=-1)
                right["right_answers"] = tf.reduce_mean(whole) * count
        penalty = sum(self.model.losses) * count
        total = tf.reduce_sum(losses) + penalty
        return total, count, state, right

    def evaluate(self) -> dict[str, float]:
        """Returns the loss of the present weights on validation data, and the accuracy.

        Without validation data it returns {}.
        """
        if not len(self._data.validation.inputs):
            return {}
        score = self.score("validation")
        return {"loss": score.loss, **score.shares}

    def display(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Returns the task's measure first: a share in percent, or the loss by its name."""
        shares = {name: 100 * metrics[name] for name in _SHARES if name in metrics}
        if self._measure.higher_is_better:
            return {**shares, "loss": metrics["loss"]}
        return {self._measure.name: metrics["loss"], **shares}

    def score(self, split: str) -> Score:
        """Returns the present weights' score on a split, without dropout."""
        inputs, targets = getattr(self._data, split)
        size = self._config.evaluation.batch_size
        starts = range(0, len(inputs), size)
        parts = (tf.constant(inputs[start : start + size]) for start in starts)
        outputs = np.concatenate(
            [self._outputs(part, training=False) for part in parts]
        )
        losses = _losses(tf.constant(targets), outputs)
        loss = float(np.mean(losses, dtype="float64"))
        metrics = {metric: _mean(metric, targets, outputs) for metric in self._metrics}
        if targets.dtype != np.int32:
            return Score(loss, None, targets.size, np.array([]), metrics=metrics)
        predictions = np.asarray(_predicted(outputs))
        hits = predictions == targets
        score = Score(
            loss=loss,
            accuracy=float(np.mean(hits)),
            targets=targets.size,
            predictions=predictions,
            metrics=metrics,
        )
        if not self._has_answers:
            return score
        whole = hits.all(-1)
        return score._replace(right_answers=float(np.mean(whole)))

    def target_scores(
        self,
        inputs: Tensor,
        targets: Tensor,
        *,
        training: bool = False,
        smoothing: float = 0.0,
        **stage: Any,
    ) -> tuple[Tensor, Tensor | None]:
        """Returns the loss of each target, and 1 where it is right, else 0; None for values."""
        outputs = self._run(inputs, training=training, **stage)
        losses = _losses(targets, outputs, smoothing)
        if not targets.dtype.is_integer:
            return losses, None
        hits = _predicted(outputs) == targets
        return losses, tf.cast(hits, losses.dtype)

    def _run(self, inputs: Tensor, **how: Any) -> Tensor:
        inputs = self._data.normalise(inputs)
        return self.model(inputs, **how)


def _losses(targets: Tensor, outputs: Tensor, smoothing: float = 0.0) -> Tensor:
    """Returns the cross entropy of each class, or the squared error of each value.

    Args:
        targets: classes or values.
        outputs: logits of the classes, or values.
        smoothing: the share of a class that all classes get, in equal parts.
    """
    if targets.dtype.is_integer and smoothing:
        return keras.losses.categorical_crossentropy(
            tf.one_hot(targets, outputs.shape[-1], dtype=outputs.dtype),
            outputs,
            from_logits=True,
            label_smoothing=smoothing,
        )
    if targets.dtype.is_integer:
        return tf.nn.sparse_softmax_cross_entropy_with_logits(targets, outputs)
    errors = tf.squeeze(outputs, -1) - targets
    return tf.square(errors)


def _mean(metric: Metric, targets: np.ndarray, outputs: np.ndarray) -> float:
    """Returns the mean of a metric over all targets."""
    if targets.dtype == np.int32:
        predictions = tf.nn.log_softmax(outputs)
    else:
        predictions = tf.squeeze(outputs, -1)
    values = metric.compute(predictions, tf.constant(targets))
    return float(np.mean(values, dtype="float64"))


def _predicted(outputs: Tensor) -> Tensor:
    return tf.argmax(outputs, axis=-1, output_type=tf.int32)
