"""`GatedCell`: what the gated recurrent cells share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import keras
import numpy as np
from keras import ops

from keras_trellis import arguments
from keras_trellis.arguments import FullSignature, constructor
from keras_trellis.core import checks
from keras_trellis.core.dropout import Rate, generator_for, next_seed, stream_mask
from keras_trellis.core.kernels import WeightArguments
from keras_trellis.core.recurrence import Recurrent, plain_reads
from keras_trellis.types import Number, State, Tensor

Weights: TypeAlias = Mapping[str, Tensor]
Before: TypeAlias = Tensor | None
Variables: TypeAlias = dict[str, tuple[tuple[int, ...], Any]]
"""The shape of each variable by its name, and its kind.

A kind is `KERNEL`, `RECURRENT` or `BIAS`, each of which has an initializer, a regularizer
and a constraint; or it is an initializer.
"""

KERNEL, RECURRENT, BIAS = "kernel", "recurrent", "bias"
# What an activation is called as an argument.
_NAMES = {
    "tanh": ("tanh", keras.activations.tanh),
    "linear": ("linear", keras.activations.linear, None),
}
_RATES = ("dropout", "recurrent_dropout", "weight_dropout")
RENAMED = {"recurrent_weight_dropout": "weight_dropout"}
"""The former names of arguments that all cells and their layers have."""


class GatedCell(WeightArguments):
    """One time step of a gated recurrent layer, for `keras.layers.RNN`.

    The layer of the same name runs it faster, and it alone drops anything: a mask holds
    for all steps of a call, and a cell does not know when a call begins.

    Args:
        units: n, the number of channels of the output.
        variant: "paper", the equations of the paper, or "released", those of the
            authors' code, where the two differ.
        kernel_initializer: of the matrices that read the input, "glorot_uniform" by default.
        recurrent_initializer: of the matrices and vectors that read the state.
        bias_initializer: of the biases, if the cell has any, "zeros" by default. Biases of the
            released form have 1 added on the forget gate, and -1 on the highway gate.
        kernel_regularizer: of the same variables as `kernel_initializer`, and so on.
        recurrent_regularizer: see above.
        bias_regularizer: see above.
        kernel_constraint: see above.
        recurrent_constraint: see above.
        bias_constraint: see above.
        dropout: the rate at which input channels are dropped, the same at all steps.
        recurrent_dropout: the same for the state that the gates read.
        weight_dropout: the rate of DropConnect on what reads the state, one
            mask for all steps and rows.
        seed: the seed of the masks.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.

    Raises:
        ValueError: an argument is not what it must be.
    """

    __signature__ = FullSignature()
    _instead: ClassVar[dict[str, str]] = arguments.NO_CHOICE_HINTS
    _renamed: ClassVar[dict[str, str]] = RENAMED
    biases: ClassVar[dict[str, tuple[float, ...]]] = {"paper": (), "released": (1.0,)}
    """For each variant what is added to the initial biases of its first gate blocks."""
    square: ClassVar[bool] = False
    """Whether the input must have as many channels as the output."""
    activation: ClassVar[str] = "linear"
    """What an LSTM has tanh for, in the candidate or before the output."""
    step: Any
    """One time step, a `core.recurrence.Step`."""
    state_names: Any = ("h",)
    """The states: h, c, or x, the last input. h is the output."""

    dropout: Any = Rate()
    recurrent_dropout: Any = Rate()
    weight_dropout: Any = Rate()

    @constructor
    def __init__(
        self,
        units: int,
        *,
        variant: str = "paper",
        recurrent_initializer: Any = "glorot_uniform",
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        weight_dropout: float = 0.0,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(recurrent_initializer=recurrent_initializer, **kwargs)
        self.units = self.output_size = arguments.positive("units", units)
        if variant not in self.biases:
            raise ValueError(
                f"`variant` of {self._kind} must be one of {[*self.biases]}. "
                f"Received: variant={variant!r}"
            )
        self.variant = variant
        self.seed = seed
        self.dropout = dropout
        self.recurrent_dropout = recurrent_dropout
        self.weight_dropout = weight_dropout
        self.seed_generator = generator_for(seed, *self._rates)
        self.input_units: Any = None  # p, once built

    # What a cell is

    def variables_for(self, inputs: int) -> Variables:
        """Returns the variables for inputs of so many channels, p."""
        raise NotImplementedError

    def recurrent(self, weights: Weights) -> Recurrent:
        """Returns what the state meets in a step."""
        raise NotImplementedError

    def project(self, weights: Weights, inputs: Tensor, before: Before) -> State:
        """Returns what a step reads beside the state, for all steps at once.

        Args:
            weights: the values of the variables by name.
            inputs: `[T, B, p]`.
            before: the input before each step, `[T, B, p]`, where that is a state.

        Returns:
            each `[T, B, channels]`.
        """
        raise NotImplementedError

    @property
    def output_is_state(self) -> bool:
        """Whether the output is one of the states, the first."""
        return self.state_names[0] == "h"

    @property
    def keeps_input(self) -> bool:
        """Whether the first state is the last input."""
        return self.state_names[0] == "x"

    # Keras's contract of cells

    @property
    def state_size(self) -> list[int]:
        """The number of channels of each state; p is known once it is built."""
        return self.state_size_for(self.input_units or self.units)

    def state_size_for(self, inputs: int) -> list[int]:
        """Returns the number of channels of each state for inputs `[B, p]`."""
        return [inputs if name == "x" else self.units for name in self.state_names]

    def get_initial_state(self, batch_size: Number | None = None) -> list[Tensor]:
        """Returns zeros, each `[B, channels]`."""
        dtype = self.compute_dtype
        return [ops.zeros([batch_size, size], dtype) for size in self.state_size]

    def build(self, inputs_shape: Sequence[int | None]) -> None:
        """Creates the variables for inputs of shape `[B, p]`."""
        inputs = inputs_shape[-1]
        if inputs is None or self.square and inputs != self.units:
            expected = f"p = units = {self.units}" if self.square else "p known"
            raise ValueError(
                f"The inputs of {self._kind} must be of shape [B, T, p] with "
                f"{expected}. Received: units={self.units}, p={inputs}"
            )
        self.input_units = inputs
        for name, (shape, kind) in self.variables_for(inputs).items():
            setattr(self, name, self._add(name, shape, kind))

    def call(
        self, inputs: Tensor, states: Sequence[Tensor], training: bool = False
    ) -> tuple[Tensor, list[Tensor]]:
        """Returns the output `[B, units]` and the next states of inputs `[B, p]`."""
        if training and any(self._rates):
            raise ValueError(
                "A cell drops nothing by itself: use keras_trellis.recurrent."
                f"{self._kind}. Received: "
                + ", ".join(f"{name}={getattr(self, name)}" for name in _RATES)
            )
        inputs = checks.real("inputs", inputs, self.compute_dtype)
        weights = self.call_weights(None)
        reads = plain_reads(self.recurrent(weights))
        state = tuple(states)
        before = None
        if self.keeps_input:
            before = state[0][None]
            state = state[1:]
        now = self.project(weights, inputs[None], before)
        now = tuple(tensor[0] for tensor in now)
        output, state = self.step(reads, now, state)
        if self.keeps_input:
            state = (inputs, *state)
        return output, list(state)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> GatedCell:
        """Makes a cell of its config, also of one with former names."""
        return super().from_config(arguments.renamed(cls, config))

    # What its layer asks for

    def call_seed(self, training: bool) -> Any:
        """Returns what a call's masks are made from, see `next_seed`; None for no masks."""
        if training and self.seed_generator is not None:
            return next_seed(self.seed_generator)
        return None

    def call_weights(self, seed: Any) -> dict[str, Tensor]:
        """Returns the variables' values by name; a seed brings DropConnect."""
        weights = {}
        for name, (shape, kind) in self.variables_for(self.input_units).items():
            value = ops.cast(getattr(self, name), self.compute_dtype)
            if kind == RECURRENT:
                rate = self.weight_dropout
                mask = stream_mask(seed, name, rate, shape, value.dtype)
                if mask is not None:
                    value = value * mask
            weights[name] = value
        return weights

    @property
    def _implied(self) -> dict[str, tuple]:
        """The values of an LSTM's arguments that say what the cell does anyway."""
        return {
            **arguments.NO_CHOICE,
            "activation": _NAMES[self.activation],
            "recurrent_activation": ("sigmoid", keras.activations.sigmoid),
            "use_bias": (self.use_bias,),
            "unit_forget_bias": (self.unit_forget_bias,),
        }

    @property
    def use_bias(self) -> bool:
        """Whether the cell has biases; a form of a cell has some or none."""
        kinds = [kind for _, kind in self.variables_for(self.units).values()]
        return BIAS in kinds

    @property
    def unit_forget_bias(self) -> bool:
        """Whether the bias of the forget gate begins at 1."""
        return 1.0 in self.biases[self.variant]

    @property
    def _kind(self) -> str:
        """The name that a cell shares with its layer."""
        return type(self).__name__.removesuffix("Cell")

    @property
    def _rates(self) -> list[float]:
        return [getattr(self, name) for name in _RATES]

    def _add(self, name: str, shape: tuple[int, ...], kind: Any) -> keras.Variable:
        if kind not in (KERNEL, RECURRENT, BIAS):
            return self.add_weight(name=name, shape=shape, initializer=kind)
        initializer = self._first_bias if name == "bias" else None
        return self._new_weight(name, shape, kind, initializer)

    # Biases of the gates

    def bias_variable(self) -> Variables:
        """Returns the variable of the biases, if there are any."""
        channels = self.units * len(self.biases[self.variant])
        if channels:
            return {"bias": ((channels,), BIAS)}
        return {}

    def gate_biases(self, weights: Weights, blocks: int) -> State:
        """Returns the biases of so many gate blocks, `[blocks * units]`, or nothing."""
        if "bias" not in weights:
            return ()
        missing = blocks - len(self.biases[self.variant])
        paddings = [[0, missing * self.units]]
        return (ops.pad(weights["bias"], paddings),)

    def _first_bias(self, shape: Sequence[int], dtype: Any = None) -> Tensor:
        bias = self.bias_initializer(shape, dtype=dtype)
        added = np.repeat(self.biases[self.variant], self.units)
        return bias + ops.cast(added, bias.dtype)
