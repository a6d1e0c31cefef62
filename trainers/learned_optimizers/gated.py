"""The gated update of coordinates, in which a coordinate is the memory of an LSTM."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from keras_trellis.types import Tensor

# At the start a step is nearly one of gradient descent, of this rate: sig(-5) = 0.0067.
_INPUT_BIAS = -5.0
# A coordinate keeps 0.9999 of itself at the start: 100 steps leave 0.99 of it.
_FORGET_BIAS = 9.0


class GatedUpdate(keras.layers.Layer):
    """theta = f * theta' - i * gradient, with both gates learned.

        i = sig(W_I [h, theta', i'] + b_I),  f = sig(W_F [h, theta', f'] + b_F)

    ' marks what the step before has left. h is what cells make of the gradient and the loss; if it
    is these two numbers, the equations are the printed ones (Ravi and Larochelle 2017,
    "Optimization as a model for few-shot learning", recalled). The weights start at 0, so that an
    untrained update is gradient descent.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.input_gate = self._gate("input_gate", _INPUT_BIAS)
        self.forget_gate = self._gate("forget_gate", _FORGET_BIAS)

    def build(self, values_shape: Any) -> None:
        """Creates the weights of both gates for h `[coordinates, width]`."""
        width = values_shape[-1] + 2  # theta', and the gate itself
        for gate in (self.input_gate, self.forget_gate):
            gate.build((None, width))
        self.built = True

    def initial_state(self, coordinates: Any) -> list[Tensor]:
        """Returns i' and f' before the first step: zeros, each `[coordinates, 1]`."""
        return [tf.zeros([coordinates, 1], self.compute_dtype)] * 2

    def call(
        self,
        values: Tensor,
        gradients: Tensor,
        theta: Tensor,
        state: list[Tensor],
    ) -> tuple[Tensor, list[Tensor]]:
        """Returns what a step adds to theta', `[coordinates]`, and the gates of this step.

        Args:
            values: h, `[coordinates, width]`.
            gradients: `[coordinates]`.
            theta: `[coordinates]`.
            state: i' and f'.
        """
        column = tf.expand_dims(theta, -1)
        gates = [
            gate(tf.concat([values, column, before], -1))
            for gate, before in zip(
                (self.input_gate, self.forget_gate), state, strict=True
            )
        ]
        write, keep = (gate[:, 0] for gate in gates)
        return keep * theta - write * gradients - theta, gates

    def _gate(self, name: str, bias: float) -> keras.layers.Dense:
        return keras.layers.Dense(
            1,
            "sigmoid",
            kernel_initializer="zeros",
            bias_initializer=keras.initializers.Constant(bias),
            name=name,
            dtype=self.dtype_policy,
        )
