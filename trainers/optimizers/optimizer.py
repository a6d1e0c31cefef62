"""`Optimizer`: what all optimizers share, averages of the weights included; and clipping."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import keras
from etils import epy
from ml_collections import ConfigDict

with epy.lazy_imports():  # names and slots are read where TensorFlow is not installed
    import tensorflow as tf


class Optimizer(keras.optimizers.Optimizer):
    """Adds weight_decay * variable to the gradient, after the loop has clipped it.

    A subclass says which variables it keeps, and defines `update_variable`, which updates one
    variable of the model by `annealed` and `coupled`.

    It can average the weights from some step on. The averages are those of torch's ASGD with t0 = 0
    and lambd = 0: at the n-th averaged step the new iterate has the weight 1 / max(1, n - 1), so
    1, 1, 1/2, 1/3, ...

    Attributes:
        slot_names: the names of the variables that it keeps for each variable of the model, all of
            them zeros at first.
        torch_name: the name in `torch.optim` of an optimizer with the same formula and defaults,
            which `trainers.verify` compares it with; None: there is none.
        rate_factor: what `scale_rate` has set; None without `scales`.
        averaged_from: the number of steps before the first averaged one, a variable; -1 while not
            averaging. None without averages, but for `SGD`.

    Args:
        learning_rate: the learning rate.
        weight_decay: the coefficient of the variable in the gradient.
        averages: whether to create the variables that `start_averaging` needs.
        steps: the length of a run, over which the rate falls to 0 along half a cosine; 0: the rate
            stays as it is set.
        scales: whether to create the variable that `scale_rate` needs.
    """

    slot_names: tuple[str, ...] = ()
    torch_name: ClassVar[str | None] = None

    def __init__(
        self,
        learning_rate: float,
        weight_decay: float = 0.0,
        averages: bool = False,
        steps: int = 0,
        scales: bool = False,
    ):
        super().__init__(learning_rate=lambda: self.learning_rate)
        # Keras's own variable is float32, too coarse for a run in float64.
        self.rate = self.add_scalar("learning_rate", "float64")
        self.learning_rate = learning_rate
        # Not named `weight_decay`: Keras would apply that, decoupled.
        self.coupled_weight_decay = weight_decay
        self.steps = steps
        self.averages = averages
        self.averaged_from: Any = self.add_averaged_from() if averages else None
        self.slot_variables: dict[str, list[keras.Variable]] = {}
        # TensorFlow's, so that it is none of `variables`: each step sets it anew.
        self.rate_factor: tf.Variable | None = _one() if scales else None

    def add_scalar(
        self, name: str, dtype: str, initializer: str = "zeros"
    ) -> keras.Variable:
        """Adds a variable of one number, the same on all replicas."""
        replicas = "only_first_replica"
        return self.add_variable(
            (), initializer, dtype, aggregation=replicas, name=name
        )

    def add_averaged_from(self) -> keras.Variable:
        """Adds the variable `averaged_from`."""
        variable = self.add_scalar("averaged_from", "int64")
        variable.assign(-1)
        return variable

    @classmethod
    def from_run_config(cls, config: ConfigDict, **arguments: Any) -> Optimizer:
        """Returns the optimizer of a run's config.

        Args:
            config: the run's config.
            **arguments: further ones; `steps` and `scales` follow from the run's length and data.
        """
        settings = config.optimizer
        averages = _averages(config)
        return cls(settings.learning_rate, settings.weight_decay, averages, **arguments)

    @classmethod
    def run_slot_names(cls, config: ConfigDict) -> tuple[str, ...]:
        """Returns the names of the slots in a run with a config."""
        return _with_average(cls.slot_names, _averages(config))

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Creates the slots of each variable."""
        if self.built:
            return
        super().build(variables)
        for name in _with_average(self.slot_names, self.averages):
            self.slot_variables[name] = [
                self.add_variable_from_reference(variable, name)
                for variable in variables
            ]

    def slot(self, name: str, variable: Any) -> keras.Variable:
        """Returns the slot of a variable that `update_variable` was given."""
        # `_get_variable_index` is Keras's hook for subclasses: in a strategy `variable` is a
        # replica's copy, and only Keras knows of which variable.
        return self.slot_variables[name][self._get_variable_index(variable)]

    @property
    def learning_rate(self) -> keras.Variable:
        """The learning rate: a variable; assign a number to set it."""
        return self.rate

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        self.rate.assign(tf.constant(value, "float64"))

    def annealed(self, rate: Any) -> tf.Tensor:
        """Returns the rate of the next step, for the learning rate that is set."""
        rate = tf.cast(rate, "float64")
        if self.rate_factor is not None:
            rate *= self.rate_factor
        if not self.steps:
            return rate
        done = tf.cast(self.iterations, "float64") / self.steps
        return rate * (1.0 + tf.cos(math.pi * tf.minimum(done, 1.0))) / 2.0

    def scale_rate(self, factor: tf.Tensor) -> None:
        """Multiplies the learning rate of the steps that follow by a float64 scalar.

        Raises:
            ValueError: the optimizer was made without `scales=True`.
        """
        if self.rate_factor is None:
            raise ValueError(
                "the optimizer must be made with scales=True to scale its rate. "
                f"Received: {self.name}"
            )
        self.rate_factor.assign(factor)

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Updates one variable, and its average."""
        self.update_variable(gradient, variable, learning_rate)
        if self.averages:
            keras.ops.cond(
                self.averaged_from >= 0,
                lambda: self._update_average(variable),
                lambda: None,
            )

    def update_variable(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Updates one variable; a subclass defines it.

        Args:
            gradient: the gradient, without the weight decay.
            variable: the variable.
            learning_rate: the learning rate that is set; see `annealed`.
        """
        raise NotImplementedError

    def _update_average(self, variable: tf.Variable) -> None:
        average = self.slot("average", variable)
        # `iterations` counts the earlier steps, so this is n - 1.
        before = tf.cast(self.iterations - self.averaged_from, variable.dtype)
        weight = 1.0 / tf.maximum(before, tf.ones_like(before))
        self.assign(average, (1.0 - weight) * average + weight * variable)

    @property
    def averaging(self) -> bool:
        """Whether evaluation uses averaged weights."""
        return self.averages and bool(self.averaged_from.numpy() >= 0)

    def start_averaging(self) -> None:
        """Starts averaging at the next step.

        Raises:
            ValueError: the optimizer was made without `averages=True`.
        """
        if not self.averages:
            raise ValueError(
                "the optimizer must be made with averages=True to average. "
                f"Received: {self.name}"
            )
        self.averaged_from.assign(self.iterations)

    @contextlib.contextmanager
    def evaluation_weights(self, variables: Sequence[keras.Variable]) -> Iterator[None]:
        """Sets `variables`, as given to `build`, to their averages, if any; then restores them."""
        if not self.averaging or self.iterations.numpy() == self.averaged_from.numpy():
            yield  # no step has been averaged yet
            return
        values = [variable.numpy() for variable in variables]
        averages = self.slot_variables["average"]
        try:
            for variable, average in zip(variables, averages, strict=True):
                variable.assign(average.numpy())
            yield
        finally:
            for variable, value in zip(variables, values, strict=True):
                variable.assign(value)

    def coupled(self, gradient: tf.Tensor, variable: tf.Variable) -> tf.Tensor:
        """Returns the gradient with the weight decay in it, in the variable's dtype."""
        gradient = tf.cast(gradient, variable.dtype)
        if self.coupled_weight_decay:
            gradient += self.coupled_weight_decay * variable
        return gradient


