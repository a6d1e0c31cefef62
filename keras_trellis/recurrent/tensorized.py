"""The tensorized LSTM: hidden states of many places, and depth that is spent in time."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, ClassVar

import keras
import numpy as np
from keras import ops

from keras_trellis import arguments
from keras_trellis.arguments import constructor
from keras_trellis.backend import current as backend
from keras_trellis.core import masks
from keras_trellis.core.convolution import multiply, swapped
from keras_trellis.core.recurrence import Recurrent
from keras_trellis.layers.inputs import check_state
from keras_trellis.layers.networks import recur
from keras_trellis.recurrent import grid
from keras_trellis.recurrent.cell import (
    BIAS,
    KERNEL,
    RECURRENT,
    RENAMED,
    Before,
    GatedCell,
    Variables,
    Weights,
)
from keras_trellis.recurrent.gated import GatedRNN, cell_argument
from keras_trellis.types import State, Tensor

_registered = keras.saving.register_keras_serializable("keras_trellis")
_STEPS = {"lstm": (("H", "C"), grid.lstm), "rnn": (("H",), grid.rnn)}
_RANKS = (2, 3, 4)


@_registered
class TensorizedLSTMCell(GatedCell):
    """One time step of a `TensorizedLSTM`: its outputs are `delay` steps late.

    The states are H and C, each `[B, places * units]`. The output is the last place of H.

    Args:
        units: M, the number of channels of a place and of the output.
        size: P, the number of places along each axis of the state.
        rank: that of a row's state: 2 for P places of M channels, 3 for P x P, 4 for
            P x P x P.
        kernel_size: K, along each axis, at least 2. With 2 no place reads one after it.
        memory_convolution: whether memory cells are convolved too, by kernels that the
            cell computes. An RNN has no memory cells.
        channel_normalization: whether the memory cells of each place are normalised
            before they are shown.
        cell: "lstm" or "rnn".
        forget_bias: what is added to the initial bias of the forget gate.
        **kwargs: see `GatedCell`.

    Raises:
        ValueError: an argument is not what it must be.
    """

    _renamed: ClassVar[dict[str, str]] = RENAMED | {"channels": "units"}
    biases = {"paper": ()}
    activation = "tanh"

    @constructor
    def __init__(
        self,
        units: int,
        size: int,
        *,
        rank: int = 2,
        kernel_size: int = 3,
        memory_convolution: bool = True,
        channel_normalization: bool = False,
        cell: str = "lstm",
        forget_bias: float = 1.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(units, **kwargs)
        self.size = arguments.positive("size", size)
        self.rank = rank
        self.kernel_size = arguments.positive("kernel_size", kernel_size)
        self.memory_convolution = bool(memory_convolution)
        self.channel_normalization = bool(channel_normalization)
        self.cell = cell
        self.forget_bias = arguments.finite("forget_bias", forget_bias)
        self._check()
        self.state_names, step = _STEPS[cell]
        self.grid = grid.Grid(
            channels=self.units,
            size=self.size,
            axes=rank - 1,
            kernel_size=self.kernel_size,
        )
        self.step = functools.partial(step, self.grid)

    def _check(self) -> None:
        if self.rank not in _RANKS:
            raise arguments.refusal("rank", self.rank, f"one of {_RANKS}")
        if self.kernel_size < 2:
            raise ValueError(
                "`kernel_size` must be at least 2: with 1 no place reads the input. "
                f"Received: kernel_size={self.kernel_size}"
            )
        if self.cell not in _STEPS:
            raise arguments.refusal("cell", self.cell, f"one of {[*_STEPS]}")
        if self.cell == "rnn" and self.channel_normalization:
            raise ValueError(
                "`channel_normalization` must be False with cell='rnn', which has no "
                "memory cells. Received: channel_normalization=True"
            )

    @property
    def depth(self) -> int:
        """L: an input reaches the last place in its L-th step."""
        return self.grid.depth

    @property
    def delay(self) -> int:
        """L - 1: the step t + delay has the output that has seen x_1 to x_t."""
        return self.depth - 1

    def state_size_for(self, inputs: int) -> list[int]:
        """Returns places * units for each state."""
        return [self.grid.places * self.units for _ in self.state_names]

    def variables_for(self, inputs: int) -> Variables:
        """Returns W_x and b_x, W_h and b_h, Gamma and Beta."""
        blocks = self.units
        if self.cell == "lstm":
            kernels = self.memory_convolution * self.grid.taps
            blocks = 4 * self.units + kernels
        taps = (self.kernel_size,) * self.grid.axes
        places = (self.size,) * self.grid.axes
        variables: Variables = {
            "kernel": ((inputs, self.units), KERNEL),
            "input_bias": ((self.units,), BIAS),
            "recurrent_kernel": ((*taps, self.units, blocks), RECURRENT),
            "bias": ((blocks,), BIAS),
        }
        if self.channel_normalization:
            variables["gamma"] = ((*places, self.units), "ones")
            variables["beta"] = ((*places, self.units), "zeros")
        return variables

    def recurrent(self, weights: Weights) -> Recurrent:
        """Returns W_h as the matrix of what a place reads, b_h, Gamma and Beta."""
        kernel = weights["recurrent_kernel"]
        matrix = ops.reshape(kernel, [-1, kernel.shape[-1]])
        vectors = [weights["bias"]]
        for name in ("gamma", "beta"):
            if name in weights:
                by_place = ops.reshape(weights[name], [-1, self.units])
                vectors.append(by_place)
        return Recurrent((matrix,), tuple(vectors), places=self.grid.places)

    def project(self, weights: Weights, inputs: Tensor, before: Before) -> State:
        """Returns W_x x + b_x, what is put before the first place."""
        return (multiply(inputs, weights["kernel"]) + weights["input_bias"],)

    def call(
        self, inputs: Tensor, states: Sequence[Tensor], training: bool = False
    ) -> tuple[Tensor, list[Tensor]]:
        """Returns the last place of H, `[B, units]`, and H and C after the step."""
        shapes = [tensor.shape for tensor in states]
        check_state(shapes, self.state_size, inputs.shape[0])
        return super().call(inputs, states, training)

    @property
    def unit_forget_bias(self) -> bool:
        """Whether the bias of the forget gate begins at 1."""
        return self.cell == "lstm" and self.forget_bias == 1

    def _first_bias(self, shape: Sequence[int], dtype: Any = None) -> Tensor:
        bias = self.bias_initializer(shape, dtype=dtype)
        if self.cell == "rnn":
            return bias
        added = np.zeros(shape)
        added[2 * self.units : 3 * self.units] = self.forget_bias
        return bias + ops.cast(added, bias.dtype)


@_registered
class TensorizedLSTM(GatedRNN):
    """A recurrent layer whose state is a line or a square of places: `TensorizedLSTMCell`.

    One convolution over the places updates them all at once. An input enters before the
    first place and is L steps under way to the last one: the layer is L = `depth` deep,
    and its output is `delay` = L - 1 steps late. So the layer runs `delay` steps more,
    over inputs of zero. What they are does not matter: no output of this layer depends on
    them. The outputs `[B, T, units]` stand beside their inputs; that at step t depends
    on x_1 to x_t.

    The states are those after step T, before the further steps: a layer that goes on from
    them computes what one pass over the whole would. A masked step is skipped.

    Args:
        units: M, the number of channels of a place and of the output.
        size: P, the number of places along each axis of the state.
        delayed: whether the further steps are left out, and the output at step t is the
            one that has seen x_1 to x_{t - delay}.
        recompute: whether to save memory in training: steps are computed twice, and what is
            kept for the gradient grows with the square root of T. The results are the same.
        **kwargs: the arguments of `TensorizedLSTMCell` and of `GatedRNN`.

    Attributes:
        depth: L, how deep the layer is.
        delay: L - 1, how many steps an input is under way before the output shows it.

    Raises:
        ValueError: an argument is not what it must be.

    Input shape:
        `[B, T, p]`. `initial_state` is H and C, each `[B, places * units]`, and `mask` is bool,
        `[B, T]`.

    Output shape:
        `[B, units]`, or with `return_sequences` `[B, T, units]`. With `return_state` the
        result is a tuple: the outputs, then H and C.

    Examples:
        >>> import numpy as np
        >>> from keras_trellis import TensorizedLSTM
        >>> layer = TensorizedLSTM(8, size=4, return_sequences=True)
        >>> tuple(layer(np.ones([2, 10, 3], "float32")).shape)
        (2, 10, 8)
        >>> layer.state_units
        (32, 32)
    """

    _renamed: ClassVar[dict[str, str]] = TensorizedLSTMCell._renamed
    cell_class = TensorizedLSTMCell
    size = cell_argument("size")
    rank = cell_argument("rank")
    kernel_size = cell_argument("kernel_size")
    depth = cell_argument("depth")
    delay = cell_argument("delay")

    @constructor
    def __init__(
        self,
        units: int,
        size: int,
        *,
        delayed: bool = False,
        recompute: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(units, size=size, **kwargs)
        self.delayed = bool(delayed)
        self.recompute = bool(recompute)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        own = {"delayed": self.delayed, "recompute": self.recompute}
        return super().get_config() | own

    def _run(
        self,
        recurrent: Recurrent,
        now: State,
        valid: Tensor | None,
        state: State,
        training: bool,
    ) -> tuple[Tensor, State]:
        """Returns the outputs in their places, and the state before the further steps."""
        # All rows end together, so that the further steps follow for all at once.
        plan = masks.packing(valid, right=True)
        if plan is not None:
            valid = plan.valid
            packed = [masks.pack(swapped(tensor), plan) for tensor in now]
            now = tuple(map(swapped, packed))
        outputs, after = super()._run(recurrent, now, valid, state, training)
        if self.delay and not self.delayed:
            ahead = self._run_ahead(recurrent, now[0], after, training)
            outputs = backend.join([outputs, ahead], axis=0)
            outputs = outputs[self.delay :]
        if plan is not None:
            unpacked = masks.unpack(swapped(outputs), plan)
            outputs = swapped(unpacked)
        return outputs, after

    def _run_ahead(
        self, recurrent: Recurrent, now: Tensor, state: State, training: bool
    ) -> Tensor:
        """Returns the outputs of the further steps, `[delay, B, units]`."""
        steps = now.shape[0]
        _, rows, channels = ops.shape(now)
        nothing = ops.zeros([self.delay, rows, channels], now.dtype)
        ahead, _ = recur(
            self.cell.step,
            recurrent,
            (nothing,),
            state,
            units=self.units,
            training=training,
            unroll=self.unroll or steps == 1,
        )
        return ahead
