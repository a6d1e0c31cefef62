"""`TrellisLayer`: a trellis network as a Keras layer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from keras_trellis import arguments
from keras_trellis.core import gates, kernels, masks
from keras_trellis.core.convolution import pad_left
from keras_trellis.core.dropout import Rate, dropout_mask, generator_for, next_seed, stream_seed
from keras_trellis.core.receptive_field import receptive_field
from keras_trellis.engine import streaming
from keras_trellis.engine.level import hidden_kernel
from keras_trellis.engine.network import Network, Parameters
from keras_trellis.types import Cache, State

_OF_AN_LSTM = {
    "activation": "It belongs to the gate: `gate=keras_trellis.LSTMGate(activation=...)`.",
    "recurrent_activation": (
        "It belongs to the gate: `gate=keras_trellis.LSTMGate(recurrent_activation=...)`."
    ),
    "implementation": "Leave it out: there is one implementation.",
    "unroll": "Leave it out: there is no loop over time.",
    "use_cudnn": "Leave it out: there is none in cuDNN.",
}


@keras.saving.register_keras_serializable("keras_trellis")
class TrellisLayer(keras.layers.Layer):
    """Trellis network: a causal convolution shared by all time steps and all levels.

    Drops in where a model has `keras.layers.LSTM`:

        layer = keras_trellis.TrellisLayer(512, depth=32, return_sequences=True)

    Each level applies the same convolution to the hidden sequence of the level below and to the
    input, which is injected into every level, and passes the sum through a gate:

        x~_t     = sum_j Wx_j x_{t - (k-1-j) d}
        z_t      = sum_j Wz_j h^(i)_{t - (k-1-j) d} + b + x~_t
        s^(i+1)_t = gate(z_t, s^(i)_{t - d})

    with s = (h, c) for the LSTM gate, c' = sigmoid(f) c_{t-d} + sigmoid(i) tanh(g) and
    h' = sigmoid(o) tanh(c'). Level 0 is zero. To the left of the sequence stand zeros for the
    input and, at every level, the initial state, repeated.

    | here | paper | reference code |
    | --- | --- | --- |
    | `units` | q, width | `nhid + nout` |
    | `depth` | L | `nlevels` |
    | `kernel_size` | k | `ksize` |
    | `dilation_rate` | d | `dilation` |
    | `output_units` | output size | `nout` |
    | `kernel`, `recurrent_kernel`, `bias` | W1, W2, b | `weight1`, `weight2`, `bias2` |
    | `dropout` | input dropout | `dropouti` |
    | `recurrent_dropout` | hidden dropout | `dropouth` |
    | `weight_dropout` | weight dropout | `wdrop` |
    | `auxiliary_every` (of `call`) | auxiliary frequency | `aux_frequency` |
    | `initial_state`, returned states | history | `hidden` ("repackaging") |

    Two kinds of memory must not be mixed up. The *state* is the paper's history: h and c of the
    top level's last step. It is small and it is lossy: a sequence cut in two with the state
    carried over is not the same as the whole sequence. The *cache* (`get_initial_cache`,
    `stream`, and what `stateful=True` keeps) holds what every level needs of its past and is
    exact: chunks equal one long pass.

    Masks mean what they mean for `keras.layers.LSTM`: a masked step is skipped, wherever it
    stands. Its output is the one before it (zeros before the first valid step, or throughout
    with `zero_output_for_mask`), and a row that is all masked keeps its initial state.

    Source: Bai, Kolter, Koltun, "Trellis Networks for Sequence Modeling", ICLR 2019,
    https://arxiv.org/abs/1810.06682.

    Args:
        units: the number of hidden channels, q.
        depth: the number of levels, L. The variables do not depend on it.
        kernel_size: the number of taps of the convolution, k.
        dilation_rate: the distance between taps in steps; an integer, or a sequence of which
            level i uses entry i % len.
        gate: "lstm", "gru", "tanh", or a `keras_trellis.Gate`.
        output_units: how many of the last channels of h are the output; None for all.
        groups: 1 for a dense hidden kernel. G > 1 for the mixed group convolution of Theorem 1:
            G groups of units / G channels; the past taps connect each group to itself, the
            present tap connects group g - 1 to g, the input enters group 1 on the present tap.
            It saves parameters; the product is the dense one.
        staggered: whether group g of `groups` begins at level g, and is zero below. So the g-th
            layer of a truncated recurrent network does nothing before its first step.
        inject_every: the input is injected into the levels i with i % inject_every == 0; the
            bias is added at every level.
        weight_normalization: write each kernel as g v / ||v||, per output channel, input and
            hidden kernel each for itself. Adds `kernel_scale` and `recurrent_scale`, which start
            at ||v||, so that it changes nothing at the start.
        dropout: rate of the input dropout, one mask [B, 1, p] a call.
        recurrent_dropout: rate of the variational hidden dropout: one mask [B, 1, units] a call
            on what enters the convolution of every level, the initial state included; never on
            the state that the gate reads.
        weight_dropout: rate of DropConnect on the taps that read the past (all if k = 1) of both
            kernels, one mask a call; with weight normalisation it acts on v.
        recompute: whether to save memory in training: what a level needs for its gradient is
            computed twice, and what is kept grows with the square root of the depth. The results
            are the same.
        return_sequences: whether to return the output of every step or of the last one; for that
            one alone, without a mask, a level computes no more than the steps that it depends on.
        return_state: whether to return the states too.
        stateful: whether a batch goes on, exactly, where the one before it stopped. Needs a
            static batch size.
        go_backwards: whether to process the sequence backwards and return it reversed.
        zero_output_for_mask: whether the output at a masked step is zero.
        use_bias: whether to add a bias.
        unit_forget_bias: whether the bias of the gate's forget block starts at 1, for gates that
            have one (the LSTM's; see `Gate.forget_block`).
        kernel_initializer: initializer of the input kernel.
        recurrent_initializer: initializer of the hidden kernel.
        bias_initializer: initializer of the bias.
        kernel_regularizer: regularizer of the input kernel.
        recurrent_regularizer: regularizer of the hidden kernel.
        bias_regularizer: regularizer of the bias.
        kernel_constraint: constraint on the input kernel.
        recurrent_constraint: constraint on the hidden kernel.
        bias_constraint: constraint on the bias. Constraints and regularizers of kernels are given
            [k * input channels, output channels], an LSTM's kernel with taps as more inputs:
            `MaxNorm(1)` bounds the norm of each output channel over all taps and inputs. So is an
            `Identity` initializer, the oldest tap first.
        seed: seed of the dropout masks.
        **kwargs: `name`, `dtype`, `trainable`, `activity_regularizer` of `keras.layers.Layer`.

    Attributes:
        kernel: [k, p, blocks * units] (groups: [1, p, blocks * units / G]).
        recurrent_kernel: [k, units, blocks * units] (groups: see
            `keras_trellis.core.kernels.expand_group_hidden`). LSTM blocks stand in Keras's order i,
            f, c, o; tap k - 1 reads the present step.
        bias: [blocks * units].

    Raises:
        ValueError: if an argument is out of its range.
    """

    built: bool
    dropout = Rate()
    recurrent_dropout = Rate()
    weight_dropout = Rate()

    def __init__(
        self,
        units: int,
        depth: int,
        *,
        kernel_size: int = 2,
        dilation_rate: int | Sequence[int] = 1,
        gate: str | gates.Gate = "lstm",
        output_units: int | None = None,
        groups: int = 1,
        staggered: bool = False,
        inject_every: int = 1,
        weight_normalization: bool = False,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        weight_dropout: float = 0.0,
        recompute: bool = False,
        return_sequences: bool = False,
        return_state: bool = False,
        stateful: bool = False,
        go_backwards: bool = False,
        zero_output_for_mask: bool = False,
        use_bias: bool = True,
        unit_forget_bias: bool = False,
        kernel_initializer: Any = "glorot_uniform",
        recurrent_initializer: Any = "orthogonal",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        recurrent_regularizer: Any = None,
        bias_regularizer: Any = None,
        kernel_constraint: Any = None,
        recurrent_constraint: Any = None,
        bias_constraint: Any = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        _refuse_arguments_of_an_lstm(depth, kwargs)
        super().__init__(**kwargs)
        self.units = arguments.positive("units", units)
        self.depth = arguments.positive("depth", depth)
        self.kernel_size = arguments.positive("kernel_size", kernel_size)
        self.dilation_rate = arguments.dilation_cycle(dilation_rate)
        self.gate = gates.get(gate)
        self.output_units = arguments.at_most("output_units", output_units, "units", self.units)
        self._all_units = output_units is None  # and would be with other `units`
        self.groups = arguments.divisor("groups", groups, "units", self.units)
        self.staggered = bool(staggered)
        self.inject_every = arguments.positive("inject_every", inject_every)
        self.weight_normalization = bool(weight_normalization)
        self.dropout = dropout
        self.recurrent_dropout = recurrent_dropout
        self.weight_dropout = weight_dropout
        self.recompute = bool(recompute)
        self.return_sequences = bool(return_sequences)
        self.return_state = bool(return_state)
        self.stateful = bool(stateful)
        self.go_backwards = bool(go_backwards)
        self.zero_output_for_mask = bool(zero_output_for_mask)
        self.use_bias = bool(use_bias)
        self.unit_forget_bias = self._checked_forget_bias(unit_forget_bias)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.recurrent_initializer = keras.initializers.get(recurrent_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.recurrent_regularizer = keras.regularizers.get(recurrent_regularizer)
        self.bias_regularizer = keras.regularizers.get(bias_regularizer)
        self.kernel_constraint = keras.constraints.get(kernel_constraint)
        self.recurrent_constraint = keras.constraints.get(recurrent_constraint)
        self.bias_constraint = keras.constraints.get(bias_constraint)
        self.seed = seed
        self.supports_masking = True
        self.input_spec = keras.layers.InputSpec(ndim=3)
        self.seed_generator = generator_for(
            seed, self.dropout, self.recurrent_dropout, self.weight_dropout
        )
        self._memory = streaming.Memory()

    def _checked_forget_bias(self, unit_forget_bias: bool) -> bool:
        if unit_forget_bias and self.gate.forget_block is None:
            raise ValueError(
                "`unit_forget_bias` needs a gate with a forget block, as the LSTM's. "
                f"Received: unit_forget_bias={unit_forget_bias!r}, gate={self.gate.name!r}"
            )
        return bool(unit_forget_bias)

    # Variables

    def build(self, sequences_shape: Sequence[int | None], initial_state_shape: Any = None) -> None:
        """Creates the variables for sequences of shape [B, T, p]."""
        inputs = sequences_shape[-1]
        if len(sequences_shape) != 3 or inputs is None:
            raise ValueError(
                "`sequences` must be of shape [B, T, p] with p known. "
                f"Received: sequences of shape {tuple(sequences_shape)}"
            )
        self.input_spec = keras.layers.InputSpec(ndim=3, axes={-1: inputs})
        self._input_units = inputs
        channels = self.gate.blocks * self.units
        taps, groups = self.kernel_size, self.groups
        input_shape, hidden_shape = (taps, inputs, channels), (taps, self.units, channels)
        if groups > 1:
            input_shape = (1, inputs, channels // groups)
            hidden_shape = (
                (taps - 1) * groups + groups - 1,
                self.units // groups,
                channels // groups,
            )
        self.kernel = self._add_kernel("kernel", input_shape, groups=1)
        self.recurrent_kernel = self._add_kernel("recurrent_kernel", hidden_shape, groups)
        self.bias: Any = self._add_bias(channels) if self.use_bias else None
        if self.weight_normalization:
            self.kernel_scale = self._add_scale(
                "kernel_scale", input_shape[-1], lambda: tf.convert_to_tensor(self.kernel)
            )
            self.recurrent_scale = self._add_scale(
                "recurrent_scale", channels, self._hidden_direction
            )
        if self.stateful:
            self._build_memory(sequences_shape)

    def _add_kernel(self, name: str, shape: tuple[int, ...], groups: int) -> keras.Variable:
        """Adds a kernel; `groups` are those of its input channels."""
        prefix = name.removesuffix("_kernel")
        form = kernels.MatrixForm(shape, self.gate.blocks, groups)
        initializer = getattr(self, f"{prefix}_initializer")
        if isinstance(initializer, keras.initializers.Identity):
            initializer = form.initializer(initializer)
        return self.add_weight(
            name=name,
            shape=shape,
            initializer=initializer,
            regularizer=form.regularizer(getattr(self, f"{prefix}_regularizer")),
            constraint=form.constraint(getattr(self, f"{prefix}_constraint")),
            autocast=False,  # norms are taken in the variables' precision
        )

    def _add_bias(self, channels: int) -> keras.Variable:
        return self.add_weight(
            name="bias",
            shape=(channels,),
            initializer=self._first_bias,
            regularizer=self.bias_regularizer,
            constraint=self.bias_constraint,
            autocast=False,
        )

    def _first_bias(self, shape: Sequence[int], dtype: Any = None) -> tf.Tensor:
        bias = self.bias_initializer(shape, dtype=dtype)
        if not self.unit_forget_bias:
            return bias
        blocks = tf.split(bias, self.gate.blocks)
        blocks[self.gate.forget_block] = tf.ones_like(blocks[self.gate.forget_block])
        return tf.concat(blocks, axis=0)

    def _add_scale(
        self, name: str, channels: int, direction: Callable[[], tf.Tensor]
    ) -> keras.Variable:
        """Adds the lengths of a kernel's directions, which start at what they are."""
        # An initializer, since within `fit` Keras puts off giving the kernel its values.
        return self.add_weight(
            name=name,
            shape=(channels,),
            initializer=lambda shape, dtype: tf.cast(kernels.norm(direction()), dtype),
            autocast=False,
        )

    def _build_memory(self, sequences_shape: Sequence[int | None]) -> None:
        if sequences_shape[0] is None:
            raise ValueError(
                "With `stateful=True` the batch size must be static, as for keras.layers.LSTM. "
                f"Received: sequences of shape {tuple(sequences_shape)}"
            )
        with tf.init_scope():
            self._memory.create(self.get_initial_cache(sequences_shape[0]))

    # Keras's protocol

    def call(
        self,
        sequences: tf.Tensor | tf.RaggedTensor,
        initial_state: Sequence[tf.Tensor] | None = None,
        mask: tf.Tensor | None = None,
        training: bool = False,
        auxiliary_every: int | None = None,
        discard: int = 0,
    ) -> Any:
        """Runs the network, as `keras.layers.LSTM` does.

        Args:
            sequences: [B, T, p]; a ragged tensor counts as right padding. XLA cannot make a
                ragged tensor dense: `compile(..., jit_compile=False)` where Keras would use it.
            initial_state: the states, each [B, units], or [1, units] for all rows; None for zeros,
                or with `stateful` for what the last call left.
            mask: bool [B, T] or [B, T, 1], true at the valid steps.
            training: whether dropout is applied, and XLA may compile parts of a large network. A
                training loop of your own has to pass it, as for every Keras layer; `fit` does.
            auxiliary_every: n returns the outputs after the levels i with i % n == n - 1 too,
                for deep supervision (paper, section 5.1). Needs `return_sequences`.
            discard: how many of the first outputs to leave out, 0 to T. Needs `return_sequences`.
                Keras attaches the mask of all T steps to the outputs: pass `mask[:, discard:]`
                to the layers that follow.

        Returns:
            The outputs [B, T - discard, output_units], or [B, output_units] of the last step
            without `return_sequences`. A tuple, where more is asked for: the outputs; with
            `return_state` the states, each [B, units]; with `auxiliary_every` the auxiliary outputs
            [B, M, T - discard, output_units], M = depth // auxiliary_every.

        Raises:
            ValueError: if an argument does not fit the layer or the sequences.
        """
        self._check_selection(auxiliary_every, discard)
        self._refuse_ragged_backwards(sequences)
        sequences, mask = masks.dense(sequences, mask)
        mask = None if mask is None else masks.flat(mask)
        if self.go_backwards:
            sequences = tf.reverse(sequences, axis=[1])
            mask = None if mask is None else tf.reverse(mask, axis=[1])
        auxiliary = None
        if self.stateful:
            outputs, states = self._go_on(sequences, initial_state, mask, training)
            outputs = outputs[:, arguments.discard(discard, sequences.shape[1]) :]
        elif self.return_sequences:
            outputs, states, further = self.propagate(
                sequences,
                initial_state=initial_state,
                mask=mask,
                training=training,
                auxiliary_every=auxiliary_every,
                discard=discard,
            )
            auxiliary = None if auxiliary_every is None else further
        else:
            # Of the last output alone, a level computes only the steps that it depends on.
            kept = None if mask is not None else 1
            outputs, states = self._run(
                sequences, initial_state, mask, training, stops=[self.depth], kept=kept
            )
        if mask is not None and self.zero_output_for_mask:
            outputs = masks.zero_masked(outputs, mask[:, discard:])
            if auxiliary is not None:
                auxiliary = tf.where(mask[:, None, discard:, None], auxiliary, 0)
        if not self.return_sequences:
            outputs = masks.last_valid(
                outputs, None, tf.zeros_like(states[0][:, : outputs.shape[-1]])
            )
        results = (outputs, *(states if self.return_state else ()))
        results += () if auxiliary is None else (auxiliary,)
        return results if len(results) > 1 else outputs

    def _check_selection(self, auxiliary_every: int | None, discard: int) -> None:
        if not self.return_sequences and (auxiliary_every is not None or discard):
            raise ValueError(
                "`auxiliary_every` and `discard` need `return_sequences=True`. Received: "
                f"auxiliary_every={auxiliary_every!r}, discard={discard!r}"
            )
        if self.stateful and auxiliary_every is not None:
            raise ValueError(
                "`auxiliary_every` must be None with `stateful=True`. "
                f"Received: auxiliary_every={auxiliary_every!r}"
            )

    def compute_output_shape(
        self,
        sequences_shape: Sequence[int | None],
        initial_state_shape: Any = None,
        auxiliary_every: int | None = None,
        discard: int = 0,
    ) -> Any:
        """Returns the shape of what `call` returns."""
        batch, time = sequences_shape[:2]
        steps = () if not self.return_sequences else (None if time is None else time - discard,)
        shapes = [(batch, *steps, self.output_units)]
        if self.return_state:
            shapes += [(batch, self.units)] * self.gate.states
        if auxiliary_every is not None:
            shapes += [(batch, self.depth // auxiliary_every, *steps, self.output_units)]
        return tuple(shapes) if len(shapes) > 1 else shapes[0]

    def compute_output_spec(
        self,
        sequences: keras.KerasTensor,
        initial_state: Any = None,
        mask: Any = None,
        training: bool = False,
        auxiliary_every: int | None = None,
        discard: int = 0,
    ) -> Any:
        """Returns what stands for the results of `call` in a functional model."""
        self._check_selection(auxiliary_every, discard)
        shapes = self.compute_output_shape(
            sequences.shape, auxiliary_every=auxiliary_every, discard=discard
        )
        if not isinstance(shapes[0], tuple):
            return keras.KerasTensor(shapes, dtype=self.compute_dtype)
        return tuple(keras.KerasTensor(shape, dtype=self.compute_dtype) for shape in shapes)

    def compute_mask(self, sequences: Any, mask: Any = None) -> Any:
        """Returns the mask of what `call` returns: the sequences' own, none for states.

        That of ragged sequences has their lengths. With `go_backwards` it is reversed, as the
        outputs are; an LSTM's is not, and fits them no longer.
        """
        first = mask[0] if isinstance(mask, (list, tuple)) else mask
        output_mask = masks.of_steps(sequences, first) if self.return_sequences else None
        if output_mask is not None and self.go_backwards:
            output_mask = keras.ops.flip(output_mask, axis=1)
        return [output_mask, *[None] * self.gate.states] if self.return_state else output_mask

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        config = {
            "units": self.units,
            "depth": self.depth,
            "kernel_size": self.kernel_size,
            "dilation_rate": list(self.dilation_rate),
            "gate": keras.saving.serialize_keras_object(self.gate),
            "output_units": None if self._all_units else self.output_units,
            "groups": self.groups,
            "staggered": self.staggered,
            "inject_every": self.inject_every,
            "weight_normalization": self.weight_normalization,
            "dropout": self.dropout,
            "recurrent_dropout": self.recurrent_dropout,
            "weight_dropout": self.weight_dropout,
            "recompute": self.recompute,
            "return_sequences": self.return_sequences,
            "return_state": self.return_state,
            "stateful": self.stateful,
            "go_backwards": self.go_backwards,
            "zero_output_for_mask": self.zero_output_for_mask,
            "use_bias": self.use_bias,
            "unit_forget_bias": self.unit_forget_bias,
            "seed": self.seed,
        }
        for kind, module in (
            ("initializer", keras.initializers),
            ("regularizer", keras.regularizers),
            ("constraint", keras.constraints),
        ):
            for prefix in ("kernel", "recurrent", "bias"):
                name = f"{prefix}_{kind}"
                config[name] = module.serialize(getattr(self, name))
        return super().get_config() | config

    # The network

    @property
    def _network(self) -> Network:
        return Network(
            units=self.units,
            depth=self.depth,
            kernel_size=self.kernel_size,
            dilation_rate=self.dilation_rate,
            gate=self.gate,
            inject_every=self.inject_every,
            # With groups the input enters on the present tap alone.
            input_taps=self.kernel_size if self.groups == 1 else 1,
            recompute=self.recompute,
            staggered=self.groups if self.staggered else 1,
            training=False,
        )

    @property
    def receptive_field(self) -> int:
        """The number of steps that an output depends on, its own step included."""
        return receptive_field(
            self.depth, kernel_size=self.kernel_size, dilation_rate=self.dilation_rate
        )

    def get_initial_state(self, batch_size: int | tf.Tensor) -> list[tf.Tensor]:
        """Returns the zero state: one tensor [B, units] a state of the gate."""
        return [
            tf.zeros([batch_size, self.units], self.compute_dtype) for _ in range(self.gate.states)
        ]

    def propagate(
        self,
        sequences: tf.Tensor,
        *,
        initial_state: Sequence[tf.Tensor] | None = None,
        mask: tf.Tensor | None = None,
        training: bool = False,
        auxiliary_every: int | None = None,
        discard: int = 0,
    ) -> tuple[tf.Tensor, State, tf.Tensor | None]:
        """Runs the network over whole sequences; what `call` is a shell of.

        Args:
            sequences: [B, T, p].
            initial_state: the states, each [B, units], that stand to the left of every level;
                None for zeros.
            mask: bool [B, T], true at the valid steps.
            training: whether dropout is applied.
            auxiliary_every: n returns the outputs after the levels i with i % n == n - 1 too,
                for deep supervision (paper, section 5.1).
            discard: how many of the first outputs to leave out, 0 to T.

        Returns:
            outputs [B, T - discard, output_units]; the states of the top level's last valid
            step, each [B, units]; the auxiliary outputs [B, M, T - discard, output_units],
            M = depth // auxiliary_every, or None.

        Raises:
            ValueError: if `initial_state` does not fit, or an argument is out of its range.
        """
        sequences, kept = self._prepare(sequences), None
        steps = sequences.shape[1]
        arguments.discard(discard, steps)
        if discard and mask is None and steps is not None:
            kept, discard = steps - discard, 0
        stops = self._auxiliary_stops(auxiliary_every)
        *collected, states = self._run(
            sequences, initial_state, mask, training, stops=[*stops, self.depth], kept=kept
        )
        collected = [outputs[:, discard:] for outputs in collected]
        auxiliary = tf.stack(collected[: len(stops)], axis=1) if stops else None
        return collected[-1], states, auxiliary

    def _run(
        self,
        sequences: Any,
        initial_state: Any,
        mask: Any,
        training: bool,
        *,
        stops: Sequence[int],
        kept: int | None,
    ) -> tuple[Any, ...]:
        """Runs the levels.

        Args:
            sequences: see `propagate`.
            initial_state: see `propagate`.
            mask: see `propagate`.
            training: see `propagate`.
            stops: the levels after which outputs are collected.
            kept: how many of the last outputs are returned; None, as with a mask: all of them.

        Returns:
            The outputs after each stop, and the states of the last valid step.
        """
        sequences, initial, plan = self._receive(sequences, initial_state, mask)
        network = dataclasses.replace(self._network, training=bool(training))
        state, collected = network.run(
            sequences,
            None if initial_state is None else initial,
            self._draw_parameters(tf.shape(sequences)[0], training),
            stops=stops,
            kept=kept,
        )
        outputs = (self._outputs(hidden, plan) for hidden in collected)
        return *outputs, self._last_states(state, plan, initial)

    def _receive(
        self, sequences: Any, initial_state: Any, mask: Any
    ) -> tuple[tf.Tensor, State, masks.Packing | None]:
        """Checks the arguments of `propagate`; returns packed sequences, state and packing."""
        sequences = self._prepare(sequences)
        initial = self._initial_state(initial_state, sequences)
        plan = self._packing(mask, sequences)
        return sequences if plan is None else masks.pack(sequences, plan), initial, plan

    def _outputs(self, hidden: tf.Tensor, plan: masks.Packing | None) -> tf.Tensor:
        """Returns the output channels of hidden states [B, T, units], their steps moved back."""
        outputs = hidden[..., self.units - self.output_units :]
        if plan is None:
            return outputs
        before = tf.zeros([tf.shape(outputs)[0], self.output_units], outputs.dtype)
        return masks.unpack(outputs, plan, before)

    @staticmethod
    def _last_states(state: State, plan: masks.Packing | None, initial: State) -> State:
        """Returns the states of the last valid step, each [B, units]."""
        return tuple(
            masks.last_valid(top, plan, first) for top, first in zip(state, initial, strict=True)
        )

    def _prepare(self, sequences: Any) -> tf.Tensor:
        if isinstance(sequences, tf.RaggedTensor):
            raise ValueError(
                "`sequences` must be padded, `sequences.to_tensor()`, with the mask "
                "`tf.sequence_mask(sequences.row_lengths())`: only a call of the layer takes "
                "ragged ones. Received: a RaggedTensor"
            )
        sequences = tf.convert_to_tensor(sequences)
        if not self.built:
            self.build(sequences.shape)
        if sequences.shape.rank != 3 or sequences.shape[-1] not in (None, self._input_units):
            raise ValueError(
                f"`sequences` must be of shape [B, T, {self._input_units}]. "
                f"Received: sequences of shape {tuple(sequences.shape)}"
            )
        return tf.cast(sequences, self.compute_dtype)

    def _auxiliary_stops(self, auxiliary_every: int | None) -> list[int]:
        if auxiliary_every is None:
            return []
        every = arguments.at_most("auxiliary_every", auxiliary_every, "depth", self.depth)
        return list(range(every, self.depth + 1, every))

    def _initial_state(self, initial_state: Any, sequences: tf.Tensor) -> State:
        if initial_state is None:
            return tuple(self.get_initial_state(tf.shape(sequences)[0]))
        if not isinstance(initial_state, (list, tuple)):
            initial_state = [initial_state]
        states = tuple(tf.cast(state, self.compute_dtype) for state in initial_state)
        expected = tf.TensorShape([sequences.shape[0], self.units])
        if len(states) != self.gate.states or not all(
            state.shape.rank == 2
            and (state.shape.is_compatible_with(expected) or state.shape == [1, self.units])
            for state in states
        ):
            raise ValueError(
                f"`initial_state` must be {self.gate.states} tensor(s) of shape "
                f"{expected.as_list()} for the gate {self.gate.name!r}. Received: initial_state "
                f"of shapes {[state.shape.as_list() for state in states]}"
            )
        # One row stands for all, as for an LSTM.
        shape = [tf.shape(sequences)[0], self.units]
        return tuple(
            tf.broadcast_to(state, shape) if state.shape[0] == 1 else state for state in states
        )

    def _refuse_ragged_backwards(self, sequences: Any) -> None:
        ragged = isinstance(sequences, tf.RaggedTensor)
        if ragged and self.go_backwards and self.return_sequences:
            raise ValueError(
                "`sequences` must be padded where they are read backwards with "
                "`return_sequences=True`, as in keras.layers.Bidirectional, which drops the "
                "lengths: what follows would read the padding. Write "
                "`layer(sequences.to_tensor(), mask=tf.sequence_mask(sequences.row_lengths()))`, "
                "or pad with zeros and put a keras.layers.Masking in front. "
                "Received: a RaggedTensor"
            )

    @staticmethod
    def _packing(mask: Any, sequences: tf.Tensor) -> masks.Packing | None:
        if mask is None:
            return None
        mask = masks.flat(mask)
        if mask.shape.rank != 2 or not mask.shape.is_compatible_with(sequences.shape[:2]):
            raise ValueError(
                f"`mask` must be of shape {sequences.shape[:2].as_list()}, as the sequences. "
                f"Received: mask of shape {mask.shape}"
            )
        return masks.packing(mask)

    def _hidden_direction(self) -> tf.Tensor:
        kernel = tf.convert_to_tensor(self.recurrent_kernel)
        if self.groups == 1:
            return kernel
        return kernels.expand_group_hidden(kernel, self.gate.blocks, self.groups)

    def _draw_parameters(self, batch_size: tf.Tensor, training: bool) -> Parameters:
        """Computes the kernels and draws the masks of one call."""
        rates = (self.dropout, self.recurrent_dropout, self.weight_dropout)
        seed = next_seed(self.seed_generator) if training and any(rates) else None

        def mask(name: str, rate: float, shape: Sequence[Any], dtype: Any) -> tf.Tensor | None:
            if seed is None or not rate:
                return None
            return dropout_mask(shape, rate, stream_seed(seed, name), dtype)

        def finish(kernel: tf.Tensor, name: str, scale: Any) -> tf.Tensor:
            taps, inputs, outputs = kernel.shape
            shape = (max(taps - 1, 1), inputs, outputs)
            kernel_mask = mask(name, self.weight_dropout, shape, kernel.dtype)
            # With groups the input kernel has no past tap to drop, whatever its size.
            if kernel_mask is not None and (self.groups == 1 or taps == self.kernel_size):
                kernel = kernels.drop_past_taps(kernel, kernel_mask)
            if scale is not None:
                kernel = kernels.weight_normalized(kernel, tf.convert_to_tensor(scale))
            return kernel

        normalized = self.weight_normalization
        kernel = finish(
            tf.convert_to_tensor(self.kernel), "kernel", self.kernel_scale if normalized else None
        )
        if self.groups > 1:
            kernel = kernels.expand_group_input(kernel, self.gate.blocks, self.groups)
        recurrent_kernel = finish(
            self._hidden_direction(),
            "recurrent_kernel",
            self.recurrent_scale if normalized else None,
        )
        dtype = tf.as_dtype(self.compute_dtype)
        return Parameters(
            kernel=tf.cast(kernel, dtype),
            hidden=hidden_kernel(
                recurrent_kernel,
                dtype,
                mask("states", self.recurrent_dropout, (batch_size, 1, self.units), dtype),
            ),
            bias=tf.cast(self.bias, dtype) if self.use_bias else None,
            input_mask=mask("inputs", self.dropout, (batch_size, 1, self._input_units), dtype),
        )

    # Streaming

    def get_initial_cache(self, batch_size: int | tf.Tensor) -> Cache:
        """Returns the cache of sequences that have not begun."""
        dtype, total = self.compute_dtype, sum(c * w for c, w in self._network.cached)
        if not hasattr(self, "_input_units"):
            raise ValueError(
                "The layer must be built before its cache is known: call it once, or "
                "`layer.build([None, None, p])`."
            )
        return Cache(
            inputs=tf.zeros([batch_size, self._network.input_width, self._input_units], dtype),
            levels=tuple(
                tf.zeros([batch_size, total, self.units], dtype) for _ in range(self.gate.states)
            ),
            state=tuple(self.get_initial_state(batch_size)),
            steps=tf.zeros([batch_size], tf.int32),
        )

    def stream(
        self, sequences: tf.Tensor, cache: Cache, mask: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, Cache]:
        """Goes on with sequences whose past is in `cache`; chunks equal one long pass.

        A graph in which n is 1 and known reads the hidden kernel about half as often as one in
        which it is not known, and has no part that XLA compiles, so that any server runs it.

        Args:
            sequences: the next steps, [B, n, p].
            cache: what the last call returned, or `get_initial_cache(B)`. It is not changed.
            mask: bool [B, n]; a masked step leaves its row's cache untouched.

        Returns:
            outputs [B, n, output_units] and the new cache.
        """
        return self._stream(sequences, cache, mask, training=False)

    def _stream(
        self, sequences: tf.Tensor, cache: Cache, mask: tf.Tensor | None, training: bool
    ) -> tuple[tf.Tensor, Cache]:
        sequences = self._prepare(sequences)
        self._check_cache(cache, sequences.shape[0])
        plan = self._packing(mask, sequences)
        count = tf.shape(sequences)[1] if plan is None else plan.count
        if plan is not None:
            sequences = masks.pack(sequences, plan)
        parameters = self._draw_parameters(tf.shape(sequences)[0], training)
        network = dataclasses.replace(self._network, training=bool(training))
        state, levels = network.stream(sequences, cache, parameters, plan)
        outputs = state[0][..., self.units - self.output_units :]
        if plan is not None:
            outputs = masks.unpack(outputs, plan, self._last_output(cache))
        return outputs, Cache(
            inputs=streaming.keep(
                pad_left(cache.inputs, sequences), self._network.input_width, plan
            ),
            levels=levels,
            state=self._last_states(state, plan, cache.state),
            steps=cache.steps + count,
        )

    def _check_cache(self, cache: Any, batch_size: int | None) -> None:
        steps = sum(count * width for count, width in self._network.cached)
        states = self.gate.states
        expected = Cache(
            inputs=tf.TensorShape([batch_size, self._network.input_width, self._input_units]),
            levels=(tf.TensorShape([batch_size, steps, self.units]),) * states,
            state=(tf.TensorShape([batch_size, self.units]),) * states,
            steps=tf.TensorShape([batch_size]),
        )
        wanted = tf.nest.flatten(expected)
        shapes = [getattr(each, "shape", None) for each in tf.nest.flatten(cache)]
        fits = isinstance(cache, Cache) and len(shapes) == len(wanted)
        if not fits or not all(map(tf.TensorShape.is_compatible_with, wanted, shapes)):
            raise ValueError(
                f"`cache` must be what `get_initial_cache({batch_size})` or `stream` returns, of "
                f"shapes {wanted}. Received: {type(cache).__name__} of shapes {shapes}"
            )

    def _last_output(self, cache: Cache) -> tf.Tensor:
        """The output before the chunk: zeros where no valid step has been seen."""
        output = cache.state[0][:, self.units - self.output_units :]
        return tf.where(tf.expand_dims(cache.steps > 0, -1), output, tf.zeros_like(output))

    # A stateful layer's memory

    def _go_on(
        self, sequences: tf.Tensor, initial_state: Any, mask: tf.Tensor | None, training: bool
    ) -> tuple[tf.Tensor, State]:
        sequences = self._prepare(sequences)
        cache = self._memory.read()
        if sequences.shape[0] not in (None, cache.steps.shape[0]):
            raise ValueError(
                "With `stateful=True` every batch must have the size that the layer was built "
                f"for, {cache.steps.shape[0]}. Received: sequences of shape "
                f"{tuple(sequences.shape)}"
            )
        if initial_state is not None:
            cache = self._cache_of_state(self._initial_state(initial_state, sequences))
        outputs, cache = self._stream(sequences, cache, mask, training)
        self._memory.write(cache)
        return outputs, cache.state

    def _cache_of_state(self, state: State) -> Cache:
        """The cache of sequences that have not begun and have this state to their left."""
        empty = self.get_initial_cache(tf.shape(state[0])[0])
        steps = empty.levels[0].shape[1]
        levels = tuple(tf.repeat(tf.expand_dims(each, 1), steps, axis=1) for each in state)
        return empty._replace(levels=levels, state=state)

    @property
    def states(self) -> list[streaming.StateVariable] | None:
        """The state that a stateful layer goes on from, as `keras.layers.LSTM.states`.

        `states[i].assign(value)` lets it go on from another, as `initial_state` does.
        """
        if not (self.stateful and self.built):
            return None
        return [
            streaming.StateVariable(variable, self._forget_all_but_state)
            for variable in self._memory.states
        ]

    def _forget_all_but_state(self) -> None:
        self._memory.write(self._cache_of_state(self._memory.read().state))

    def reset_state(self) -> None:
        """Forgets what a stateful layer has seen."""
        if self.stateful and self.built:
            self._memory.reset()

    def reset_states(self) -> None:
        """The older name of `reset_state`."""
        self.reset_state()


def _refuse_arguments_of_an_lstm(depth: Any, kwargs: Mapping[str, Any]) -> None:
    for name, instead in _OF_AN_LSTM.items():
        if name in kwargs:
            raise ValueError(
                f"`{name}` is an argument of keras.layers.LSTM that TrellisLayer does not take. "
                f"{instead} Received: {name}={kwargs[name]!r}"
            )
    if isinstance(depth, str) or callable(depth):
        raise ValueError(
            "`depth` must be a positive integer, the number of levels. An activation belongs to "
            f"the gate: `gate=keras_trellis.LSTMGate(activation={depth!r})`. "
            f"Received: depth={depth!r}"
        )
