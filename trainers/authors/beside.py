"""Our models in training, beside those of the authors."""

import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from ml_collections import ConfigDict

from trainers.authors import clone as clones
from trainers.authors import released, torch_files
from trainers.authors.released import Arrays
from trainers.training import runs


class InTraining:
    """Our model in training, with the trainers' own loss, loop and optimizer.

    Args:
        config: from `trainers.verify.comparable`.
        weights: the authors' weights, as `convert` takes them.
        model: the model.
        task: what the loop trains.
    """

    def __init__(self, config: ConfigDict, weights: Arrays, model: Any, task: Any):
        self._config, self.model, self.task = config, model, task
        released.give_weights(model, self.from_theirs(weights))
        optimizer = runs.make_optimizer(config)
        self._trainer = runs.make_trainer(config, task, optimizer)
        self._look = tf.function(self._computed, autograph=False)
        self.start_epoch()

    def from_theirs(self, arrays: Arrays) -> Any:
        """Returns a model of ours with arrays that have the names of their weights."""
        raise NotImplementedError

    def read_by_them(self, batch: Any) -> tuple[np.ndarray, np.ndarray]:
        """Returns a batch as their model reads it."""
        raise NotImplementedError

    def start_epoch(self) -> None:
        """Resets the state."""
        self._state = self.task.initial_state()

    def batches(self) -> Iterator[Any]:
        """Returns the batches of the run, (inputs, targets)."""
        return self._trainer.batches(0)

    def step(self, batch: Any) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
        """Trains on a batch.

        Returns:
            what the step computed: what `_outputs` returns, the terms of the loss, their sum, the
            norm of the gradient; and the gradient of each trainable variable before clipping.
        """
        values, gradients = self._look(batch, self._state)
        metrics, self._state = self._trainer.step(batch, self._state)
        for name in ("weight", "accuracy"):
            metrics.pop(name, None)
        values = {
            name: np.asarray(value) for name, value in {**values, **metrics}.items()
        }
        return values, [gradient.numpy() for gradient in gradients]

    def _outputs(self, inputs: Any, state: Any) -> dict[str, tf.Tensor]:
        """Returns what the model computes of a batch."""
        raise NotImplementedError

    def _computed(
        self, batch: Any, state: Any
    ) -> tuple[dict[str, tf.Tensor], list[tf.Tensor]]:
        with tf.GradientTape() as tape:
            loss, weight, _, _ = self.task.loss(batch, state)
            loss /= weight
        variables = [variable.value for variable in self.model.trainable_variables]
        gradients = [
            tf.convert_to_tensor(part) for part in tape.gradient(loss, variables)
        ]
        return self._outputs(batch[0], state), gradients


def reference_module(clone: str, name: str) -> Any:
    """Returns what runs the authors' file `name` of a clone; raises ValueError without it."""
    clones.check(clone, name)
    torch_files.torch()
    return importlib.import_module("trainers.authors.reference")
