"""`SequenceLayer`: what all sequence layers share.

It follows the protocol of `keras.layers.LSTM`: masks, ragged and reversed sequences, results,
statefulness. A family of layers adds its variables and its network.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from keras_trellis.core.convolution import last_steps
from keras_trellis.layers.inputs import (
    check_options,
    check_shape,
    check_symbols,
    checked_tensors,
    dense_sequences,
    first_state,
    num_outputs,
    warn_of_state,
)
from keras_trellis.layers.outputs import call_mask, call_results, call_shapes
from keras_trellis.layers.stateful import CacheVariables, StateVariable, state_of
from keras_trellis.types import Cache, Number, State

_ARGUMENTS = (
    "return_sequences",
    "return_state",
    "stateful",
    "go_backwards",
    "zero_output_for_mask",
    "seed",
)


class SequenceLayer(keras.layers.Layer):
    """A layer from sequences [B, T, p] to sequences, with a state and an exact cache.

    A subclass sets `output_units` in its constructor and `receptive_field`, which models read, and
    defines `state_units`, `get_config`, `_add_variables`, `_whole`, `_stream` and
    `_cache_of_state`; `state_is_exact` too, if it is not. A subclass that drops anything sets
    `seed_generator` last in its constructor, by `core.dropout.generator_for`.

    Arguments are checked and cast before they reach a subclass: sequences and states have the
    compute dtype, a mask is bool `[B, T]`, and the layer is built. B and T may be unknown or 0.

    A masked step is skipped, wherever it stands: what it holds, NaN too, reaches no output, no
    state, no cache and no gradient. `core.masks` has a way to do that for any causal layer: `pack`
    moves the valid steps of a row together, the layer runs over them, and `unpack` moves the
    outputs back. The output at a masked step is a copy of the output at the valid step before it,
    in a chunk of `stream` that of an earlier chunk, if the chunk opens with masked steps. Where no
    valid step has been, it is zero; a stream that begins from an `initial_state` may have the
    output of that state there. Keras's `zero_output_for_mask` is applied afterwards.

    Args:
        return_sequences: whether to return the output of every step or of the last one.
        return_state: whether to return the states too, those after the last valid step. A decoder,
            or the next window in training, can begin from them. A sequence continues from them as
            if it had not been cut only where `state_is_exact`.
        stateful: whether a batch continues, exactly, where the one before it stopped. Needs a
            static batch size.
        go_backwards: whether to process the sequence backwards and return it reversed.
        zero_output_for_mask: whether the output at a masked step is zero.
        seed: seed of the dropout masks.
        **kwargs: `name`, `dtype`, `trainable`, `activity_regularizer` of `keras.layers.Layer`.

    Attributes:
        input_units: the number of input channels, p; None before the layer is built.
        output_units: the number of channels of the output.
        receptive_field: the number of time steps that an output depends on; None: all of them.
        warns_of_state: whether the layer warns where a state that is not exact is handed on step
            by step. It does so once. A model sets it to False: it hands its states on as it was
            trained, from window to window, and generates by `stream`.
    """

    built: bool
    output_units: int
    seed_generator: keras.random.SeedGenerator | None

    def __init__(
        self,
        *,
        return_sequences: bool = False,
        return_state: bool = False,
        stateful: bool = False,
        go_backwards: bool = False,
        zero_output_for_mask: bool = False,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.return_sequences = bool(return_sequences)
        self.return_state = bool(return_state)
        self.stateful = bool(stateful)
        self.go_backwards = bool(go_backwards)
        self.zero_output_for_mask = bool(zero_output_for_mask)
        self.seed = seed
        self.input_units: Any = None
        self.supports_masking = True
        self.input_spec = keras.layers.InputSpec(ndim=3)
        self.warns_of_state = True
        self._past = CacheVariables()

    # What a family of layers defines

    @property
    def state_units(self) -> tuple[int, ...]:
        """The number of channels of each tensor of the state, at least one, all above 0.

        It is read once the layer is built, so that it may depend on `input_units`.
        """
        raise NotImplementedError

    @property
    def state_is_exact(self) -> bool:
        """Whether a sequence that is cut in two and continued from the state equals the whole.

        The cache is exact in any case.
        """
        return True

    def _add_variables(self, inputs: int) -> None:
        """Creates the variables by `add_weight`, and builds the layers that this one holds.

        It is called once. In mixed precision the variables have another dtype than the sequences.

        Args:
            inputs: the number of input channels, p; `input_units` has it too.
        """
        raise NotImplementedError

    def _whole(
        self,
        sequences: tf.Tensor,
        initial: State | None,
        mask: tf.Tensor | None,
        training: bool,
        stops: Sequence[int],
        kept: Number | None,
    ) -> tuple[tf.Tensor, State, Any]:
        """Runs whole sequences.

        Args:
            sequences: `[B, T, p]` in the compute dtype, with anything at the masked steps.
            initial: the states to the left, each `[B, units]` as `state_units` has them; None for
                those that `get_initial_state` returns.
            mask: bool `[B, T]`, true at the valid steps; None: all steps are valid.
            training: whether dropout is applied.
            stops: what `_stops` returned; empty for a layer without levels.
            kept: how many of the last outputs to return, an integer or a scalar; None for all. What
                only other outputs depend on need not be computed.

        Returns:
            The outputs `[B, T, output_units]`, or the last `kept` steps of them
            (`core.convolution.last_steps`), which are fewer where T is less. The states after the
            last valid step, a tuple of `[B, units]` each; a row without a valid step has its
            initial one. And one more result, None in a layer that has none. The class says what a
            masked step returns; before the first valid step that is zero also if there is an
            `initial`, as in an LSTM.
        """
        raise NotImplementedError

    def _stream(
        self, sequences: tf.Tensor, cache: Any, mask: tf.Tensor | None, training: bool
    ) -> tuple[tf.Tensor, Any]:
        """Continues sequences: chunks, however they are cut, equal one pass of `_whole`.

        Args:
            sequences: a chunk `[B, n, p]` in the compute dtype; n may be 0.
            cache: what the last call or `_cache_of_state` returned; it stays as it is. A user may
                give another, which `layers.inputs.check_cache` can refuse.
            mask: bool `[B, n]`, true at the valid steps; None: all steps are valid.
            training: whether dropout is applied; true only in a `stateful` layer.

        Returns:
            The outputs `[B, n, output_units]`. A masked step that opens the chunk repeats the last
            output of the chunk before: the cache has to hold that output, unless the rest of the
            cache gives it. And the next cache, of the same structure, shapes and dtypes; the row of
            it that has no valid step in the chunk is as it was.
        """
        raise NotImplementedError

    def _cache_of_state(self, state: State) -> Any:
        """Returns the cache before the first time step, with a state as left context.

        `_stream` from it computes what `_whole` computes with that state as `initial`. A cache of
        zeros is that of sequences which have not begun: `reset_state` writes one.

        Args:
            state: each `[B, units]`, as `state_units` has them.

        Returns:
            A nest (a tuple, best a named one) of tensors whose first axis is B. Its field `state`
            has the states after the last valid step, a tuple of `[B, units]` each; a cache without
            such a field is itself that tuple.
        """
        raise NotImplementedError

    def _stops(
        self, depth: int | None, auxiliary_every: int | None, auxiliary_from: str
    ) -> Sequence[int]:
        """Returns after how many levels outputs are collected, the auxiliary ones first.

        A layer without levels returns none, and refuses the arguments, as here.

        Args:
            depth: how many levels to run; None: all.
            auxiliary_every: as for `call`; None for no auxiliary outputs.
            auxiliary_from: as for `call`.
        """
        if depth is not None:
            raise ValueError(
                f"`depth` must be None: {type(self).__name__} has no number of levels to choose. "
                f"Received: depth={depth!r}"
            )
        if auxiliary_every is not None:
            raise ValueError(
                f"`auxiliary_every` must be None: {type(self).__name__} has no inner levels to "
                f"collect outputs after. Received: auxiliary_every={auxiliary_every!r}"
            )
        return []

    # Keras's protocol

    def build(
        self, sequences_shape: Sequence[int | None], initial_state_shape: Any = None
    ) -> None:
        """Creates the variables for sequences of shape [B, T, p]."""
        check_shape(self, sequences_shape)
        batch_size, _, inputs = sequences_shape
        self.input_spec = keras.layers.InputSpec(ndim=3, axes={-1: inputs})
        self.input_units = inputs
        self._add_variables(self.input_units)
        if self.stateful:
            with tf.init_scope():
                self._past.create(self.get_initial_cache(batch_size))

    def call(
        self,
        sequences: tf.Tensor | tf.RaggedTensor,
        initial_state: Sequence[tf.Tensor] | None = None,
        mask: tf.Tensor | None = None,
        training: bool = False,
        auxiliary_every: int | None = None,
        discard: int = 0,
        depth: int | None = None,
        auxiliary_from: str = "bottom",
    ) -> Any:
        """Runs the network, as `keras.layers.LSTM` does.

        Args:
            sequences: [B, T, p]; a ragged tensor counts as right padding. XLA cannot make a
                ragged tensor dense: `compile(..., jit_compile=False)` where Keras would use it.
            initial_state: the states, each [B, units], or [1, units] for all rows; None for zeros,
                or with `stateful` for the states after the last call. Unless `state_is_exact`, do
                not hand them on from step to step: generate by `stream`. A call over one known step
                with an `initial_state` warns once, except in training.
            mask: bool [B, T] or [B, T, 1], true at the valid steps.
            training: whether dropout is applied, and XLA may compile parts of a large network. A
                training loop of your own has to pass it, as for every Keras layer; `fit` does.
                Gradients are right without it too, but take more memory.
            auxiliary_every: n returns the outputs of every n-th level too, for deep supervision.
                Needs `return_sequences`, and a layer that has levels.
            discard: how many of the first outputs to leave out, 0 to T. Needs `return_sequences`.
                Keras attaches the mask of all T steps to the outputs: pass `mask[:, discard:]`
                to the layers that follow.
            depth: how many levels to run, 1 to the layer's `depth`; None: all. The result is that
                of a layer of this depth with the same weights. Needs a layer that has levels, and
                does not go with `stateful`.
            auxiliary_from: where `auxiliary_every` counts from. "bottom", as the released code:
                after n, 2n, ... levels, the last one included if n divides the depth. "top", as
                the paper's text: after depth - n, depth - 2n, ... levels. The lowest comes first.

        Returns:
            The outputs [B, T - discard, output_units], or [B, output_units] of the last step
            without `return_sequences`. More results make a tuple: the outputs; with
            `return_state` the states, each [B, units]; with `auxiliary_every` the auxiliary outputs
            [B, M, T - discard, output_units].

        Raises:
            ValueError: if an argument does not fit the layer or the sequences.
        """
        check_options(self, depth, auxiliary_every, discard)
        stops = self._stops(depth, auxiliary_every, auxiliary_from)
        sequences, mask = dense_sequences(self, sequences, mask)
        sequences, initial, mask = checked_tensors(self, sequences, initial_state, mask)
        if initial is not None and not (training or self.stateful):
            warn_of_state(self, sequences)
        if self.go_backwards:
            sequences = tf.reverse(sequences, axis=[1])
            mask = None if mask is None else tf.reverse(mask, axis=[1])
        kept = num_outputs(sequences, discard) if self.return_sequences else 1
        if self.stateful:
            begin = None if initial is None else self._cache_of_state(initial)
            outputs, states = self._past.advance(
                self._stream, begin, sequences, mask, training
            )
            outputs = last_steps(outputs, kept)
            further = None
        else:
            outputs, states, further = self._whole(
                sequences, initial, mask, training, stops, kept
            )
        valid = None if mask is None else last_steps(mask, kept)
        auxiliary = None if auxiliary_every is None else further
        return call_results(self, outputs, states, auxiliary, valid)

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
        stops = self._stops(depth, auxiliary_every, auxiliary_from)
        auxiliary = 0 if auxiliary_every is None else len(stops) - 1
        return call_shapes(self, sequences_shape, auxiliary, discard)

    def compute_output_spec(
        self,
        sequences: keras.KerasTensor,
        initial_state: Any = None,
        mask: Any = None,
        training: bool = False,
        auxiliary_every: int | None = None,
        discard: int = 0,
        depth: int | None = None,
        auxiliary_from: str = "bottom",
    ) -> Any:
        """Returns the symbolic results of `call` in a functional model."""
        check_symbols(self, sequences, initial_state)
        tensor = functools.partial(keras.KerasTensor, dtype=self.compute_dtype)
        shapes = self.compute_output_shape(
            sequences.shape,
            None,
            auxiliary_every,
            discard,
            depth,
            auxiliary_from,
        )
        return (
            tuple(map(tensor, shapes))
            if isinstance(shapes[0], tuple)
            else tensor(shapes)
        )

    def compute_mask(self, sequences: Any, mask: Any = None) -> Any:
        """Returns the mask of the outputs, that of the sequences; states have none.

        The mask of ragged sequences has their lengths. With `go_backwards` it is reversed, as the
        outputs are. An LSTM does not reverse it, so that it no longer fits the outputs.
        """
        return call_mask(self, sequences, mask)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return super().get_config() | {name: getattr(self, name) for name in _ARGUMENTS}

    # Whole sequences, and chunks

    def get_initial_state(self, batch_size: Number) -> list[tf.Tensor]:
        """Returns the state of no history, zeros: each `[B, units]`, as `state_units` has them.

        Args:
            batch_size: B, an integer or a scalar.
        """
        return [
            tf.zeros([batch_size, units], self.compute_dtype)
            for units in self.state_units
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
        depth: int | None = None,
        auxiliary_from: str = "bottom",
    ) -> tuple[tf.Tensor, State, Any]:
        """Runs the network over whole sequences and returns all results.

        It ignores `return_sequences`, `return_state`, `go_backwards` and `stateful`, and does not
        compute time steps that only discarded outputs depend on.

        Args:
            sequences: [B, T, p].
            initial_state: the states to the left of every level, each [B, units]; None for zeros.
            mask: bool [B, T], true at the valid steps.
            training: as for `call`.
            auxiliary_every: as for `call`.
            discard: how many of the first outputs to leave out, 0 to T.
            depth: as for `call`.
            auxiliary_from: as for `call`.

        Returns:
            The outputs [B, T - discard, output_units]; the states at the last valid step, each
            [B, units]; and one more result of the layer. For a `TrellisLayer` it is the auxiliary
            outputs [B, M, T - discard, output_units] or None; for an `EquilibriumTrellisLayer` the
            `Convergence`.

        Raises:
            ValueError: if an argument does not fit the layer or the sequences.
        """
        stops = self._stops(depth, auxiliary_every, auxiliary_from)
        sequences, initial, mask = checked_tensors(self, sequences, initial_state, mask)
        kept = num_outputs(sequences, discard)
        return self._whole(sequences, initial, mask, training, stops, kept)

    def get_initial_cache(
        self, batch_size: Number, initial_state: Sequence[tf.Tensor] | None = None
    ) -> Cache:
        """Returns the cache before the first time step.

        Args:
            batch_size: B.
            initial_state: the states to begin from, such as an encoder's: each [B, units], or
                [1, units] for all rows; None for those of no history. From their cache `stream`
                computes what one call with this `initial_state` does.

        Returns:
            A nest of tensors whose first axis is B, in the form that `stream` takes and returns.

        Raises:
            ValueError: the layer is not built, or the states do not fit it.
        """
        state = first_state(self, batch_size, initial_state)
        return self._cache_of_state(state)

    def stream(
        self, sequences: tf.Tensor, cache: Cache, mask: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, Cache]:
        """Continues sequences whose past is in `cache`; chunks equal one long pass.

        A chunk of one time step is how to generate: `stream` with one step is the step. If the
        graph knows that n is 1, it reads the hidden kernel about half as often.

        Args:
            sequences: the next steps, [B, n, p].
            cache: the result of the last call, or `get_initial_cache(B)`. It stays unchanged.
            mask: bool [B, n]; a masked step leaves the cache of its row unchanged.

        Returns:
            outputs [B, n, output_units] and the new cache. A masked step has the output before it;
            one that opens the chunk has the last output of the chunk before.
        """
        sequences, _, mask = checked_tensors(self, sequences, None, mask)
        return self._stream(sequences, cache, mask, training=False)

    # Statefulness

    @property
    def states(self) -> list[StateVariable] | None:
        """The state from which a stateful layer continues, as `keras.layers.LSTM.states`.

        `states[i].assign(value)` makes it continue from another state, as `initial_state` does.
        """
        if not (self.stateful and self.built):
            return None
        return [StateVariable(variable, self._restart) for variable in self._past.state]

    def _restart(self) -> None:
        """Drops the cache, except the state."""
        self._past.write(self._cache_of_state(state_of(self._past.read())))

    def reset_state(self) -> None:
        """Resets the cache of a stateful layer."""
        if self.stateful and self.built:
            self._past.reset()

    reset_states = reset_state  # its older name