def _averages(config: ConfigDict) -> bool:
    """Returns whether a run with a config may average its weights."""
    schedule = config.schedule
    return schedule.average or schedule.average_after is not None


def _with_average(slot_names: tuple[str, ...], averages: bool) -> tuple[str, ...]:
    """Returns the names of all slots."""
    return (*slot_names, "average") if averages else slot_names


def _one() -> tf.Variable:
    """Returns a float64 variable of 1, the same on all replicas."""
    return tf.Variable(
        1.0,
        dtype="float64",
        trainable=False,
        aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
    )


def clip_by_global_norm(
    gradients: Sequence[tf.Tensor], clip_norm: float | None
) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Scales gradients down to a global norm: g * min(1, clip_norm / (norm + 1e-6)).

    Args:
        gradients: dense tensors.
        clip_norm: the largest norm; None keeps the gradients as they are.

    Returns:
        the clipped gradients, and the norm before clipping.
    """
    norm = tf.linalg.global_norm(gradients)
    if clip_norm is None:
        return list(gradients), norm
    # The 1e-6 is that of torch's `clip_grad_norm_`.
    scale = tf.minimum(tf.ones_like(norm), clip_norm / (norm + 1e-6))
    return [gradient * tf.cast(scale, gradient.dtype) for gradient in gradients], norm
