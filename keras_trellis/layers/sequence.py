"""`SequenceLayer`: what all sequence layers share.

It follows the protocol of `keras.layers.LSTM`: masks, ragged and reversed sequences, results,
statefulness. A family of layers adds its variables and its network.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_trellis.arguments import FullSignature
from keras_trellis.backend import current as backend
from keras_trellis.core import masks
from keras_trellis.core.convolution import last_steps
from keras_trellis.layers.hooks import Pass
from keras_trellis.layers.inputs import (
    check_rows,
    check_shape,
    check_symbols,
    checked_tensors,
    count_outputs,
    dense_sequences,
    first_state,
    warn_inexact_state,
)
from keras_trellis.layers.stateful import CacheVariables, Stateful
from keras_trellis.types import Number, State, Tensor

ARGUMENTS = (
    "return_sequences",
    "return_state",
    "stateful",
    "go_backwards",
    "zero_output_for_mask",
    "seed",
)
"""The arguments that all sequence layers have."""


class SequenceLayer(Stateful, keras.layers.Layer):
    """A layer from sequences `[B, T, p]` to sequences, with a state and an exact cache.

    A layer of your own derives from it and defines what `SequenceHooks` describes.

    A masked step is skipped, wherever it stands: what it holds, NaN too, reaches no output, no
    state, no cache and no gradient. Its output is a copy of the one at the valid step before it.
    Where no valid step has been, it is zero. `zero_output_for_mask` is applied afterwards.

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
        warns_of_state: whether the layer warns where a state that is not exact is handed on step
            by step. It does so once. A model sets it to False: it hands its states on as it was
            trained, from window to window, and generates by `stream`.
    """

    __signature__ = FullSignature()
    unroll = False

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
        self.input_units = None
        self.supports_masking = True
        self.input_spec = keras.layers.InputSpec(ndim=3)
        self.warns_of_state = True
        self._past = CacheVariables()

    # Keras's protocol

    def build(
        self, sequences_shape: Sequence[int | None], initial_state_shape: Any = None
    ) -> None:
        """Creates the variables for sequences of shape `[B, T, p]`."""
        check_shape(self, sequences_shape)
        batch_size: Any  # an integer for a stateful layer: it is checked
        batch_size, _, inputs = sequences_shape
        self.input_units = inputs
        self.add_variables(self.input_units)
        if self.stateful:
            self._past.create(functools.partial(self.get_initial_cache, batch_size))

    def call(
        self,
        sequences: Tensor,
        initial_state: Sequence[Tensor] | None = None,
        mask: Tensor | None = None,
        training: bool = False,
    ) -> Any:
        """Runs the network, as `keras.layers.LSTM` does.

        Args:
            sequences: `[B, T, p]`; a ragged tensor counts as right padding. XLA cannot make a
                ragged tensor dense: `compile(..., jit_compile=False)` where Keras would use it.
            initial_state: the states, each `[B, units]`, or `[1, units]` for all rows; None for
                zeros, or with `stateful` for the states after the last call. Unless
                `state_is_exact`, do not hand them on from step to step: generate by `stream`. A
                call over one known step with an `initial_state` warns once, except in training.
            mask: bool `[B, T]` or `[B, T, 1]`, true at the valid steps.
            training: whether dropout is applied, and XLA may compile parts of a large network. A
                training loop of your own has to pass it, as for every Keras layer; `fit` does.
                Gradients are right without it too, but take more memory.

        Returns:
            the outputs `[B, T, output_units]`, or `[B, output_units]` of the last step without
            `return_sequences`; with `return_state` a tuple of them and of the states, each
            `[B, units]`.

        Raises:
            ValueError: an argument does not fit the layer or the sequences.
        """
        return self._call_results(sequences, initial_state, mask, training)

    def _call_results(
        self,
        sequences: Tensor,
        initial_state: Sequence[Tensor] | None,
        mask: Tensor | None,
        training: bool,
        levels: Sequence[int] = (),
        discard: int = 0,
    ) -> Any:
        """Returns what a call returns.

        Args:
            sequences: as for `call`.
            initial_state: as for `call`.
            mask: as for `call`.
            training: as for `call`.
            levels: after how many levels outputs are collected, the auxiliary ones first.
            discard: how many of the first outputs to leave out.
        """
        sequences, mask = dense_sequences(self, sequences, mask)
        sequences, initial, mask = checked_tensors(self, sequences, initial_state, mask)
        check_rows(self, sequences.shape)
        if initial is not None and not (training or self.stateful):
            warn_inexact_state(self, sequences)
        if self.go_backwards:
            sequences = ops.flip(sequences, axis=1)
            if mask is not None:
                mask = ops.flip(mask, axis=1)
        num_outputs = count_outputs(sequences, discard) if self.return_sequences else 1
        if self.stateful:
            cache = self._past.read()
            if initial is not None:
                cache = self.cache_of_state(initial)
            outputs, cache = self.run_chunk(sequences, cache, mask, training)
            self._past.write(cache)
            outputs = last_steps(outputs, num_outputs)
            further = None
            states = self._state_in(cache)
        else:
            initial = self._begun(sequences, initial)
            request = Pass(initial, mask, training, levels, num_outputs)
            outputs, states, further = self.run(sequences, request)
        valid = None if mask is None else last_steps(mask, num_outputs)
        auxiliary = further if len(levels) > 1 else None
        return _call_results(self, outputs, states, auxiliary, valid)

    def _begun(self, sequences: Tensor, initial: State | None) -> State | None:
        """Returns the state that a pass over whole sequences begins from; None for zeros."""
        begins_at_zeros = (
            type(self).get_initial_state is SequenceLayer.get_initial_state
        )
        if initial is not None or begins_at_zeros:  # zeros cost less
            return initial
        return first_state(self, ops.shape(sequences)[0], None)

    def compute_output_shape(
        self, sequences_shape: Sequence[int | None], initial_state_shape: Any = None
    ) -> Any:
        """Returns the shape of what `call` returns."""
        return call_shapes(self, sequences_shape, auxiliary=0, discard=0)

    def compute_output_spec(
        self,
        sequences: keras.KerasTensor,
        initial_state: Any = None,
        mask: Any = None,
        training: bool = False,
        *options: Any,
        **named: Any,
    ) -> Any:
        """Returns the symbolic results of `call` in a functional model."""
        check_symbols(self, sequences, initial_state)
        tensor = functools.partial(keras.KerasTensor, dtype=self.compute_dtype)
        shapes = self.compute_output_shape(sequences.shape, None, *options, **named)
        if isinstance(shapes[0], tuple):
            return tuple(map(tensor, shapes))
        return tensor(shapes)

    def compute_mask(self, sequences: Any, mask: Any = None) -> Any:
        """Returns the mask of the outputs, that of the sequences; states have none.

        The mask of ragged sequences has their lengths. With `go_backwards` it is reversed, as the
        outputs are. An LSTM does not reverse it, so that it no longer fits the outputs.
        """
        return _call_mask(self, sequences, mask)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        config: dict[str, Any] = super().get_config()
        return config | {name: getattr(self, name) for name in ARGUMENTS}

    @property
    def variables(self) -> list[Any]:
        """All variables; on JAX and torch those of a `stateful` layer's cache too.

        They are not among the `weights`. A trainer on JAX hands on what it finds here.
        """
        if backend.NAME == "tensorflow":
            variables: list[Any] = super().variables
        else:
            variables = super().variables + self._past.variables
        return variables

    # Whole sequences, and chunks

    def get_initial_state(self, batch_size: Number) -> list[Tensor]:
        """Returns the state of no history, zeros: each `[B, units]`, as `state_units` has them.

        A layer of your own may begin with other numbers: all passes, caches and resets follow.

        Args:
            batch_size: B, an integer or a scalar.
        """
        return [
            ops.zeros([batch_size, units], self.compute_dtype)
            for units in self.state_units
        ]

    def propagate(
        self,
        sequences: Tensor,
        *,
        initial_state: Sequence[Tensor] | None = None,
        mask: Tensor | None = None,
        training: bool = False,
    ) -> tuple[Tensor, State, Any]:
        """Runs the network over whole sequences and returns all results.

        It ignores `return_sequences`, `return_state`, `go_backwards` and `stateful`.

        Args:
            sequences: `[B, T, p]`.
            initial_state: the states to begin from, each `[B, units]`; None for zeros.
            mask: bool `[B, T]`, true at the valid steps.
            training: as for `call`.

        Returns:
            the outputs `[B, T, output_units]`; the states at the last valid step, each
            `[B, units]`; and one more result of the layer, None if it has none. For an
            `EquilibriumTrellisLayer` it is the `Convergence`.

        Raises:
            ValueError: an argument does not fit the layer or the sequences.
        """
        sequences, initial, mask = checked_tensors(self, sequences, initial_state, mask)
        initial = self._begun(sequences, initial)
        return self.run(sequences, Pass(initial, mask, training))

    def get_initial_cache(
        self, batch_size: Number, initial_state: Sequence[Tensor] | None = None
    ) -> Any:
        """Returns the cache before the first time step.

        Args:
            batch_size: B.
            initial_state: the states to begin from, such as an encoder's: each `[B, units]`, or
                `[1, units]` for all rows; None for those of no history. From their cache `stream`
                computes what one call with this `initial_state` does.

        Returns:
            a nest of tensors whose first axis is B, in the form that `stream` takes and returns.

        Raises:
            ValueError: the layer is not built, or the states do not fit it.
        """
        state = first_state(self, batch_size, initial_state)
        return self.cache_of_state(state)

    def stream(
        self, sequences: Tensor, cache: Any, mask: Tensor | None = None
    ) -> tuple[Tensor, Any]:
        """Continues sequences whose past is in `cache`; chunks equal one long pass.

        A chunk of one time step is how to generate: `stream` with one step is the step. If the
        graph knows that n is 1, it reads the hidden kernel about half as often.

        Args:
            sequences: the next steps, `[B, n, p]`.
            cache: the result of the last call, or `get_initial_cache(B)`. It stays unchanged.
            mask: bool `[B, n]`; a masked step leaves the cache of its row unchanged.

        Returns:
            outputs `[B, n, output_units]` and the new cache. A masked step has the output before
            it; one that opens the chunk has the last output of the chunk before.
        """
        sequences, _, mask = checked_tensors(self, sequences, None, mask)
        return self.run_chunk(sequences, cache, mask, training=False)


def _call_results(
    layer: Any,
    outputs: Tensor,
    state: State,
    auxiliary: Tensor | None,
    mask: Tensor | None,
) -> Any:
    """Returns the outputs, or a tuple of all results that the layer returns.

    Args:
        layer: the layer.
        outputs: `[B, T, output_units]`.
        state: each `[B, units]`.
        auxiliary: the auxiliary outputs, `[B, M, T, output_units]`, or None.
        mask: the mask of the outputs, `[B, T]`, or None.
    """
    if mask is not None and layer.zero_output_for_mask:
        outputs = masks.zero_masked(outputs, mask)
        if auxiliary is not None:
            auxiliary = masks.zero_masked(auxiliary, mask[:, None])
    if not layer.return_sequences:  # zeros where there is no step
        (outputs,) = masks.last_valid((outputs,), None)
    results = [outputs]
    if layer.return_state:
        results += state
    if auxiliary is not None:
        results.append(auxiliary)
    if len(results) > 1:
        return tuple(results)
    return outputs


def call_shapes(
    layer: Any, sequences_shape: Sequence[int | None], auxiliary: int, discard: int
) -> tuple[Any, ...]:
    """Returns the shape of the outputs, or a tuple of the shapes of all results.

    Args:
        layer: the layer.
        sequences_shape: `[B, T, p]`.
        auxiliary: the number of auxiliary outputs, M; 0 for none.
        discard: how many of the first outputs are left out.
    """
    batch_size, time, _ = sequences_shape
    steps: list[int | None] = []
    if layer.return_sequences:
        steps = [None if time is None else time - discard]
    shapes = [(batch_size, *steps, layer.output_units)]
    if layer.return_state:
        shapes += [(batch_size, units) for units in layer.state_units]
    if auxiliary:
        shapes.append((batch_size, auxiliary, *steps, layer.output_units))
    if len(shapes) > 1:
        return tuple(shapes)
    return shapes[0]


def _call_mask(layer: Any, sequences: Any, mask: Any) -> Any:
    """Returns the mask of the outputs, that of the sequences; None for each state."""
    if isinstance(mask, (list, tuple)):
        mask = mask[0]
    outputs_mask = masks.steps_mask(sequences, mask) if layer.return_sequences else None
    if outputs_mask is not None and layer.go_backwards:
        outputs_mask = ops.flip(outputs_mask, axis=1)
    if not layer.return_state:
        return outputs_mask
    return [outputs_mask] + [None] * len(layer.state_units)


def deserialized(value: Any) -> Any:
    """Returns the layer of a config that `serialized` made; what is no dictionary is returned."""
    if not isinstance(value, dict):
        return value
    # Keras takes the cell out of the config that it reads.
    return keras.saving.deserialize_keras_object(copy.deepcopy(value))


def serialized(layer: keras.layers.Layer) -> dict[str, Any]:
    """Returns a part of a layer or a model for its config.

    Without the shapes that the part was built for: what it is part of builds it.
    """
    serialize = keras.saving.serialize_keras_object
    config: dict[str, Any] = _without_shapes(serialize(layer))
    return config


def _without_shapes(config: Any) -> Any:
    if isinstance(config, dict):
        entries = {
            name: value for name, value in config.items() if name != "build_config"
        }
        return {name: _without_shapes(value) for name, value in entries.items()}
    if isinstance(config, (list, tuple)):
        return [_without_shapes(entry) for entry in config]
    return config
