"""One time step of a Grid LSTM, a baseline of the tensorized LSTM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_trellis import arguments
from keras_trellis.types import Tensor


@keras.saving.register_keras_serializable("trainers")
class GridLSTMCell(keras.layers.Layer):
    """One time step of a stack of Grid LSTM blocks of one set of weights, for `keras.layers.RNN`.

    A block has an LSTM along time and another along depth, and both have memory. Each reads h of
    both:

        H = [h_time, h_depth]
        i, f, o = sig(W H + b),  a = tanh(W_A H + b_A)
        m' = f * m + i * a,  h' = tanh(o * m')

    (h_time, m_time) go to the same block in the next step, (h_depth, m_depth) to the block above.
    The lowest block gets two projections of the input. The output is h_depth of the highest.

    A stack of LSTMs of one set of weights differs in that only h goes up, and no memory; that is a
    `TensorizedLSTM(kernel_size=2, memory_convolution=False)`.

    Source: Kalchbrenner, Danihelka and Graves (2016), "Grid Long Short-Term Memory", the 2-LSTM
    with tied weights; recalled, not checked.

    Args:
        units: the number of channels of h and m, and of the output.
        depth: the number of blocks.
        kernel_initializer: of all kernels.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.
    """

    def __init__(
        self,
        units: int,
        depth: int,
        *,
        kernel_initializer: Any = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.units = self.output_size = arguments.positive("units", units)
        self.depth = arguments.positive("depth", depth)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        # Those of h_time and of m_time of all blocks, side by side.
        self.state_size = [self.depth * self.units] * 2

    def build(self, inputs_shape: Any) -> None:
        """Creates the weights for inputs `[B, p]`: of the input, and along both axes."""
        inputs = inputs_shape[-1]
        units = self.units
        self.input_kernel = self._kernel("input_kernel", (inputs, 2 * units))
        self.input_bias = self._bias("input_bias", [0.0] * 2)
        self.time_kernel = self._kernel("time_kernel", (2 * units, 4 * units))
        self.depth_kernel = self._kernel("depth_kernel", (2 * units, 4 * units))
        # The blocks are i, f, a, o; a forget gate begins open, as in Keras's LSTM.
        self.time_bias = self._bias("time_bias", [0.0, 1.0, 0.0, 0.0])
        self.depth_bias = self._bias("depth_bias", [0.0, 1.0, 0.0, 0.0])
        self.built = True

    def call(
        self, inputs: Tensor, states: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """Returns h_depth of the highest block, and the states along time."""
        entering = ops.matmul(inputs, self.input_kernel) + self.input_bias
        hidden_depth, memory_depth = ops.split(entering, 2, axis=-1)
        hiddens = []
        memories = []
        blocks = map(self._by_block, states)
        for hidden, memory in zip(*blocks, strict=True):
            both = ops.concatenate([hidden, hidden_depth], -1)
            hidden, memory = _lstm(both, memory, self.time_kernel, self.time_bias)
            hidden_depth, memory_depth = _lstm(
                both, memory_depth, self.depth_kernel, self.depth_bias
            )
            hiddens.append(hidden)
            memories.append(memory)
        after = [ops.concatenate(hiddens, -1), ops.concatenate(memories, -1)]
        return hidden_depth, after

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        own = {
            "units": self.units,
            "depth": self.depth,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
        return super().get_config() | own

    def _by_block(self, state: Tensor) -> list[Tensor]:
        return ops.split(state, self.depth, axis=-1)

    def _kernel(self, name: str, shape: tuple[int, int]) -> keras.Variable:
        initializer = self.kernel_initializer.clone()
        return self.add_weight(name=name, shape=shape, initializer=initializer)

    def _bias(self, name: str, blocks: Sequence[float]) -> keras.Variable:
        def first(shape: Any, dtype: Any = None) -> Tensor:
            return ops.repeat(ops.convert_to_tensor(blocks, dtype), self.units)

        shape = (len(blocks) * self.units,)
        return self.add_weight(name=name, shape=shape, initializer=first)


def _lstm(
    both: Tensor, memory: Tensor, kernel: Any, bias: Any
) -> tuple[Tensor, Tensor]:
    """Returns h' and m' along one axis."""
    blocks = ops.matmul(both, kernel) + bias
    write, keep, candidate, read = ops.split(blocks, 4, axis=-1)
    carried = ops.sigmoid(keep) * memory
    written = ops.sigmoid(write) * ops.tanh(candidate)
    memory = carried + written
    hidden = ops.tanh(ops.sigmoid(read) * memory)
    return hidden, memory
