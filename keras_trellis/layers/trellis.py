"""`TrellisLayer`: a trellis network as a Keras layer."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import keras
from keras import ops

from keras_trellis import arguments
from keras_trellis.core import streamed, trellis
from keras_trellis.core.lines import Line
from keras_trellis.core.network import receptive_field
from keras_trellis.layers import networks
from keras_trellis.layers.hooks import Pass
from keras_trellis.layers.inputs import (
    check_options,
    checked_tensors,
    count_outputs,
    warn_unseen_steps,
    with_used_dilations,
)
from keras_trellis.layers.sequence import call_shapes
from keras_trellis.layers.trellis_base import TrellisBase
from keras_trellis.types import Cache, State, Tensor


@keras.saving.register_keras_serializable("keras_trellis")
class TrellisLayer(TrellisBase):
    """Trellis network: a causal convolution shared by all time steps and all levels.

    It replaces `keras.layers.LSTM` in a model:

        layer = keras_trellis.TrellisLayer(512, depth=32, return_sequences=True)

    Each level applies the same convolutions to the hidden sequence of the level below and to the
    input, and passes the sum through a gate:

        x~_t     = sum_j Wx_j x_{t - (k-1-j) d}
        z_t      = sum_j Wz_j h^(i)_{t - (k-1-j) d} + b + x~_t
        s^(i+1)_t = gate(z_t, s^(i)_{t - d})

    with s = (h, c) for the LSTM gate, c' = sigmoid(f) c_{t-d} + sigmoid(i) tanh(g) and
    h' = sigmoid(o) tanh(c'). Level 0 is zero. The left context of the input is zero; that of every
    level is the initial state, repeated.

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

    State and cache differ. The *state* is the paper's history: h and c of the top level's last time
    step. It is small and lossy: if you cut a sequence in two and carry the state over, the outputs
    differ from those of the whole sequence; carried from step to step, as an LSTM's, they can be
    useless. The *cache* (`get_initial_cache`, `stream`, `stateful=True`) holds what every level
    needs of its past. It is exact: chunks equal one long pass. A decoder begins from an encoder's
    state by `get_initial_cache(batch_size, initial_state=state)`, and writes by `stream`.

    Masks mean what they mean for `keras.layers.LSTM`: a masked step is skipped, wherever it is. Its
    output is the one before it; before the first valid step, or with `zero_output_for_mask`, it
    is zero. A row without valid steps keeps its initial state.

    Source: Bai, Kolter, Koltun, "Trellis Networks for Sequence Modeling", ICLR 2019,
    https://arxiv.org/abs/1810.06682.

    Args:
        units: the number of hidden channels, q.
        depth: the number of levels, L. The variables do not depend on it. `depth_for` says how many
            see a number of steps. Above 1000 levels the layer warns what they cost.
        kernel_size: the number of taps of the convolution, k.
        dilation_rate: the distance between taps in steps; an integer, or a sequence of at most
            `depth` of them: level i uses entry i % len.
        gate: "lstm", "gru", "tanh", "irc_gru", "irc_lstm", "fastgrnn", or a
            `keras_trellis.Gate`.
        activation: the activation of the gate, as in `LSTMGate(activation=...)`; "auto": its own,
            which is "tanh" for "lstm". A `Gate` given as `gate` must have it already.
        recurrent_activation: the same for its `recurrent_activation`, "sigmoid" for "lstm".
        output_units: the number of output channels, the last ones of h; None for all.
        groups: 1 for a dense hidden kernel. G > 1 for the mixed group convolution of Theorem 1:
            G groups of units / G channels; the past taps connect each group to itself, the
            present tap connects group g - 1 to g, the input enters group 1 on the present tap.
            It saves parameters, but no time: the product is dense.
        inject_groups: whether the input enters all groups, on the present tap. The paper's
            construction has False; this is the injection of every level, for groups.
        staggered: whether group g begins at level g, and is zero below. So the g-th layer of a
            truncated recurrent network does nothing before its first step.
        inject_every: the input enters the levels i with i % inject_every == 0. Every level adds
            the bias.
        weight_normalization: write the input and the hidden kernel each as g v / ||v||, for each
            output channel. This adds `kernel_scale` and `recurrent_scale`, which start at ||v||,
            so that nothing changes at the start.
        dropout: rate of the input dropout, one mask `[B, 1, p]` a call.
        recurrent_dropout: rate of the variational hidden dropout: one mask `[B, 1, units]` a call
            on what enters the convolution of every level, the initial state included; never on
            the state that the gate reads.
        weight_dropout: rate of DropConnect on the taps that read the past (all if k = 1) of both
            kernels, one mask a call; with weight normalisation it acts on v.
        recompute: whether to save memory in training: what a level needs for its gradient is
            computed twice, and memory grows with the square root of the depth. On TensorFlow, long
            sequences with an output at every step are computed in tiles of time instead, where
            that halves the memory once more: it then hardly grows with the number of steps. The
            results are the same.
        return_sequences: whether to return the output of every step or of the last one. For the
            last one a level computes only the steps that it depends on.
        return_state: whether to return the states too. A decoder, or the next window in training,
            can begin from them. They do not continue a sequence exactly; the cache does.
        stateful: whether a batch goes on, exactly, where the one before it stopped. Needs a
            static batch size.
        go_backwards: whether to process the sequence backwards and return it reversed.
        zero_output_for_mask: whether the output at a masked step is zero.
        use_bias: whether to add a bias.
        unit_forget_bias: whether the bias of the gate's forget block starts at 1, for gates that
            have one (the LSTM's; see `Gate.forget_block`).
        kernel_initializer: initializer of the input kernel, "glorot_uniform" by default.
        recurrent_initializer: initializer of the hidden kernel, "orthogonal" by default.
        bias_initializer: initializer of the bias, "zeros" by default.
        kernel_regularizer: regularizer of the input kernel.
        recurrent_regularizer: regularizer of the hidden kernel.
        bias_regularizer: regularizer of the bias.
        kernel_constraint: constraint on the input kernel.
        recurrent_constraint: constraint on the hidden kernel.
        bias_constraint: constraint on the bias. Constraints and regularizers of kernels are given
            `[k * input channels, output channels]`, an LSTM's kernel with taps as more inputs:
            `MaxNorm(1)` bounds the norm of each output channel over all taps and inputs. So is an
            `Identity` initializer, the oldest tap first.
        seed: seed of the dropout masks.
        **kwargs: `name`, `dtype`, `trainable`, `activity_regularizer` of `keras.layers.Layer`. An
            LSTM's `unroll=False`, `use_cudnn="auto"` and `implementation` change nothing.

    Attributes:
        kernel: `[k, p, blocks * units]` (groups: `[1, p, blocks * units / G]`, or with
            `inject_groups` `[1, p, blocks * units]`).
        recurrent_kernel: `[k, units, blocks * units]` (groups: see
            `keras_trellis.core.kernels.expand_group_hidden`). LSTM blocks stand in Keras's order i,
            f, c, o; tap k - 1 reads the present step.
        bias: `[blocks * units]`.
        warns_unseen_steps: whether the layer warns where it returns the last output alone, of
            more steps than its `receptive_field`. It does so once, and not after weights were
            loaded from a file; after training on series that it sees, in training alone.
        trained_on_seen_steps: whether it was trained on such a series.

    Raises:
        ValueError: an argument is out of its range or unknown.
        TypeError: `units` or `depth` is missing.

    Input shape:
        `[B, T, p]`. `initial_state` is one tensor `[B, units]` for each state of the gate, and
        `mask` is bool, `[B, T]`.

    Output shape:
        `[B, C]`, or with `return_sequences` `[B, T, C]`. C is `output_units`, or `units` where that
        is None. With `return_state` the result is a tuple: the outputs, then the states, each `[B,
        units]`.

    Examples:
        >>> import numpy as np
        >>> import keras_trellis
        >>> dilations = [1, 2, 4, 8, 16, 32]
        >>> layer = keras_trellis.TrellisLayer(16, depth=6, dilation_rate=dilations)
        >>> layer.receptive_field
        64
        >>> sequences = np.ones([2, 60, 3], "float32")
        >>> outputs = layer(sequences)
        >>> tuple(outputs.shape)
        (2, 16)

        In chunks of 20 time steps:

        >>> cache = layer.get_initial_cache(batch_size=2)
        >>> for start in (0, 20, 40):
        ...     chunk, cache = layer.stream(sequences[:, start : start + 20], cache)
        >>> bool(np.allclose(chunk[:, -1], outputs, atol=1e-5))
        True
    """

    warns_unseen_steps: bool = True
    trained_on_seen_steps: bool = False

    _instead: ClassVar[dict[str, str]] = TrellisBase._instead | {
        "depth": (
            "For outputs that see 100 steps, write `TrellisLayer(64, "
            "depth=keras_trellis.depth_for(100, dilation_rate=[1, 2, 4, 8]), "
            "dilation_rate=[1, 2, 4, 8])`."
        ),
        "unroll": (
            "Leave it out: there is no loop over time, and that over levels is never unrolled."
        ),
    }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> TrellisLayer:
        """Makes a layer of its config, also of one that has more dilations than levels."""
        layer: TrellisLayer = super().from_config(with_used_dilations(config))
        return layer

    def load_own_variables(self, store: Any) -> None:
        """Loads the variables from a file. Whoever trained them knows how far they see."""
        super().load_own_variables(store)
        self.warns_unseen_steps = False

    @property
    def receptive_field(self) -> int:
        """The number of steps that an output depends on, its own step included."""
        return receptive_field(
            self.depth, kernel_size=self.kernel_size, dilation_rate=self.dilation_rate
        )

    @property
    def state_is_exact(self) -> bool:
        """False: the state is that of the top level; the other levels and the input have pasts."""
        return False

    def call(
        self,
        sequences: Tensor,
        initial_state: Sequence[Tensor] | None = None,
        mask: Tensor | None = None,
        training: bool = False,
        auxiliary_every: int | None = None,
        discard: int = 0,
        depth: int | None = None,
        auxiliary_from: str = "bottom",
    ) -> Any:
        """Runs the network, as `keras.layers.LSTM` does.

        Args:
            sequences: as for `SequenceLayer.call`.
            initial_state: as for `SequenceLayer.call`.
            mask: as for `SequenceLayer.call`.
            training: as for `SequenceLayer.call`.
            auxiliary_every: n returns the outputs of every n-th level too, for deep supervision.
                Needs `return_sequences`, and does not go with `stateful`.
            discard: how many of the first outputs to leave out, 0 to T. Needs `return_sequences`.
                Keras attaches the mask of all T steps to the outputs: pass `mask[:, discard:]`
                to the layers that follow.
            depth: how many levels to run, 1 to the layer's `depth`; None: all. The result is that
                of a layer of this depth with the same weights. Does not go with `stateful`.
            auxiliary_from: where `auxiliary_every` counts from. "bottom", as the released code:
                after n, 2n, ... levels, the last one included if n divides the depth. "top", as
                the paper's text: after depth - n, depth - 2n, ... levels. The lowest comes first.

        Returns:
            the outputs `[B, T - discard, output_units]`, or `[B, output_units]` of the last step
            without `return_sequences`. More results make a tuple: the outputs; with
            `return_state` the states, each `[B, units]`; with `auxiliary_every` the auxiliary
            outputs `[B, M, T - discard, output_units]`.

        Raises:
            ValueError: an argument does not fit the layer or the sequences.
        """
        check_options(self, depth, auxiliary_every, discard)
        levels = self._levels(depth, auxiliary_every, auxiliary_from)
        return self._call_results(
            sequences, initial_state, mask, training, levels, discard
        )

    def compute_output_shape(
        self,
        sequences_shape: Sequence[int | None],
        initial_state_shape: Any = None,
        auxiliary_every: int | None = None,
        discard: int = 0,
        depth: int | None = None,
        auxiliary_from: str = "bottom",
    ) -> Any:
        """Returns the shape of what `call` returns."""
        check_options(self, depth, auxiliary_every, discard)
        levels = self._levels(depth, auxiliary_every, auxiliary_from)
        auxiliary = len(levels) - 1
        return call_shapes(self, sequences_shape, auxiliary, discard)

    def propagate(
        self,
        sequences: Tensor,
        *,
        initial_state: Sequence[Tensor] | None = None,
        mask: Tensor | None = None,
        training: bool = False,
        auxiliary_every: int | None = None,
        discard: int = 0,
        depth: int | None = None,
        auxiliary_from: str = "bottom",
    ) -> tuple[Tensor, State, Tensor | None]:
        """Runs the network over whole sequences and returns all results.

        It ignores `return_sequences`, `return_state`, `go_backwards` and `stateful`, and does not
        compute time steps that only discarded outputs depend on.

        Args:
            sequences: `[B, T, p]`.
            initial_state: the states to the left of every level, each `[B, units]`; None for zeros.
            mask: bool `[B, T]`, true at the valid steps.
            training: as for `call`.
            auxiliary_every: as for `call`.
            discard: how many of the first outputs to leave out, 0 to T.
            depth: as for `call`.
            auxiliary_from: as for `call`.

        Returns:
            the outputs `[B, T - discard, output_units]`; the states at the last valid step, each
            `[B, units]`; and the auxiliary outputs `[B, M, T - discard, output_units]` or None.

        Raises:
            ValueError: an argument does not fit the layer or the sequences.
        """
        levels = self._levels(depth, auxiliary_every, auxiliary_from)
        sequences, initial, mask = checked_tensors(self, sequences, initial_state, mask)
        num_outputs = count_outputs(sequences, discard)
        initial = self._begun(sequences, initial)
        request = Pass(initial, mask, training, levels, num_outputs)
        return self.run(sequences, request)

    def _levels(
        self, depth: int | None, auxiliary_every: int | None, auxiliary_from: str
    ) -> Sequence[int]:
        """Returns after how many levels outputs are collected: the last ones after all."""
        depth = arguments.at_most("depth", depth, "layer.depth", self.depth)
        if auxiliary_every is None:
            return [depth]
        inner = arguments.inner_levels(auxiliary_every, auxiliary_from, depth)
        return [*inner, depth]

    def run(
        self, sequences: Tensor, request: Pass
    ) -> tuple[Tensor, State, Tensor | None]:
        """Runs whole sequences; the last result is the auxiliary outputs, if any."""
        warn_unseen_steps(self, sequences, request.num_outputs, request.training)
        stops = request.levels or (self.depth,)
        *inner, depth = stops
        collected, state = networks.run(
            dataclasses.replace(self._network, depth=depth),
            self._weights(sequences, request.training),
            sequences,
            request.initial_state,
            request.mask,
            stops=tuple(stops),
            num_outputs=request.num_outputs,
            training=request.training,
            recompute=self.recompute,
        )
        collected = [self._outputs(hidden) for hidden in collected]
        auxiliary = None
        if inner:
            auxiliary = ops.stack(collected[: len(inner)], axis=1)
        return collected[-1], state, auxiliary

    def run_chunk(
        self, sequences: Tensor, cache: Cache, mask: Tensor | None, training: bool
    ) -> tuple[Tensor, Cache]:
        """Continues sequences from a cache; see `SequenceHooks.run_chunk`."""
        self._check_cache(cache, sequences.shape[0])
        weights = self._weights(sequences, training)
        hidden, cache = networks.stream(
            self._network, weights, sequences, cache, mask, training=training
        )
        return self._outputs(hidden), cache

    def portable_stream(
        self, sequences: Tensor, cache: Cache, mask: Tensor | None = None
    ) -> tuple[Tensor, Cache]:
        """Does what `stream` does, in a graph without loops over levels, which ONNX can hold."""
        sequences, _, mask = checked_tensors(self, sequences, None, mask)
        self._check_cache(cache, sequences.shape[0])
        weights = self._weights(sequences, training=False)
        hidden, cache = trellis.stream(self._network, weights, sequences, cache, mask)
        return self._outputs(hidden), cache

    def delay_lines(self) -> dict[str, Line] | None:
        """Returns what a stream keeps of the past, by name.

        None for a layer of a class of your own that begins from another state than zeros: its
        cache goes on as a whole.
        """
        if type(self).get_initial_state is not TrellisBase.get_initial_state:
            return None
        return streamed.lines(self._network, self.input_units, self.compute_dtype)

    def advance(
        self, sequences: Tensor, past: Mapping[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Continues sequences from what a chunk reads of the delay lines.

        Args:
            sequences: the next steps, `[B, n, p]`, n known.
            past: of each line the entries at `line.places(n)`.

        Returns:
            outputs `[B, n, output_units]`, and the new entries of each line, `[B, n, ...]`.
        """
        sequences = ops.cast(sequences, self.compute_dtype)
        weights = self._weights(sequences, training=False)
        table = streamed.lines(self._network, self.input_units, self.compute_dtype)
        state, pushed = streamed.advance(self._network, weights, sequences, past, table)
        return self._outputs(state[0]), pushed
