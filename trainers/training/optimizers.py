"""Optimizers with torch's formulas, as the paper's recipes need.

Keras's own differ: its Adam scales epsilon, its weight decay is decoupled from the gradient, its
clipping lacks the 1e-6. `variables` holds everything that one step hands on to the next, so a
checkpoint of them is the whole optimizer.
"""

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf


def clip_by_global_norm(
    gradients: Sequence[tf.Tensor], clip_norm: float | None
) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Scales gradients down to a global norm: g * min(1, clip_norm / (norm + 1e-6)).

    Args:
        gradients: dense tensors.
        clip_norm: the largest norm; None keeps the gradients as they are.

    Returns:
        The clipped gradients, and the norm before clipping.
    """
    norm = tf.linalg.global_norm(gradients)
    if clip_norm is None:
        return list(gradients), norm
    scale = tf.minimum(tf.ones_like(norm), clip_norm / (norm + 1e-6))
    return [gradient * tf.cast(scale, gradient.dtype) for gradient in gradients], norm


class Optimizer(keras.optimizers.Optimizer):
    """Adds weight_decay * variable to the gradient, after the loop has clipped it.

    Args:
        learning_rate: the learning rate.
        weight_decay: the coefficient of the variable in the gradient.
        steps: the length of a run, over which the rate falls to 0 along half a cosine; 0: the rate
            stays as it is set.
        scales: whether to create the variable that `scale_rate` needs.
    """

    def __init__(
        self,
        learning_rate: float,
        weight_decay: float = 0.0,
        steps: int = 0,
        scales: bool = False,
    ):
        for argument, value in (
            ("learning_rate", learning_rate),
            ("weight_decay", weight_decay),
        ):
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(
                    f"`{argument}` must be finite and not negative. Received: {argument}={value}"
                )
        super().__init__(learning_rate=lambda: self.learning_rate)
        # Keras's own variable is float32, too coarse for a run in float64.
        self.rate: keras.Variable = self.add_variable(
            shape=(),
            dtype="float64",
            aggregation="only_first_replica",
            name="learning_rate",
        )
        self.learning_rate = learning_rate
        # Not named `weight_decay`: Keras would apply that, decoupled.
        self.coupled_weight_decay = weight_decay
        self.steps = steps
        self._factor: Any = None
        if scales:
            # TensorFlow's, so that it is none of `variables`: each step sets it anew.
            self._factor = tf.Variable(
                1.0,
                dtype="float64",
                trainable=False,
                aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
            )

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
        if self._factor is not None:
            rate *= self._factor
        if not self.steps:
            return rate
        done = tf.cast(self.iterations, "float64") / self.steps
        return rate * (1.0 + tf.cos(math.pi * tf.minimum(done, 1.0))) / 2.0

    def scale_rate(self, factor: tf.Tensor) -> None:
        """Multiplies the learning rate of the steps that follow by a float64 scalar.

        Raises:
            ValueError: the optimizer was made without `scales=True`.
        """
        if self._factor is None:
            raise ValueError(
                "the optimizer must be made with scales=True to scale its rate. "
                f"Received: {self.name}"
            )
        self._factor.assign(factor)

    @property
    def averaging(self) -> bool:
        """Whether evaluation uses averaged weights."""
        return False

    def start_averaging(self) -> None:
        """Starts averaging at the next step.

        Raises:
            ValueError: this optimizer has no averages.
        """
        raise ValueError(
            f"the optimizer must be SGD with averages=True to average. Received: {self.name}"
        )

    @contextlib.contextmanager
    def evaluation_weights(self, variables: Sequence[keras.Variable]) -> Iterator[None]:
        """Sets variables, as given to `build`, to their values for evaluation; restores them."""
        yield

    def slots(self) -> dict[str, Sequence[keras.Variable]]:
        """Returns lists by name, with one variable for each variable given to `build`."""
        return {}

    def _coupled(self, gradient: tf.Tensor, variable: tf.Variable) -> tf.Tensor:
        gradient = tf.cast(gradient, variable.dtype)
        if self.coupled_weight_decay:
            gradient += self.coupled_weight_decay * variable
        return gradient


class SGD(Optimizer):
    """Stochastic gradient descent, with optional averages of the iterates from some step on.

    The averages are those of torch's ASGD with t0 = 0 and lambd = 0: at the n-th averaged step the
    new iterate has the weight 1 / max(1, n - 1), so 1, 1, 1/2, 1/3, ...

    Args:
        learning_rate: the learning rate.
        weight_decay: the coefficient of the variable in the gradient.
        averages: whether to create the variables that `start_averaging` needs.
        steps: as for `Optimizer`.
        scales: as for `Optimizer`.
        lags: whether an averaged step takes the factor of the step before, as with torch's ASGD,
            which computes its rate at the end of a step.
    """

    def __init__(
        self,
        learning_rate: float,
        weight_decay: float = 0.0,
        averages: bool = False,
        steps: int = 0,
        scales: bool = False,
        lags: bool = False,
    ):
        super().__init__(learning_rate, weight_decay, steps, scales)
        self.averages: list = []
        self.keeps_averages = averages
        # The number of iterations before the first averaged one; -1 while not averaging.
        self.averaged_from = self.add_variable(
            shape=(),
            dtype="int64",
            aggregation="only_first_replica",
            name="averaged_from",
        )
        self.averaged_from.assign(-1)
        self.last_factor: Any = None
        if lags:
            self.last_factor = self.add_variable(
                shape=(),
                dtype="float64",
                initializer="ones",
                aggregation="only_first_replica",
                name="last_factor",
            )

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Creates an average for each variable."""
        if self.built:
            return
        super().build(variables)
        if self.keeps_averages:
            self.averages = [
                self.add_variable_from_reference(v, "average") for v in variables
            ]

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Updates one variable."""
        rate = tf.cast(self.annealed(learning_rate), variable.dtype)
        self.assign_sub(variable, rate * self._coupled(gradient, variable))
        if self.keeps_averages:
            # `_get_variable_index` is Keras's hook for subclasses: in a strategy `variable` is a
            # replica's copy, and only Keras knows of which variable.
            average = self.averages[self._get_variable_index(variable)]
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
        if not self.keeps_averages:
            super().start_averaging()
        self.averaged_from.assign(self.iterations)

    @contextlib.contextmanager
    def evaluation_weights(self, variables: Sequence[keras.Variable]) -> Iterator[None]:
        """Sets `variables` to their averages, if there are any, then restores them."""
        if not self.averaging or self.iterations.numpy() == self.averaged_from.numpy():
            yield  # no step has been averaged yet
            return
        kept = [variable.numpy() for variable in variables]
        try:
            for variable, average in zip(variables, self.averages, strict=True):
                variable.assign(average.numpy())
            yield
        finally:
            for variable, value in zip(variables, kept, strict=True):
                variable.assign(value)

    def slots(self) -> dict[str, Sequence[keras.Variable]]:
        """Returns the averages, if they are kept."""
        return {"average": self.averages} if self.keeps_averages else {}


class Adam(Optimizer):
    """Adam (Kingma and Ba, 2015): m^ / (sqrt(v^) + epsilon), both corrected for their bias first.

    Args:
        learning_rate: the learning rate.
        weight_decay: the coefficient of the variable in the gradient (not AdamW's).
        steps: as for `Optimizer`.
        scales: as for `Optimizer`.
    """

    beta_1, beta_2, epsilon = 0.9, 0.999, 1e-8

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Creates two moments for each variable."""
        if self.built:
            return
        super().build(variables)
        self.means = [self.add_variable_from_reference(v, "mean") for v in variables]
        self.squares = [
            self.add_variable_from_reference(v, "square") for v in variables
        ]

    def slots(self) -> dict[str, Sequence[keras.Variable]]:
        """Returns the two moments."""
        return {"mean": self.means, "square": self.squares}

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Updates one variable in one pass over memory."""
        index = self._get_variable_index(variable)  # see SGD
        # Use float64, since 1 - 0.999 loses four digits in float32. The fused kernel adds epsilon
        # before its corrections; with these arguments the result is that of the equation.
        step = tf.cast(self.iterations + 1, "float64")
        mean_correction = 1.0 - tf.pow(tf.constant(self.beta_1, "float64"), step)
        root_correction = tf.sqrt(
            1.0 - tf.pow(tf.constant(self.beta_2, "float64"), step)
        )
        rate = self.annealed(learning_rate) * root_correction / mean_correction
        dtype = variable.dtype
        zero = tf.zeros([], dtype)
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self.means[index].handle,
            v=self.squares[index].handle,
            beta1_power=zero,
            beta2_power=zero,
            lr=tf.cast(rate, dtype),
            beta1=tf.constant(self.beta_1, dtype),
            beta2=tf.constant(self.beta_2, dtype),
            epsilon=tf.cast(self.epsilon * root_correction, dtype),
            grad=self._coupled(gradient, variable),
        )
