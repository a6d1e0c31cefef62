"""Recordings as a task of the training loop."""

from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf
from ml_collections import ConfigDict

from trainers.data.recordings import SeriesData
from trainers.sequences.layer import TrainedLayer
from trainers.time_series import models
from trainers.time_series.objectives import Objective, Score
from trainers.training.batches import Batches
from trainers.training.experiment import ShuffledExamples


class SeriesModeling(TrainedLayer, ShuffledExamples):
    """The loop's `Task` for a model of recordings.

    Args:
        model: a model that `models.build` returned.
        config: the run's config.
        data: the recordings.
        objective: what the model learns.
    """

    def __init__(
        self,
        model: keras.Sequential,
        config: ConfigDict,
        data: SeriesData,
        objective: Objective,
    ) -> None:
        super().__init__(config, data)
        self.model, self._series, self.objective = model, data, objective
        self.unit = "steps" if data.facts.every_step else "windows"
        size = config.evaluation.batch_size
        self._runner = models.Runner(model, data.facts, size)

    def dataset(self, first_step: int) -> Batches:
        """Returns the batches (windows, targets), of which steps are left out by `data.crop`."""
        batches: Any = super().dataset(first_step)
        if not (crop := self._crop):
            return batches
        seed = self._config.seed

        def cropped(step: tf.Tensor, batch: tuple) -> tuple:
            windows, targets = batch
            shares = crop * tf.random.stateless_uniform(
                [tf.shape(windows)[0], 1], [seed, tf.cast(step, tf.int32)]
            )
            return models.without_end(windows, shares), targets

        return batches.enumerate(first_step).map(cropped)

    @property
    def _crop(self) -> float:
        return self._config.data.get("crop", 0.0)

    def loss(
        self, batch: tuple, state: Any, **stage: Any
    ) -> tuple[tf.Tensor, tf.Tensor, Any, dict]:
        """Returns the loss summed over the known targets, their number, (), and the right ones.

        Args:
            batch: this replica's rows of (windows, targets).
            state: ().
            **stage: nothing, as all levels train at once.
        """
        inputs, targets = batch
        gaps = self._series.facts.gaps or bool(self._crop)
        outputs = models.run_windows(self.model, inputs, gaps, training=True)
        losses, known, hits = self.objective.terms(inputs, targets, outputs)
        count = tf.reduce_sum(known)
        total = tf.reduce_sum(losses * known) + sum(self.model.losses) * count
        metrics = {} if hits is None else {"accuracy": tf.reduce_sum(hits * known)}
        return total, count, state, metrics

    def evaluate(self) -> dict[str, float]:
        """Returns the loss of the present weights on validation data, and shares."""
        score = self.score("validation")
        shares = {
            name: score.values[name] / 100
            for name in self.objective.shares
            if name in score.values
        }
        return {"loss": score.loss, **shares}

    def display(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Returns the objective's numbers."""
        return self.objective.display(metrics)

    def score(self, split: str) -> Score:
        """Returns the present weights' score on a split, without dropout."""
        runner = self._runner
        return self.objective.score(split, runner.windows, runner.streams)
