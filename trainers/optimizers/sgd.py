"""`SGD`."""

from __future__ import annotations

from typing import Any

from etils import epy

from trainers.optimizers.optimizer import Optimizer

with epy.lazy_imports():  # names and slots are read where TensorFlow is not installed
    import tensorflow as tf


class SGD(Optimizer):
    """Stochastic gradient descent.

    Args:
        learning_rate: the learning rate.
        weight_decay: the coefficient of the variable in the gradient.
        averages: as for `Optimizer`.
        steps: as for `Optimizer`.
        scales: as for `Optimizer`. An averaged step takes the factor of the step before, as with
            torch's ASGD, which computes its rate at the end of a step.
    """

    torch_name = "SGD"

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if self.averaged_from is None:
            # Without averages too: checkpoints of every release have it.
            self.averaged_from = self.add_averaged_from()
        self.last_factor: Any = None
        if self.averages and self.rate_factor is not None:
            self.last_factor = self.add_scalar("last_factor", "float64", "ones")

    def update_variable(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Updates one variable."""
        rate = tf.cast(self.annealed(learning_rate), variable.dtype)
        self.assign_sub(variable, rate * self.coupled(gradient, variable))

    def scale_rate(self, factor: tf.Tensor) -> None:
        """Multiplies the learning rate of the next step by a float64 scalar."""
        used = factor
        if self.last_factor is not None:
            begun = tf.cast(self.averaged_from, "int64")
            goes_on = (begun >= 0) & (tf.cast(self.iterations, "int64") > begun)
            used = tf.where(goes_on, self.last_factor, factor)
            self.last_factor.assign(factor)
        super().scale_rate(used)
