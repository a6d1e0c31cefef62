"""`Adam`."""

from __future__ import annotations

from typing import Any

from etils import epy

from trainers.optimizers.optimizer import Optimizer

with epy.lazy_imports():  # names and slots are read where TensorFlow is not installed
    import tensorflow as tf


class Adam(Optimizer):
    """Adam (Kingma and Ba, 2015): m^ / (sqrt(v^) + epsilon), both corrected for their bias first.

    Args:
        learning_rate: the learning rate.
        weight_decay: the coefficient of the variable in the gradient (not AdamW's).
        averages: as for `Optimizer`.
        steps: as for `Optimizer`.
        scales: as for `Optimizer`.
    """

    slot_names = ("mean", "square")
    torch_name = "Adam"
    beta_1, beta_2, epsilon = 0.9, 0.999, 1e-8

    def update_variable(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Updates one variable in one pass over memory."""
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
            m=self.slot("mean", variable).handle,
            v=self.slot("square", variable).handle,
            beta1_power=zero,
            beta2_power=zero,
            lr=tf.cast(rate, dtype),
            beta1=tf.constant(self.beta_1, dtype),
            beta2=tf.constant(self.beta_2, dtype),
            epsilon=tf.cast(self.epsilon * root_correction, dtype),
            grad=self.coupled(gradient, variable),
        )
