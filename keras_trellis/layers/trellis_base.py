"""`TrellisBase`: the variables and the cache of layers whose levels share one kernel."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import keras
from keras import ops

from keras_trellis import arguments
from keras_trellis.arguments import constructor
from keras_trellis.backend import current as backend
from keras_trellis.core import caches, gates, kernels
from keras_trellis.core.convolution import rows
from keras_trellis.core.dropout import Rate, generator_for, next_seed, stream_mask
from keras_trellis.core.kernels import WeightArguments
from keras_trellis.core.network import Activation, Network, Weights
from keras_trellis.layers.inputs import check_cache
from keras_trellis.layers.sequence import SequenceLayer
from keras_trellis.types import Cache, State, Tensor

_MANY_LEVELS = 1000
_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4, "float64": 8}


class TrellisBase(WeightArguments, SequenceLayer):
    """A sequence layer whose levels share one kernel; `TrellisLayer` describes the arguments."""

    dropout: Any = Rate()
    recurrent_dropout: Any = Rate()
    weight_dropout: Any = Rate()
    _instead: ClassVar[dict[str, str]] = arguments.NO_CHOICE_HINTS
    _implied: ClassVar[dict[str, tuple[Any, ...]]] = arguments.NO_CHOICE | {
        "unroll": (False,)
    }

    @constructor
    def __init__(
        self,
        units: int,
        depth: int,
        *,
        kernel_size: int = 2,
        dilation_rate: int | Sequence[int] = 1,
        gate: str | gates.Gate = "lstm",
        activation: Activation = gates.OWN,
        recurrent_activation: Activation = gates.OWN,
        output_units: int | None = None,
        groups: int = 1,
        inject_groups: bool = False,
        staggered: bool = False,
        inject_every: int = 1,
        weight_normalization: bool = False,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        weight_dropout: float = 0.0,
        recompute: bool = False,
        use_bias: bool = True,
        unit_forget_bias: bool = False,
        **kwargs: Any,
    ) -> None:
        _refuse_an_activation(depth)
        super().__init__(**kwargs)
        self.units = arguments.positive("units", units)
        self.depth = arguments.positive("depth", depth)
        self.kernel_size = arguments.positive("kernel_size", kernel_size)
        self.dilation_rate = _used_dilations(dilation_rate, self.depth)
        self.gate = gates.get(gate, activation, recurrent_activation)
        self.output_units = arguments.at_most(
            "output_units", output_units, "units", self.units
        )
        # In the config too: it may change `units`.
        self._all_units = output_units is None
        self.groups = arguments.divisor("groups", groups, "units", self.units)
        self.inject_groups = _all_groups(inject_groups, self.groups)
        self.staggered = bool(staggered)
        self.inject_every = arguments.positive("inject_every", inject_every)
        self.weight_normalization = bool(weight_normalization)
        self.dropout = dropout
        self.recurrent_dropout = recurrent_dropout
        self.weight_dropout = weight_dropout
        self.recompute = bool(recompute)
        self.use_bias = bool(use_bias)
        self.unit_forget_bias = _forget_bias(unit_forget_bias, self.gate)
        self.seed_generator = generator_for(
            self.seed, self.dropout, self.recurrent_dropout, self.weight_dropout
        )
        if self.depth > _MANY_LEVELS:
            # The caller is behind `constructor`.
            warnings.warn(self._depth_cost(), UserWarning, stacklevel=3)

    def _depth_cost(self) -> str:
        """Says what so many levels cost."""
        channels = self.gate.blocks * self.units
        products = self.depth * self.kernel_size * self.units * channels
        activations = self.depth * (channels + self.gate.states * self.units)
        megabytes = activations * _BYTES[self.compute_dtype] / 1e6
        doubling = self.depth.bit_length()
        return (
            "`depth` is the number of levels, not of time steps, and a call computes them all. "
            f"One time step of one row takes {products:,} multiplications, and in training keeps "
            f"up to {megabytes:,.1f} MB (less with `recompute`). To see {self.depth:,} "
            "steps, few levels are enough if their dilation doubles: "
            f"`depth={doubling}, dilation_rate=[2**i for i in range({doubling})]`. "
            f"Received: depth={self.depth}"
        )

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        config = super().get_config()
        # The gate has them.
        del config["activation"], config["recurrent_activation"]
        config["output_units"] = None if self._all_units else self.output_units
        return config

    # Variables

    def add_variables(self, inputs: int) -> None:
        """Creates the variables for p = `inputs` channels."""
        network = self._network
        groups = self.groups
        channels = network.channels // groups
        hidden_taps = self.kernel_size
        if groups > 1:  # on the present tap the last group connects to none
            hidden_taps = groups * self.kernel_size - 1
        injected = channels * network.injected_groups
        input_shape = (network.input_taps, inputs, injected)
        hidden_shape = (hidden_taps, self.units // groups, channels)
        self.kernel = self._add_kernel("kernel", input_shape, groups=1)
        self.recurrent_kernel = self._add_kernel(
            "recurrent_kernel", hidden_shape, groups
        )
        self.bias: Any = self._add_bias(network.channels) if self.use_bias else None
        if self.weight_normalization:
            self.kernel_scale = self._add_scale(
                "kernel_scale", injected, lambda: self.kernel
            )
            self.recurrent_scale = self._add_scale(
                "recurrent_scale", network.channels, self._hidden_direction
            )

    def _add_kernel(
        self, name: str, shape: tuple[int, ...], groups: int
    ) -> keras.Variable:
        """Adds a kernel; `groups` are those of its input channels."""
        prefix = name.removesuffix("_kernel")
        form = kernels.MatrixForm(shape, self.gate.blocks, groups)
        initializer = getattr(self, f"{prefix}_initializer")
        if isinstance(initializer, keras.initializers.Identity):
            initializer = form.initializer(initializer)
        regularizer = getattr(self, f"{prefix}_regularizer")
        constraint = getattr(self, f"{prefix}_constraint")
        return self.add_weight(
            name=name,
            shape=shape,
            initializer=initializer,
            regularizer=form.regularizer(regularizer),
            constraint=form.constraint(constraint),
            autocast=False,  # norms are taken in the variables' precision
        )

    def _add_bias(self, channels: int) -> keras.Variable:
        initializer = self.bias_initializer
        if self.unit_forget_bias:
            initializer = gates.remembering(self.gate, initializer)
        shape = (channels,)
        return self._new_weight("bias", shape, "bias", initializer, autocast=False)

    def _add_scale(
        self, name: str, channels: int, direction: Callable[[], Tensor]
    ) -> keras.Variable:
        """Adds the lengths of a kernel's output channels, with their values at the start."""
        # By an initializer: within `fit` Keras gives the kernel its values later than this.
        return self.add_weight(
            name=name,
            shape=(channels,),
            initializer=lambda shape, dtype: ops.cast(kernels.norm(direction()), dtype),
            autocast=False,
        )

    def _hidden_direction(self) -> Tensor:
        kernel = backend.value(self.recurrent_kernel)
        return kernels.expand_group_hidden(kernel, self.gate.blocks, self.groups)

    # The network

    @property
    def state_units(self) -> tuple[int, ...]:
        """The number of channels of each tensor of the state."""
        return (self.units,) * self.gate.states

    @property
    def activation(self) -> Callable[[Tensor], Tensor]:
        """The activation of the gate."""
        return self.gate.activation

    @property
    def recurrent_activation(self) -> Callable[[Tensor], Tensor]:
        """That of the gates themselves."""
        return self.gate.recurrent_activation

    @property
    def _by_group(self) -> bool:
        """Whether the network reads the kernels of groups as the variables have them."""
        return False

    @property
    def _network(self) -> Network:
        return Network(
            units=self.units,
            depth=self.depth,
            gate=self.gate,
            kernel_size=self.kernel_size,
            dilation_rate=self.dilation_rate,
            inject_every=self.inject_every,
            # With groups the input enters on the present tap alone.
            input_taps=self.kernel_size if self.groups == 1 else 1,
            groups=self.groups,
            injected_groups=self.groups if self.inject_groups else 1,
            staggered=self.groups if self.staggered else 1,
        )

    def _weights(self, sequences: Tensor, training: bool) -> Weights:
        """Computes the kernels and draws the masks of one call."""
        drops = any((self.dropout, self.recurrent_dropout, self.weight_dropout))
        seed = next_seed(self.seed_generator) if training and drops else None
        kernel = self._finished("kernel", backend.value(self.kernel), seed)
        dense = self.groups > 1 and not self._by_group
        if dense and not self.inject_groups:
            kernel = kernels.expand_group_input(kernel, self.gate.blocks, self.groups)
        batch = ops.shape(sequences)[0]
        dtype = sequences.dtype
        input_shape = (batch, 1, self.input_units)
        state_shape = (batch, 1, self.units)
        return Weights(
            kernel=ops.cast(kernel, dtype),
            recurrent_kernel=self._finished_hidden(seed),
            bias=ops.cast(self.bias, dtype) if self.use_bias else None,
            input_mask=stream_mask(seed, "inputs", self.dropout, input_shape, dtype),
            state_mask=stream_mask(
                seed, "states", self.recurrent_dropout, state_shape, dtype
            ),
        )

    def _finished_hidden(self, seed: Tensor | None) -> Tensor:
        """Returns the hidden kernel in the form that the network reads."""
        drops = seed is not None and self.weight_dropout
        if self._by_group and not drops and not self.weight_normalization:
            # A dense kernel would cost a streamed step more than its products.
            return backend.value(self.recurrent_kernel)
        kernel = self._finished("recurrent", self._hidden_direction(), seed)
        if not self._by_group:
            return kernel
        shape = tuple(self.recurrent_kernel.shape)
        form = kernels.MatrixForm(shape, self.gate.blocks, self.groups)
        return form.kernel(rows(kernel))

    def _finished(self, prefix: str, kernel: Tensor, seed: Tensor | None) -> Tensor:
        """Drops weights of a kernel, then gives it the lengths of weight normalisation."""
        taps, inputs, outputs = kernel.shape
        shape = (max(taps - 1, 1), inputs, outputs)
        mask = stream_mask(
            seed, f"{prefix}_weights", self.weight_dropout, shape, kernel.dtype
        )
        # With groups the input kernel has one tap, the present one, whatever `kernel_size` is.
        if mask is not None and taps == self.kernel_size:
            kernel = kernels.drop_past_taps(kernel, mask)
        if not self.weight_normalization:
            return kernel
        scale = getattr(self, f"{prefix}_scale")
        return kernels.weight_normalized(kernel, backend.value(scale))

    def _outputs(self, hidden: Tensor) -> Tensor:
        """Returns the output channels of h, `[B, T, output_units]`."""
        return hidden[..., self.units - self.output_units :]

    def cache_of_state(self, state: State) -> Cache:
        """Returns the cache before the first step, `state` as left context of every level."""
        return caches.begin(self._network, self.input_units, state)

    def _check_cache(self, cache: Any, rows: int | None) -> None:
        check_cache(cache, caches.spec(self._network, self.input_units, rows))


