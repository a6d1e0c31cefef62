"""Language modelling as a task of the training loop."""

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from ml_collections import ConfigDict

from trainers.data import datasets, streams
from trainers.language import evaluation
from trainers.sequences.layer import TrainedLayer
from trainers.tasks import registry
from trainers.training import schedules
from trainers.training.batches import Batches


class LanguageModeling(TrainedLayer):
    """The loop's `Task` for a language model on contiguous streams.

    The validation loss chooses the best model and drives the plateau rule. It is that of the
    protocol `trellisnet`, because the rule's published constants belong to it, and because it takes
    every model in large batches.

    Args:
        model: a language model, built.
        config: the run's config.
        train: training ids `[N]`.
        validation: validation ids `[N']`.

    Raises:
        ValueError: the texts are too short for the config's windows, or its fields contradict each
            other.
    """

    def __init__(
        self,
        model: keras.Model,
        config: ConfigDict,
        train: np.ndarray,
        validation: np.ndarray,
    ) -> None:
        self.model = model
        self.evaluator = evaluation.Evaluator(model, config.data, config.evaluation)
        self._config = config
        self._measure = registry.configured(config).measure
        self.unit = self._measure.counted
        self._streams = streams.contiguous_streams(train, config.data.batch_size)
        self._windows = _windows(config, self._streams.shape[1])
        self.steps_per_epoch = self._windows.count
        self._validation = validation
        scored = config.data.batch_size * (config.data.window - config.data.horizon)
        # Without a backward pass, which takes twice as long as the forward pass.
        self.evaluation_steps = len(validation) / scored / 3
        # The end scores two texts by two protocols. If the model sees all of the past, `exact`
        # reads a text in one stream, which has as many steps in sequence as all streams together.
        sees_all = model.receptive_field is None
        self.scoring = 2.0 * (1 + (config.evaluation.batch_size if sees_all else 1))

    def dataset(self, first_step: int) -> Batches:
        """Returns the batches (ids, targets), each `[B, T]`, from a training step to the end."""
        return datasets.windows_dataset(
            self._streams,
            self._windows,
            epochs=schedules.passes(self._config.training, self.steps_per_epoch),
            first_step=first_step,
        )

    def initial_state(self) -> Any:
        """Returns the state before an epoch: zeros `[B, units]`, or () if none is carried."""
        if self._config.data.history == "zero":
            return ()
        return self.model.get_initial_state(self._config.data.batch_size)

    def loss(
        self, batch: tuple, state: Any, depth: int | None = None
    ) -> tuple[tf.Tensor, tf.Tensor, Any, dict]:
        """Returns the loss summed over the scored targets, their number, the state, the terms.

        Args:
            batch: this replica's rows of (ids, targets); and where these are padded, to which
                length they are valid.
            state: this replica's rows of the carried state, or ().
            depth: how many levels train; None: all.
        """
        ids, targets, *length = batch
        horizon = self._config.data.horizon
        mask = _valid(ids, *length) if length else None
        terms, carried = self.model.loss_terms(
            ids,
            targets,
            initial_state=state or None,
            mask=mask,
            training=True,
            discard=horizon,
            depth=depth,
        )
        total = tf.add_n(list(terms))
        scored = tf.cast(tf.size(targets[:, horizon:]), total.dtype)
        if mask is not None:
            scored = tf.reduce_sum(tf.cast(mask[:, horizon:], total.dtype))
        sums = {name: term * scored for name, term in terms._asdict().items()}
        # A loop in TensorFlow needs the nesting that it began with.
        flat = tf.nest.flatten(carried)
        carried = tf.nest.pack_sequence_as(state, flat) if state else ()
        return total * scored, scored, carried, sums

    def evaluate(self) -> dict[str, float]:
        """Returns the validation loss of the model's present weights, in nats a token."""
        return {"loss": self.evaluator.trellisnet(self._validation).mean}

    def display(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Returns the task's measure, in training of the prediction alone, and the loss."""
        nats = metrics.get("prediction", metrics["loss"])
        return {
            self._measure.name: self._measure.from_nats(nats),
            "loss": metrics["loss"],
        }


def _valid(ids: tf.Tensor, length: tf.Tensor) -> tf.Tensor:
    """Returns which steps of ids `[B, T]` come before a length, bool `[B, T]`."""
    valid = tf.range(tf.shape(ids)[1]) < length
    return tf.broadcast_to(valid, tf.shape(ids))


def _windows(config: ConfigDict, length: int) -> streams.AnyWindows:
    data = config.data
    if data.lengths == "drawn":
        return streams.DrawnWindows(length, data.window, config.seed)
    return streams.Windows(length, data.window, data.horizon)
