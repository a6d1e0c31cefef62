"""The course of a run: the parts that its steps make, when its rate falls, when it averages.

Nothing here has a state: the optimizer's variables hold what a schedule has done.
"""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

Stage = Mapping[str, Any]
"""The arguments that the task's loss has in a part of the run, by name."""


def length(training: Any, steps_per_pass: int) -> int:
    """Returns the training steps of a run.

    Args:
        training: the config's group `training`.
        steps_per_pass: the training steps that read the data once. An epoch has as many, or
            `training.epoch_steps` if that is more.
    """
    return training.steps or training.epochs * max(steps_per_pass, training.epoch_steps)


def passes(training: Any, steps_per_pass: int) -> int:
    """Returns how often a run reads its data, the last time perhaps in part; see `length`."""
    return -(-length(training, steps_per_pass) // steps_per_pass)


def stopped(result: Mapping[str, Any], stop_after: int | None) -> bool:
    """Returns whether a run with this result ended before its last epoch, by its schedule."""
    if result.get("solved"):
        return True
    if stop_after is None or "best_epoch" not in result:
        return False
    return result["epochs"] - result["best_epoch"] >= stop_after


class Plan(NamedTuple):
    """How long a run is, and when something is due in it.

    Attributes:
        epochs: the equal parts of the run, each ended by a validation.
        length: the run's training steps.
        pass_steps: the training steps that read the data once.
        log_every_steps: how often metrics are shown and recorded.
        checkpoint_every_steps: how often a checkpoint is written within an epoch, or None.
        costs: how long a step of each equal part of the run takes, beside one of the last part.
    """

    epochs: int
    length: int
    pass_steps: int
    log_every_steps: int
    checkpoint_every_steps: int | None
    costs: Sequence[float] = (1.0,)

    def epoch_end(self, epoch: int) -> int:
        """Returns the step after which an epoch ends, counted from 1."""
        return epoch * self.length // self.epochs

    def stage(self, step: int) -> int:
        """Returns the index of the stage of the next step, after `step` steps."""
        return step * len(self.costs) // self.length

    def until_due(self, step: int, end: int) -> int:
        """Returns how many steps fit before something is due or the data ends, at least 1."""
        periods = (self.log_every_steps, self.checkpoint_every_steps)
        due = [period - step % period for period in periods if period]
        # The last batch of a pass may have a shape of its own.
        last = self.pass_steps - 1 - step % self.pass_steps
        # The steps of a call belong to one stage: this is the first step of the next one.
        stage_end = -(-(self.stage(step) + 1) * self.length // len(self.costs))
        return max(1, min(*due, last, end - step, stage_end - step))


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Lowers the learning rate at given epochs and at plateaus.

    An epoch is a plateau if its validation loss is above the best of all earlier epochs except the
    last `patience` (the rule of the authors' scripts: after the first plateau each epoch may be
    one). With `resets` it is one after `patience` epochs in a row without a loss below the best
    before them, counted anew after each plateau. Nothing changes after averaging has started.

    Attributes:
        factor: multiplies the learning rate.
        minimum: the learning rate falls no more at or below this value.
        patience: the number of epochs in the plateau rule; None switches the rule off.
        resets: whether a plateau is one only after `patience` further epochs.
        epochs: the epochs, counted from 1, after which the learning rate falls whatever the loss.
        average: whether the first plateau starts averaging instead.
        average_after: the epoch after which averaging starts whatever the loss; None: no such.
        stop_after: the run ends after so many epochs in a row without a loss below the best
            before them; None: it has all its epochs.
        stop_at: the run ends after an epoch in which at least this share of the validation answers
            is right; None: it has all its epochs.
    """

    factor: float = 0.25
    minimum: float = 0.0
    patience: int | None = None
    resets: bool = False
    epochs: tuple[int, ...] = ()
    average: bool = False
    average_after: int | None = None
    stop_after: int | None = None
    stop_at: float | None = None

    def after_epoch(self, losses: Sequence[float], optimizer: Any) -> str | None:
        """Changes the optimizer for the next epoch.

        Args:
            losses: the validation loss of each epoch, the last one included.
            optimizer: from `trainers.optimizers`, or another with the same `averaging`,
                `start_averaging` and `learning_rate`.

        Returns:
            the change in words, or None.
        """
        if optimizer.averaging:
            return None
        epoch = len(losses)
        if epoch == self.average_after:
            optimizer.start_averaging()
            return "weights are averaged from here on"
        plateau = self._plateau(losses)
        if not (plateau or epoch in self.epochs):
            return None
        if plateau and self.average:
            optimizer.start_averaging()
            return "a plateau: weights are averaged from here on"
        rate = float(np.asarray(optimizer.learning_rate))
        if rate <= self.minimum:
            return None
        optimizer.learning_rate = rate * self.factor
        return f"learning rate {rate:g} -> {rate * self.factor:g}"

    def stops(self, losses: Sequence[float]) -> bool:
        """Returns whether a run ends after epochs with these validation losses."""
        if self.stop_after is None or not losses:
            return False
        best = losses.index(min(losses))  # the first of equal ones
        return len(losses) - 1 - best >= self.stop_after

    def is_solved(self, validation: Mapping[str, float]) -> bool:
        """Returns whether a run ends after an epoch with these validation metrics."""
        return self.stop_at is not None and validation["right_answers"] >= self.stop_at

    def _plateau(self, losses: Sequence[float]) -> bool:
        if self.patience is None:
            return False
        if self.resets:
            return self._waited(losses) == self.patience
        before, loss = losses[:-1], losses[-1]
        return len(before) > self.patience and loss > min(before[: -self.patience])

    def _waited(self, losses: Sequence[float]) -> int:
        """Returns the epochs since the last best loss, or since the plateau after it."""
        best, waited = math.inf, 0
        for loss in losses:
            if waited == self.patience:
                waited = 0
            waited = 0 if loss < best else waited + 1
            best = min(best, loss)
        return waited


def make_schedule(config: Any) -> Schedule:
    """Returns the schedule of a config."""
    rules = config.schedule.to_dict()
    if cosine_steps(config):  # the rate falls at each step
        rules = {"average_after": rules["average_after"]}
    return Schedule(**rules)


def cosine_steps(config: Any) -> int:
    """Returns over how many steps the learning rate falls along a cosine; 0 if it does not."""
    stops = config.schedule.stop_after is not None
    return 0 if stops else config.training.steps


def draws_lengths(config: Any) -> bool:
    """Returns whether windows have drawn lengths, to which the learning rate is proportional."""
    return config.data.get("lengths") == "drawn"


@dataclasses.dataclass(frozen=True)
class Stages:
    """The parts of a run, one after another, each of the same number of steps.

    Attributes:
        arguments: what the task's loss takes in each part.
        costs: how long a step of each part takes, beside one of the last part; for the estimate of
            the run's time.
        lines: what a user reads about the parts.
    """

    arguments: Sequence[Stage] = ({},)
    costs: Sequence[float] = (1.0,)
    lines: Sequence[str] = ()


WHOLE = Stages()
"""A run of one part."""


def total_cost(costs: Sequence[float], steps: int, length: int) -> float:
    """Returns the sum of the costs of a run's first steps; see `Plan.stage`.

    Args:
        costs: those of a step in each part.
        steps: the number of steps.
        length: the steps of the whole run.
    """
    parts = len(costs)
    # A part begins with the first step that `Plan.stage`, which rounds down, counts to it.
    ends = [math.ceil(part * length / parts) for part in range(parts + 1)]
    total = 0.0
    for cost, (start, end) in zip(costs, itertools.pairwise(ends), strict=True):
        total += cost * max(0, min(steps, end) - start)
    return total
