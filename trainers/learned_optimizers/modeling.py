"""Meta-training as a task of the training loop: a step is a truncation of an optimization."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from ml_collections import ConfigDict

from keras_trellis.types import Tensor
from trainers.learned_optimizers import core, rules
from trainers.learned_optimizers.core import UpdateNetwork
from trainers.learned_optimizers.optimizees import Draw, Optimizee
from trainers.training import schedules
from trainers.training.batches import Batches
from trainers.training.schedules import WHOLE

SPLITS = {
    "validation": 2**31,
    "test": 2**31 + 1,
    "tuning": 2**31 + 2,
}
"""The seeds of draws that are no episodes; an episode's seed is its number."""


class Score(NamedTuple):
    """What became of draws.

    Attributes:
        mean: the mean loss after each step.
        final: the mean loss after the last step.
        draws: the number of draws.
    """

    mean: float
    final: float
    draws: int


class MetaTraining:
    """The loop's `Task` for an optimizer's network.

    A batch is the number of a step of the run. All else follows from it, the seed, and what is
    carried: coordinates and states. After the last truncation of an optimization comes a new one.

    Args:
        network: what is trained.
        config: the run's config.
        optimizees: what it optimizes, by split.
    """

    unit = "truncations"
    stages, allows_rewrites = WHOLE, True

    def __init__(
        self,
        network: UpdateNetwork,
        config: ConfigDict,
        optimizees: Mapping[str, Optimizee],
    ) -> None:
        self.model: Any = network
        self._config = config
        self._optimizees = optimizees
        data = config.data
        self._parts = data.steps // data.unroll
        self.steps_per_epoch = data.episodes * self._parts
        # Without a backward pass, which takes twice as long as the forward pass.
        evaluated = self._parts * data.evaluated
        self.evaluation_steps = evaluated / draws(config) / 3
        self.scoring = 2.0
        # Not by XLA, which takes three times as long on a CPU here.
        self._unrolled = tf.function(self._unroll, autograph=False)
        self._optimized = tf.function(self._optimize, autograph=False)

    def dataset(self, first_step: int) -> Batches:
        """Returns the numbers of the steps, each of shape `[1]`."""
        training = self._config.training
        passes = schedules.passes(training, self.steps_per_epoch)
        last = self.steps_per_epoch * passes
        return np.arange(first_step, last, dtype="int64")[:, None]

    def initial_state(self) -> tuple[Tensor, core.States]:
        """Returns coordinates and states, all 0; the first step of an episode replaces them."""
        shape = [draws(self._config), self._optimizees["train"].size]
        dtype = self.model.compute_dtype
        states = self.model.initial_states(np.prod(shape))
        return tf.zeros(shape, dtype), states

    def loss(self, batch: Tensor, state: Any) -> tuple:
        """Returns the losses of a truncation summed, the draws, and what is carried."""
        losses, state = self._unrolled(batch[0], state)
        count = tf.cast(draws(self._config), losses.dtype)
        last = tf.reduce_sum(losses[-1])
        return tf.reduce_sum(losses), count, state, {"last": last}

    def _unroll(self, number: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Optimizes for a truncation; returns the losses `[unroll, draws]`, and the state."""
        episode = number // self._parts
        part = number % self._parts
        draw = self._draw("train", episode, draws(self._config))
        fresh_states = self.model.initial_states(tf.size(draw.theta))
        fresh = (draw.theta, fresh_states)
        begins = part == 0

        def choose(new: Tensor, old: Tensor) -> Tensor:
            return tf.where(begins, new, old)

        theta, states = tf.nest.map_structure(choose, fresh, state)
        unroll = self._config.data.unroll
        before = tf.cast(part * unroll, tf.int32)

        def loss(theta: Tensor, step: int) -> Tensor:
            return draw.loss(theta, before + step)

        losses, *after = core.unroll(self.model, loss, theta, states, unroll)
        return losses, tuple(after)

    def _draw(self, split: str, number: Any, count: int) -> Draw:
        numbers = (self._config.seed, number)
        seed = tf.stack([tf.cast(value, tf.int64) for value in numbers])
        optimizee = self._optimizees[split]
        return optimizee.draw(seed, count)

    def evaluate(self) -> dict[str, float]:
        """Returns the losses of the present network on the validation draws."""
        score = self.score("validation")
        loss = score.mean * self._config.data.unroll
        return {"loss": loss, "last": score.final}

    def display(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Returns the mean loss of a step, and that of a truncation's or a draw's last step."""
        mean = metrics["loss"] / self._config.data.unroll
        return {"mean_loss": mean, "last_loss": metrics["last"]}

    def score(self, split: str) -> Score:
        """Returns the losses on the draws of a split, which depend on the seed alone."""
        losses = self._optimized(split).numpy()
        losses = losses[1:].astype("float64")
        return Score(
            mean=losses.mean(),
            final=losses[-1].mean(),
            draws=losses.shape[1],
        )

    def _optimize(self, split: str) -> Tensor:
        data = self._config.data
        draw = self._draw(split, SPLITS[split], data.evaluated)
        rule = rules.learned(self.model)
        return rules.losses(rule, draw, data.steps)


def draws(config: ConfigDict) -> int:
    """Returns how many functions are optimized at once in training."""
    if "dimensions" in config.data:
        return config.data.batch_size
    return 1
