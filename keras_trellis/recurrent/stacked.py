"""`StackedLSTM`: LSTM layers, one above the other, that all read the input."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from typing import Any, ClassVar

import keras
import numpy as np
from keras import ops

from keras_trellis import arguments
from keras_trellis.arguments import constructor
from keras_trellis.backend import current as backend
from keras_trellis.core import gates, masks, stack
from keras_trellis.core.convolution import swapped
from keras_trellis.core.dropout import Rate, generator_for, next_seed, stream_mask
from keras_trellis.core.gates import LSTMGate
from keras_trellis.core.kernels import TRAINING_ARGUMENTS, WeightArguments
from keras_trellis.layers import past
from keras_trellis.layers.equilibrium import EquilibriumTrellisLayer
from keras_trellis.layers.networks import recur
from keras_trellis.layers.sequence import ARGUMENTS, SequenceLayer
from keras_trellis.types import State, Tensor

_GATE = LSTMGate()
_OTHER_LAYERS = "Stack keras.layers.LSTM layers where you need another."
_LSTM_HINTS = {
    "activation": f"It is tanh. {_OTHER_LAYERS}",
    "recurrent_activation": f"It is the logistic function. {_OTHER_LAYERS}",
    "unroll": "Leave it out: a single time step is computed without a loop.",
    **arguments.NO_CHOICE_HINTS,
}
# What the groups of an `EquilibriumTrellisLayer` need to be LSTM layers.
_STACK_ARGUMENTS = {
    "kernel_size": 2,
    "dilation_rate": (1,),
    "inject_every": 1,
    "weight_normalization": False,
}
_SHARED_ARGUMENTS = (
    *("name", "dtype", "trainable", "use_bias", "unit_forget_bias"),
    *ARGUMENTS,
)


@keras.saving.register_keras_serializable("keras_trellis")
class StackedLSTM(WeightArguments, SequenceLayer):
    """LSTM layers, one above the other; each one above the first reads the input too.

        layer = keras_trellis.StackedLSTM(220, return_sequences=True)

    computes what these layers of Keras compute, faster on a CPU:

        h = keras.layers.LSTM(220, return_sequences=True)(x)
        y = keras.layers.LSTM(220, return_sequences=True)(Concatenate()([h, x]))

    The output is h of the last layer, `[B, T, units]`. The states are h and c of each layer, from
    the lowest up, each `[B, units]`: h_1, c_1, h_2, c_2. They are all that the layer needs of its
    past. So cache and state are one thing, a flat tuple, and a sequence that goes on from a
    returned state goes on exactly.

    Variables have the names, shapes and order of this list, layer by layer; i counts from 0:

    - `kernel_i`: `[p, 4 units]` in the first layer, above it `[units + p, 4 units]`, h of the layer
      below first; without `skip_input` `[units, 4 units]`.
    - `recurrent_kernel_i`: `[units, 4 units]`.
    - `bias_i`: `[4 units]`; none without `use_bias`.

    The blocks of channels are Keras's: i, f, c, o. So `stacked.set_weights(first.get_weights() +
    second.get_weights())` copies the layers of Keras, and `second.set_weights(stacked.get_weights()
    [3:])` goes the other way.

    Masks mean what they mean for `keras.layers.LSTM`: a masked step is skipped, wherever it is.

    Args:
        units: the number of channels of h and c in each layer.
        layers: the number of layers.
        skip_input: whether the layers above the first read the input too.
        return_sequences: whether to return the output of every step or of the last one.
        return_state: whether to return the states too.
        stateful: whether a batch goes on, exactly, where the one before it stopped. Needs a
            static batch size.
        go_backwards: whether to process the sequence backwards and return it reversed.
        zero_output_for_mask: whether the output at a masked step is zero.
        use_bias: whether there are biases.
        unit_forget_bias: whether the biases of the forget gates start at 1.
        kernel_initializer: initializer of the kernels, "glorot_uniform" by default.
        recurrent_initializer: initializer of the recurrent kernels, "orthogonal" by default.
        bias_initializer: initializer of the biases, "zeros" by default.
        kernel_regularizer: regularizer of each kernel.
        recurrent_regularizer: regularizer of each recurrent kernel.
        bias_regularizer: regularizer of each bias.
        kernel_constraint: constraint on each kernel.
        recurrent_constraint: constraint on each recurrent kernel.
        bias_constraint: constraint on each bias.
        dropout: the rate at which channels are dropped that a layer reads. Each layer has a mask of
            its own, `[B, p]` or `[B, units + p]`, which holds for all time steps of a call.
        recurrent_dropout: the same for a layer's own h before its recurrent kernel, `[B, units]`.
            With it Keras's LSTM draws both masks anew for each of the four gates.
        seed: seed of the dropout masks.
        **kwargs: `name`, `dtype`, `trainable`, `activity_regularizer` of `keras.layers.Layer`. The
            other defaults of an LSTM, such as `activation="tanh"`, change nothing.

    Attributes:
        num_layers: the number of layers.
        kernels: the kernels, from the lowest layer up.
        recurrent_kernels: the recurrent kernels.
        biases: the biases; empty without `use_bias`.

    Raises:
        ValueError: an argument is out of its range.

    Input shape:
        `[B, T, p]`. `initial_state` is h and c of each layer, each `[B, units]`, and `mask` is
        bool, `[B, T]`.

    Output shape:
        `[B, units]`, or with `return_sequences` `[B, T, units]`. With `return_state` the result is
        a tuple: the outputs, then h and c of each layer, from the lowest up.

    Examples:
        >>> import numpy as np
        >>> from keras_trellis import StackedLSTM
        >>> layer = StackedLSTM(8, return_sequences=True, return_state=True)
        >>> outputs, *states = layer(np.ones([2, 10, 3], "float32"))
        >>> tuple(outputs.shape)
        (2, 10, 8)
        >>> len(states)
        4
    """

    receptive_field = None
    activation = staticmethod(keras.activations.tanh)
    recurrent_activation = staticmethod(keras.activations.sigmoid)
    dropout: Any = Rate()
    recurrent_dropout: Any = Rate()
    _instead: ClassVar[dict[str, str]] = _LSTM_HINTS
    _implied: ClassVar[dict[str, tuple]] = {
        **arguments.NO_CHOICE,
        "unroll": (False,),
        "activation": ("tanh", keras.activations.tanh),
        "recurrent_activation": ("sigmoid", keras.activations.sigmoid),
    }

    @constructor
    def __init__(
        self,
        units: int,
        *,
        layers: int = 2,
        skip_input: bool = True,
        use_bias: bool = True,
        unit_forget_bias: bool = True,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.units = self.output_units = arguments.positive("units", units)
        # Keras takes an attribute `layers` for a list of layers, in `summary` for instance.
        self.num_layers = arguments.positive("layers", layers)
        self.skip_input = bool(skip_input)
        self.use_bias = bool(use_bias)
        self.unit_forget_bias = bool(unit_forget_bias)
        self.dropout = dropout
        self.recurrent_dropout = recurrent_dropout
        self.seed_generator = generator_for(
            self.seed, self.dropout, self.recurrent_dropout
        )

    @classmethod
    def from_layer(cls, layer: EquilibriumTrellisLayer, **changes: Any) -> StackedLSTM:
        """Makes the stack that the groups of an `EquilibriumTrellisLayer` are, with its weights.

        The output is h of the last group, whatever `output_units` of that layer is. Its state has
        the groups side by side, `[B, units]` for h and for c; here each group has its own.

        Args:
            layer: has several groups, two taps, dilation 1 and the LSTM's gate. If it is built, it
                gives its weights too.
            **changes: arguments to use besides or instead. Dropouts, regularizers and constraints
                mean something else here; a warning names those that are not taken over.

        Raises:
            ValueError: the groups are no LSTM layers.
        """
        _check_stack(layer)
        _warn_left_out(layer, changes)
        config = layer.get_config()
        taken = {name: config[name] for name in _SHARED_ARGUMENTS}
        taken["units"] = layer.units // layer.groups
        taken["layers"] = layer.groups
        taken["skip_input"] = layer.inject_groups
        stacked = cls.from_config(taken | changes)
        if layer.built:
            stacked.build_from_config(layer.get_build_config())
            stacked.set_weights(_group_weights(layer))
        return stacked

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return super().get_config() | {"layers": self.num_layers}

    @property
    def state_units(self) -> tuple[int, ...]:
        """The number of channels of each tensor of the state."""
        return (self.units,) * _GATE.states * self.num_layers

    # Variables

    def add_variables(self, inputs: int) -> None:
        """Creates the variables for p = `inputs` channels."""
        channels = _GATE.blocks * self.units
        kernels = []
        recurrent_kernels = []
        biases = []
        for index in range(self.num_layers):
            read = sum(self._channels_read(index))
            kernels.append(self._add("kernel", index, (read, channels)))
            shape = (self.units, channels)
            recurrent_kernels.append(self._add("recurrent", index, shape))
            if self.use_bias:
                biases.append(self._add("bias", index, (channels,)))
        self.kernels = tuple(kernels)
        self.recurrent_kernels = tuple(recurrent_kernels)
        self.biases = tuple(biases)

    def _channels_read(self, index: int) -> list[int]:
        """Returns of how many channels is what a layer reads: the layer below, the input."""
        if index == 0:
            return [self.input_units]
        if self.skip_input:
            return [self.units, self.input_units]
        return [self.units]

    def _add(self, kind: str, index: int, shape: tuple[int, ...]) -> keras.Variable:
        """Adds the variable of a layer; `kind` is that of its initializer."""
        initializer = _own(getattr(self, f"{kind}_initializer"))
        if kind == "bias" and self.unit_forget_bias:
            initializer = gates.remembering(_GATE, initializer)
        prefix = "recurrent_kernel" if kind == "recurrent" else kind
        return self._new_weight(f"{prefix}_{index}", shape, kind, initializer)

    # The network

    def run_chunk(
        self, sequences: Tensor, cache: State, mask: Tensor | None, training: bool
    ) -> tuple[Tensor, State]:
        """Continues sequences from a cache; see `SequenceHooks.run_chunk`."""
        state = past.checked(self, cache, ops.shape(sequences)[0])
        plan = masks.packing(mask)
        packed = masks.pack(sequences, plan)
        size = _GATE.states
        by_layer = [state[i : i + size] for i in range(0, len(state), size)]
        by_level, states = stack.run(
            _GATE,
            self._call_layers(packed, training),
            packed,
            by_layer,
            plan,
            recur=functools.partial(recur, units=self.units, training=bool(training)),
        )
        last = swapped(by_level[-1])
        outputs = masks.unpack(last, plan, before=state[-size])  # h of the last layer
        return outputs, tuple(keras.tree.flatten(states))

    def cache_of_state(self, state: State) -> State:
        """Returns the state: it is the cache."""
        return tuple(state)

    def _call_layers(self, sequences: Tensor, training: bool) -> list[stack.Layer]:
        """Returns what each layer computes with, and draws the masks of a call."""
        drops = self.dropout or self.recurrent_dropout
        seed = next_seed(self.seed_generator) if training and drops else None
        rows = ops.shape(sequences)[0]
        dtype = sequences.dtype
        layers = []
        for index in range(self.num_layers):
            sizes = self._channels_read(index)
            shape = (rows, sum(sizes))
            mask = stream_mask(seed, f"inputs_{index}", self.dropout, shape, dtype)
            shape = (rows, self.units)
            rate = self.recurrent_dropout
            recurrent_mask = stream_mask(seed, f"states_{index}", rate, shape, dtype)
            kernel = ops.cast(self.kernels[index], dtype)
            layer = stack.Layer(
                kernels=tuple(backend.split(kernel, sizes, axis=0)),
                recurrent_kernel=ops.cast(self.recurrent_kernels[index], dtype),
                bias=ops.cast(self.biases[index], dtype) if self.use_bias else None,
                masks=_split(mask, sizes),
                recurrent_mask=recurrent_mask,
            )
            layers.append(layer)
        return layers


def _split(mask: Tensor | None, sizes: Sequence[int]) -> tuple[Tensor | None, ...]:
    if mask is None:
        return (None,) * len(sizes)
    return tuple(backend.split(mask, sizes))


def _own(initializer: Any) -> Any:
    """Returns an initializer for one variable alone.

    One of Keras's draws its seed when it is made: it would give all layers the same numbers.
    """
    if isinstance(initializer, keras.initializers.Initializer):
        return initializer.clone()
    return initializer


def _group_weights(layer: EquilibriumTrellisLayer) -> list[np.ndarray]:
    """Returns the weights of groups as those of a stack."""
    groups = layer.groups
    units = layer.units // groups
    injected = groups if layer.inject_groups else 1
    kernel = ops.convert_to_numpy(layer.kernel).reshape(
        -1, _GATE.blocks, injected, units
    )
    hidden = ops.convert_to_numpy(layer.recurrent_kernel)
    weights = []
    for group in range(groups):
        read = []
        if group:
            read.append(hidden[groups + group - 1])
        if group < injected:
            read.append(kernel[:, :, group].reshape(-1, _GATE.blocks * units))
        weights += [np.concatenate(read), hidden[group]]
        if layer.use_bias:
            bias = ops.convert_to_numpy(layer.bias).reshape(_GATE.blocks, groups, units)
            weights.append(bias[:, group].ravel())
    return weights


def _warn_left_out(layer: Any, changes: dict[str, Any]) -> None:
    """Warns of what a layer has for training alone and a stack does not take over."""
    left_out = [
        name
        for name in TRAINING_ARGUMENTS
        if getattr(layer, name) and name not in changes
    ]
    if left_out:
        warnings.warn(
            f"StackedLSTM.from_layer takes over no {', '.join(left_out)}: it means something "
            "else here; give it as an argument.",
            stacklevel=3,
        )


def _check_stack(layer: Any) -> None:
    if not isinstance(layer, EquilibriumTrellisLayer):
        raise arguments.refusal("layer", layer, "an EquilibriumTrellisLayer")
    if layer.groups == 1:
        raise ValueError(
            f"`layer` must have groups, as many as the stack has layers. Received: "
            f"groups=1 of {layer!r}"
        )
    for name, expected in _STACK_ARGUMENTS.items():
        value = getattr(layer, name)
        if value != expected:
            raise ValueError(
                f"`layer` must have {name}={expected}: else its groups are no LSTM layers. "
                f"Received: {name}={value!r} of {layer!r}"
            )
    if type(layer.gate) is not LSTMGate or vars(layer.gate) != vars(_GATE):
        raise ValueError(
            "`layer` must have the gate of an LSTM with its own activations. "
            f"Received: gate={layer.gate.name!r} of {layer!r}"
        )
