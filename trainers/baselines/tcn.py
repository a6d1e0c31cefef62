"""The residual block of a temporal convolutional network (TCN)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from keras_trellis.core.convolution import causal_convolution, pad_left
from trainers.baselines.causal import Block

_CONVOLUTIONS = 2


@keras.saving.register_keras_serializable("trainers")
class TemporalBlock(Block):
    """Two dilated causal convolutions with ReLU and dropout, and a shortcut around both.

    A shortcut between different numbers of channels is a
    convolution with one tap.

    Source: Bai, Kolter and Koltun (2018), "An Empirical Evaluation of Generic Convolutional and
    Recurrent Networks for Sequence Modeling", figure 1; without its weight normalisation.

    Args:
        units: Channels of the outputs.
        kernel_size: Taps of each convolution.
        dilation_rate: The distance between two taps in time steps.
        dropout: Rate at which numbers are dropped after each convolution.
        seed: Of the dropout masks.
        kernel_initializer: Of all kernels.
        **kwargs: `name`, `dtype` and `trainable` of every Keras layer.
    """

    def __init__(
        self,
        units: int,
        kernel_size: int,
        dilation_rate: int = 1,
        *,
        dropout: float = 0.0,
        seed: int | None = None,
        kernel_initializer: Any = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(units, kernel_initializer, **kwargs)
        self.kernel_size, self.dilation_rate = kernel_size, dilation_rate
        self.dropout, self.seed = dropout, seed
        self._steps = (kernel_size - 1) * dilation_rate
        self.reach = _CONVOLUTIONS * self._steps
        self.drop = keras.layers.Dropout(dropout, seed=seed, dtype=self.dtype_policy)

    def build(self, sequences_shape: Any) -> None:
        """Creates the variables for sequences `[B, T, p]`."""
        inputs = sequences_shape[-1]
        self.pasts = ((self._steps, inputs), (self._steps, self.units))
        self.kernels: list[keras.Variable] = []
        self.biases: list[keras.Variable] = []
        for number, (_, channels) in enumerate(self.pasts, 1):
            self._add_convolution(f"convolution_{number}", self.kernel_size, channels)
        self._widens = inputs != self.units
        if self._widens:
            self._add_convolution("shortcut", 1, inputs)
        self.built = True

    def _add_convolution(self, name: str, taps: int, inputs: int) -> None:
        shape = (taps, inputs, self.units)
        initializer = self.one_more_initializer()
        kernel = self.add_weight(
            name=f"{name}_kernel", shape=shape, initializer=initializer
        )
        bias = self.add_weight(
            name=f"{name}_bias", shape=(self.units,), initializer="zeros"
        )
        self.kernels.append(kernel)
        self.biases.append(bias)

    def call(
        self,
        sequences: tf.Tensor,
        pasts: Sequence[tf.Tensor],
        valid: tf.Tensor,
        training: bool = False,
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Runs the next steps; see `Block`."""
        hidden, padded = sequences, []
        for place, past in enumerate(pasts):
            padded.append(pad_left(past, hidden))
            convolved = self._convolve(
                place, padded[-1], self.dilation_rate, self._steps
            )
            hidden = self.drop(tf.nn.relu(convolved), training=training)
        shortcut = self._convolve(-1, sequences, 1, 0) if self._widens else sequences
        return tf.nn.relu(hidden + shortcut), padded

    def _convolve(
        self, place: int, padded: tf.Tensor, dilation: int, width: int
    ) -> tf.Tensor:
        kernel = tf.cast(self.kernels[place], padded.dtype)
        bias = tf.cast(self.biases[place], padded.dtype)
        # It takes nine tenths of the time of Keras's Conv1D here.
        return causal_convolution(padded, kernel, dilation, width) + bias

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return super().get_config() | {
            "kernel_size": self.kernel_size,
            "dilation_rate": self.dilation_rate,
            "dropout": self.dropout,
            "seed": self.seed,
        }


def parameters(units: int, kernel_size: int, inputs: int) -> int:
    """Returns the number of parameters of a block."""
    convolutions = units * (kernel_size * (inputs + units) + _CONVOLUTIONS)
    shortcut = 0 if inputs == units else units * (inputs + 1)
    return convolutions + shortcut