def _all_groups(inject_groups: bool, groups: int) -> bool:
    if inject_groups and groups == 1:
        raise ValueError(
            "`inject_groups` needs several groups that the input can enter. "
            f"Received: inject_groups={inject_groups!r}, groups={groups}"
        )
    return bool(inject_groups)


def _forget_bias(unit_forget_bias: bool, gate: gates.Gate) -> bool:
    if unit_forget_bias and gate.forget_block is None:
        raise ValueError(
            "`unit_forget_bias` needs a gate with a forget block, as the LSTM's. "
            f"Received: unit_forget_bias={unit_forget_bias!r}, gate={gate.name!r}"
        )
    return bool(unit_forget_bias)


def _used_dilations(dilation_rate: int | Sequence[int], depth: int) -> tuple[int, ...]:
    cycle = arguments.dilation_cycle(dilation_rate)
    if len(cycle) > depth:
        raise ValueError(
            "`dilation_rate` must have at most `depth` entries: level i uses entry i, so that none "
            f"uses the last {len(cycle) - depth}. `dilation_rate={[*cycle[:depth]]}` makes the "
            f"same layer. Received: dilation_rate={[*cycle]}, depth={depth}"
        )
    return cycle


def _refuse_an_activation(depth: Any) -> None:
    if isinstance(depth, str) or callable(depth):
        raise ValueError(
            "`depth` must be a positive integer, the number of levels. Give an activation by "
            f"name: `activation={depth!r}`. Received: depth={depth!r}"
        )
