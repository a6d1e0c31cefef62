"""`SGD`, with averages of its iterates."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf
from ml_collections import ConfigDict

from trainers.optimizers.optimizer import Optimizer


class SGD(Optimizer):
    """Stochastic gradient descent, with optional averages of the iterates from some step on.

    The averages are those of torch's ASGD with t0 = 0 and lambd = 0: at the n-th averaged step the
    new iterate has the weight 1 / max(1, n - 1), so 1, 1, 1/2, 1/3, ...

    Args:
        learning_rate: the learning rate.
        weight_decay: the coefficient of the variable in the gradient.
        averages: whether to create the variables that `start_averaging` needs.
        steps: as for `Optimizer`.
        scales: as for `Optimizer`. An averaged step takes the factor of the step before, as with
            torch's ASGD, which computes its rate at the end of a step.
    """

    torch_name = "SGD"
    can_average = True

    def __init__(
        self,
        learning_rate: float,
        weight_decay: float = 0.0,
        averages: bool = False,
        steps: int = 0,
        scales: bool = False,
    ):
        super().__init__(learning_rate, weight_decay, steps, scales)
        if averages:
            self.slot_names = ("average",)
        # The number of iterations before the first averaged one; -1 while not averaging.
        self.averaged_from = self.add_scalar("averaged_from", "int64")
        self.averaged_from.assign(-1)
        self.last_factor: Any = None
        if averages and scales:
            self.last_factor = self.add_scalar("last_factor", "float64", "ones")

    @classmethod
    def from_run_config(cls, config: ConfigDict, **arguments: Any) -> Optimizer:
        """Returns the optimizer of a run's config, which may average from some epoch on."""
        averages = bool(cls.run_slot_names(config))
        return super().from_run_config(config, averages=averages, **arguments)

    @classmethod
    def run_slot_names(cls, config: ConfigDict) -> tuple[str, ...]:
        """Returns the names of the slots in a run with a config: averages have one."""
        schedule = config.schedule
        averages = schedule.average or schedule.average_after is not None
        return ("average",) if averages else ()

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Updates one variable."""
        rate = tf.cast(self.annealed(learning_rate), variable.dtype)
        self.assign_sub(variable, rate * self.coupled(gradient, variable))
        if self.slot_names:
            average = self.slot("average", variable)
            keras.ops.cond(
                self.averaged_from >= 0,
                lambda: self._update_average(average, variable),
                lambda: None,
            )

    def scale_rate(self, factor: tf.Tensor) -> None:
        """Multiplies the learning rate of the next step by a float64 scalar."""
        used = factor
        if self.last_factor is not None:
            begun = tf.cast(self.averaged_from, "int64")
            goes_on = (begun >= 0) & (tf.cast(self.iterations, "int64") > begun)
            used = tf.where(goes_on, self.last_factor, factor)
            self.last_factor.assign(factor)
        super().scale_rate(used)

    def _update_average(self, average: keras.Variable, variable: tf.Variable) -> None:
        # `iterations` counts the earlier steps, so this is n - 1.
        before = tf.cast(self.iterations - self.averaged_from, variable.dtype)
        weight = 1.0 / tf.maximum(before, tf.ones_like(before))
        self.assign(average, (1.0 - weight) * average + weight * variable)

    @property
    def averaging(self) -> bool:
        """Whether evaluation uses averaged weights."""
        return bool(self.averaged_from.numpy() >= 0)

    def start_averaging(self) -> None:
        """Starts averaging at the next step."""
        if not self.slot_names:
            super().start_averaging()
        self.averaged_from.assign(self.iterations)

    @contextlib.contextmanager
    def evaluation_weights(self, variables: Sequence[keras.Variable]) -> Iterator[None]:
        """Sets `variables` to their averages, if there are any, then restores them."""
        if not self.averaging or self.iterations.numpy() == self.averaged_from.numpy():
            yield  # no step has been averaged yet
            return
        values = [variable.numpy() for variable in variables]
        try:
            for variable, average in zip(
                variables, self.slot_variables["average"], strict=True
            ):
                variable.assign(average.numpy())
            yield
        finally:
            for variable, value in zip(variables, values, strict=True):
                variable.assign(value)
