"""`SequenceLayer`: what all sequence layers share.

It follows the protocol of `keras.layers.LSTM`: masks, ragged and reversed sequences, results,
statefulness. A family of layers adds its variables and its network.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from keras_trellis import arguments
from keras_trellis.core import masks
from keras_trellis.core.convolution import last_steps, time_steps, zeros
from keras_trellis.stateful import CacheVariables, StateVariable
from keras_trellis.types import Cache, State

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

    A subclass sets `output_units`, and defines `state_units`, `_add_variables`, `_whole`, `_stream`
    and `_cache_of_state`. A subclass that drops anything sets `seed_generator` last in its
    constructor, by `core.dropout.generator_for`.

    Args:
        return_sequences: whether to return the output of every step or of the last one.
        return_state: whether to return the states too.
        stateful: whether a batch continues, exactly, where the one before it stopped. Needs a
            static batch size.
        go_backwards: whether to process the sequence backwards and return it reversed.
        zero_output_for_mask: whether the output at a masked step is zero.
        seed: seed of the dropout masks.
        **kwargs: `name`, `dtype`, `trainable`, `activity_regularizer` of `keras.layers.Layer`.

    Attributes:
        output_units: the number of channels of the output.
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
        self.supports_masking = True
        self.input_spec = keras.layers.InputSpec(ndim=3)
        self._past = CacheVariables()

    # What a family of layers defines

    @property
    def state_units(self) -> tuple[int, ...]:
        """The number of channels of each tensor of the state."""
        raise NotImplementedError

    def _add_variables(self, inputs: int) -> None:
        """Creates the variables for sequences with this number of input channels."""
        raise NotImplementedError

    def _whole(
        self,
        sequences: tf.Tensor,
        initial: State | None,
        mask: tf.Tensor | None,
        training: bool,
        stops: Sequence[int],
        kept: int | tf.Tensor | None,
    ) -> tuple[tf.Tensor, State, Any]:
        """Runs whole sequences.

        Args:
            sequences: [B, T, p] in the compute dtype.
            initial: the states to the left, each [B, units]; None for zeros.
            mask: bool [B, T], or None.
            training: whether dropout is applied.
            stops: what `_stops` returned.
            kept: how many of the last outputs to return; None for all.

        Returns:
            What `propagate` returns.
        """
        raise NotImplementedError

    def _stream(
        self, sequences: tf.Tensor, cache: Any, mask: tf.Tensor | None, training: bool
    ) -> tuple[tf.Tensor, Any]:
        """Returns the outputs of a chunk [B, n, p], and the next cache."""
        raise NotImplementedError

    def _cache_of_state(self, state: State) -> Any:
        """Returns the cache before the first time step, with this state as left context."""
        raise NotImplementedError

    def _stops(self, auxiliary_every: int | None) -> Sequence[int]:
        """Returns after how many levels auxiliary outputs are collected."""
        if auxiliary_every is not None:
            raise ValueError(
                f"`auxiliary_every` must be None: {type(self).__name__} has no inner levels to "
                f"collect outputs after. Received: auxiliary_every={auxiliary_every!r}"
            )
        return []

    # Keras's protocol

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
        self._add_variables(inputs)
        if not self.stateful:
            return
        if sequences_shape[0] is None:
            raise ValueError(
                "With `stateful=True` the batch size must be static, as for keras.layers.LSTM. "
                f"Received: sequences of shape {tuple(sequences_shape)}"
            )
        with tf.init_scope():
            self._past.create(self.get_initial_cache(sequences_shape[0]))

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
                or with `stateful` for the states after the last call.
            mask: bool [B, T] or [B, T, 1], true at the valid steps.
            training: whether dropout is applied, and XLA may compile parts of a large network. A
                training loop of your own has to pass it, as for every Keras layer; `fit` does.
                Gradients are right without it too, but take more memory.
            auxiliary_every: n returns the outputs after the levels i with i % n == n - 1 too,
                for deep supervision. Needs `return_sequences`, and a layer that has levels.
            discard: how many of the first outputs to leave out, 0 to T. Needs `return_sequences`.
                Keras attaches the mask of all T steps to the outputs: pass `mask[:, discard:]`
                to the layers that follow.

        Returns:
            The outputs [B, T - discard, output_units], or [B, output_units] of the last step
            without `return_sequences`. More results make a tuple: the outputs; with
            `return_state` the states, each [B, units]; with `auxiliary_every` the auxiliary outputs
            [B, M, T - discard, output_units].

        Raises:
            ValueError: if an argument does not fit the layer or the sequences.
        """
        stops = self._checked_stops(auxiliary_every, discard)
        self._refuse_ragged_backwards(sequences)
        sequences, mask = masks.dense(sequences, mask)
        sequences, initial, mask = self._received(sequences, initial_state, mask)
        if self.go_backwards:
            sequences = tf.reverse(sequences, axis=[1])
            mask = None if mask is None else tf.reverse(mask, axis=[1])
        kept = _kept(sequences, discard) if self.return_sequences else 1
        further = None
        if self.stateful:
            outputs, states = self._go_on(sequences, initial, mask, training)
            outputs = last_steps(outputs, kept)
        else:
            outputs, states, further = self._whole(sequences, initial, mask, training, stops, kept)
        auxiliary = () if auxiliary_every is None else (further,)
        if mask is not None and self.zero_output_for_mask:
            valid = last_steps(mask, kept)
            outputs = masks.zero_masked(outputs, valid)
            auxiliary = tuple(masks.zero_masked(each, valid[:, None]) for each in auxiliary)
        if not self.return_sequences:  # zeros where there is no step
            nothing = zeros(outputs, 1, self.output_units)[:, 0]
            (outputs,) = masks.last_valid((outputs,), None, (nothing,))
        results = (outputs, *(states if self.return_state else ()), *auxiliary)
        return results if len(results) > 1 else outputs

    def compute_output_shape(
        self,
        sequences_shape: Sequence[int | None],
        initial_state_shape: Any = None,
        auxiliary_every: int | None = None,
        discard: int = 0,
    ) -> Any:
        """Returns the shape of what `call` returns."""
        stops = self._checked_stops(auxiliary_every, discard)
        batch, time = sequences_shape[:2]
        steps: tuple[int | None, ...] = ()
        if self.return_sequences:
            steps = (None if time is None else time - discard,)
        shapes = [(batch, *steps, self.output_units)]
        if self.return_state:
            shapes += [(batch, units) for units in self.state_units]
        if stops:
            shapes += [(batch, len(stops), *steps, self.output_units)]
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
        """Returns the symbolic results of `call` in a functional model."""
        shapes = self.compute_output_shape(
            sequences.shape, auxiliary_every=auxiliary_every, discard=discard
        )
        if not isinstance(shapes[0], tuple):
            return keras.KerasTensor(shapes, dtype=self.compute_dtype)
        return tuple(keras.KerasTensor(shape, dtype=self.compute_dtype) for shape in shapes)

    def compute_mask(self, sequences: Any, mask: Any = None) -> Any:
        """Returns the mask of the outputs, that of the sequences; states have none.

        The mask of ragged sequences has their lengths. With `go_backwards` it is reversed, as the
        outputs are. An LSTM does not reverse it, so that it no longer fits the outputs.
        """
        first = mask[0] if isinstance(mask, (list, tuple)) else mask
        output_mask = masks.of_steps(sequences, first) if self.return_sequences else None
        if output_mask is not None and self.go_backwards:
            output_mask = keras.ops.flip(output_mask, axis=1)
        return [output_mask, *[None] * len(self.state_units)] if self.return_state else output_mask

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return super().get_config() | {name: getattr(self, name) for name in _ARGUMENTS}

    # Whole sequences, and chunks

    def get_initial_state(self, batch_size: int | tf.Tensor) -> list[tf.Tensor]:
        """Returns the zero state: each [B, units]."""
        return [tf.zeros([batch_size, units], self.compute_dtype) for units in self.state_units]

    def propagate(
        self,
        sequences: tf.Tensor,
        *,
        initial_state: Sequence[tf.Tensor] | None = None,
        mask: tf.Tensor | None = None,
        training: bool = False,
        auxiliary_every: int | None = None,
        discard: int = 0,
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

        Returns:
            The outputs [B, T - discard, output_units]; the states at the last valid step, each
            [B, units]; and one more result of the layer. For a `TrellisLayer` it is the auxiliary
            outputs [B, M, T - discard, output_units], M = depth // auxiliary_every, or None; for an
            `EquilibriumTrellisLayer` the `Convergence`.

        Raises:
            ValueError: if an argument does not fit the layer or the sequences.
        """
        stops = self._stops(auxiliary_every)
        sequences, initial, mask = self._received(sequences, initial_state, mask)
        kept = _kept(sequences, discard)
        return self._whole(sequences, initial, mask, bool(training), stops, kept)

    def get_initial_cache(self, batch_size: int | tf.Tensor) -> Cache:
        """Returns the cache before the first time step."""
        if not hasattr(self, "_input_units"):
            raise ValueError(
                "The layer must be built before its cache is known: call it once, or "
                "`layer.build([None, None, p])`."
            )
        return self._cache_of_state(tuple(self.get_initial_state(batch_size)))

    def stream(
        self, sequences: tf.Tensor, cache: Cache, mask: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, Cache]:
        """Continues sequences whose past is in `cache`; chunks equal one long pass.

        If the graph knows that n is 1, it reads the hidden kernel about half as often.

        Args:
            sequences: the next steps, [B, n, p].
            cache: the result of the last call, or `get_initial_cache(B)`. It stays unchanged.
            mask: bool [B, n]; a masked step leaves the cache of its row unchanged.

        Returns:
            outputs [B, n, output_units] and the new cache.
        """
        sequences, _, mask = self._received(sequences, None, mask)
        return self._stream(sequences, cache, mask, training=False)

    # What goes in

    def _checked_stops(self, auxiliary_every: int | None, discard: int) -> Sequence[int]:
        """Returns after how many levels `call` collects auxiliary outputs."""
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
        return self._stops(auxiliary_every)

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

    def _received(
        self, sequences: Any, initial_state: Any, mask: Any
    ) -> tuple[tf.Tensor, State | None, tf.Tensor | None]:
        """Returns sequences and initial state in the compute dtype, and the mask `[B, T]`."""
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
        shape = sequences.shape[:2]
        mask = None if mask is None else masks.flat(mask)
        if mask is not None and not (mask.shape.rank == 2 and mask.shape.is_compatible_with(shape)):
            raise ValueError(
                f"`mask` must be of shape {shape.as_list()}, as the sequences. "
                f"Received: mask of shape {mask.shape}"
            )
        initial = None if initial_state is None else self._state(initial_state, sequences)
        return tf.cast(sequences, self.compute_dtype), initial, mask

    def _state(self, initial_state: Any, sequences: tf.Tensor) -> State:
        """Returns the initial state in the compute dtype, each [B, units]."""
        if not isinstance(initial_state, (list, tuple)):
            initial_state = [initial_state]
        states = tuple(tf.cast(state, self.compute_dtype) for state in initial_state)
        batch = sequences.shape[0]
        expected = [[batch, units] for units in self.state_units]
        fits = len(states) == len(expected) and all(
            # One row stands for all, as for an LSTM.
            state.shape.is_compatible_with(shape) or state.shape == [1, shape[1]]
            for state, shape in zip(states, expected, strict=True)
        )
        if not fits or any(state.shape.rank is None for state in states):
            raise ValueError(
                f"`initial_state` must be {len(expected)} tensor(s) of the shapes {expected}. "
                f"Received: initial_state of shapes {[state.shape.as_list() for state in states]}"
            )
        rows = tf.shape(sequences)[0]
        return tuple(
            tf.broadcast_to(state, [rows, state.shape[1]]) if state.shape[0] == 1 else state
            for state in states
        )

    # Statefulness

    def _go_on(
        self, sequences: tf.Tensor, initial: State | None, mask: tf.Tensor | None, training: bool
    ) -> tuple[tf.Tensor, State]:
        """Continues the batch before, or begins with an initial state."""
        cache = self._past.read()
        rows = self._past.state[0].shape[0]
        if sequences.shape[0] not in (None, rows):
            raise ValueError(
                "With `stateful=True` every batch must have the size that the layer was built "
                f"for, {rows}. Received: sequences of shape {tuple(sequences.shape)}"
            )
        if initial is not None:
            cache = self._cache_of_state(initial)
        outputs, cache = self._stream(sequences, cache, mask, training)
        self._past.write(cache)
        return outputs, cache.state

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
        self._past.write(self._cache_of_state(self._past.read().state))

    def reset_state(self) -> None:
        """Resets the cache of a stateful layer."""
        if self.stateful and self.built:
            self._past.reset()

    def reset_states(self) -> None:
        """The older name of `reset_state`."""
        self.reset_state()


def _kept(sequences: tf.Tensor, discard: int) -> int | tf.Tensor | None:
    """Returns how many of the last outputs are kept; None for all."""
    left_out = arguments.discard(discard, sequences.shape[1])
    return time_steps(sequences) - left_out if left_out else None
