"""`RecurrentLayer`: recurrent layers in the place of a trellis network."""

from __future__ import annotations

import weakref
from collections.abc import MutableMapping, Sequence
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_trellis.arguments import constructor
from keras_trellis.layers.inputs import check_not_stateful
from keras_trellis.layers.past import CellLayer
from keras_trellis.layers.sequence import deserialized, serialized
from keras_trellis.types import Number, State, Tensor

MEANINGLESS = ("stateful", "go_backwards", "zero_output_for_mask")
"""Arguments of a layer that must be False: with one of them its outputs are no longer one for each
time step, in order, from its own call."""


class _Returns(NamedTuple):
    sequences: bool
    state: bool


_ALONE: MutableMapping[keras.layers.RNN, _Returns] = weakref.WeakKeyDictionary()
"""What each layer returned before it became a part, for one that becomes a part once more."""


@keras.saving.register_keras_serializable("keras_trellis")
class RecurrentLayer(CellLayer):
    """One or several of Keras's recurrent layers, as one layer that models are composed over.

        layer = keras_trellis.RecurrentLayer([keras.layers.LSTM(600), keras.layers.LSTM(400)])

    Each layer reads the outputs of the one before it. With `skip_input` it reads the input of the
    first layer too, as after `keras.layers.Concatenate()([outputs, inputs])`. Dropout, regularizers
    and initializers are those of the layers. `TrellisLM` and `TrellisClassifier` make one of these
    themselves when they are given Keras's layers.

    The state of a recurrent layer is all that it needs of its past. So cache and state are one
    thing here: a flat tuple of tensors `[B, units]`, layer by layer; (h, c) for an LSTM. Only where
    the output of a cell is not part of its state does the cache have one tensor more, the last
    output.

    Masks mean what they mean for `keras.layers.LSTM`: a masked step is skipped, wherever it is.
    In `stream` a masked step before all valid ones repeats the last output that the cache holds,
    where a call with an `initial_state` has zeros. Valid steps are moved together first, so that
    cuDNN runs them too.

    Args:
        layers: a `keras.layers.LSTM`, `GRU`, `SimpleRNN` or `RNN`, or a list of them.
        skip_input: whether the layers above the first read the input too.
        return_sequences: whether to return the output of every step or of the last one; None for
            what the last of the layers has.
        return_state: whether to return the states of all layers too; None for what the last of the
            layers has. Both attributes of the layers themselves become True: they are parts of
            this one, and no longer of another model.
        **kwargs: `go_backwards`, `zero_output_for_mask`, and `name`, `dtype`, `trainable`,
            `activity_regularizer` of `keras.layers.Layer`; the dtype policy is that of the layers
            unless it is given.

    Raises:
        ValueError: `layers` are not recurrent layers of one dtype policy, or they or this layer
            have an argument without meaning here, such as `stateful`.

    Input shape:
        `[B, T, p]`. `initial_state` is the states of all layers, each `[B, units]`, and `mask` is
        bool, `[B, T]`.

    Output shape:
        `[B, units]` of the last layer, or with `return_sequences` `[B, T, units]`. With
        `return_state` the result is a tuple: the outputs, then the states, layer by layer.

    Examples:
        >>> import keras
        >>> import numpy as np
        >>> import keras_trellis
        >>> layers = [keras.layers.LSTM(8), keras.layers.LSTM(4)]
        >>> layer = keras_trellis.RecurrentLayer(layers, return_sequences=True)
        >>> tuple(layer(np.ones([2, 10, 3], "float32")).shape)
        (2, 10, 4)
        >>> cache = layer.get_initial_cache(batch_size=2)
        >>> [tuple(tensor.shape) for tensor in cache]
        [(2, 8), (2, 8), (2, 4), (2, 4)]
    """

    @constructor
    def __init__(
        self,
        layers: keras.layers.RNN | Sequence[keras.layers.RNN],
        *,
        skip_input: bool = False,
        return_sequences: bool | None = None,
        return_state: bool | None = None,
        **kwargs: Any,
    ) -> None:
        listed = layers if isinstance(layers, (list, tuple)) else [layers]
        layers = [deserialized(layer) for layer in listed]
        _check(layers)
        if kwargs.get("dtype") is None:
            kwargs["dtype"] = layers[0].dtype_policy
        alone = [_returned_alone(layer) for layer in layers]
        if return_sequences is None:
            return_sequences = alone[-1].sequences
        if return_state is None:
            return_state = alone[-1].state
        super().__init__(
            return_sequences=return_sequences, return_state=return_state, **kwargs
        )
        check_not_stateful(self)
        self.layers, self.skip_input = layers, bool(skip_input)
        self.output_units = _output_units(layers[-1])
        for layer in layers:
            layer.return_sequences = layer.return_state = True

    @property
    def state_units(self) -> tuple[int, ...]:
        """The number of channels of each tensor of the state."""
        return tuple(tensor.shape[1] for tensor in self.get_initial_state(1))

    def get_initial_state(self, batch_size: Number) -> list[Tensor]:
        """Returns the state of no history: zeros `[B, units]`, unless a cell begins otherwise."""
        state: list[Tensor] = []
        for layer in self.layers:
            state += keras.tree.flatten(layer.get_initial_state(batch_size))
        return state

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        layers = [serialized(layer) for layer in self.layers]
        own = {"layers": layers, "skip_input": self.skip_input}
        return super().get_config() | own

    def add_variables(self, inputs: int) -> None:
        """Creates the variables for p = `inputs` channels."""
        read = inputs
        for layer in self.layers:
            if not layer.built:
                layer.build((None, None, read))
            read = _output_units(layer) + (inputs if self.skip_input else 0)

    @property
    def output_cell(self) -> Any:
        """The cell of the last layer."""
        return _cells(self.layers[-1])[-1]

    def run_steps(
        self, sequences: Tensor, state: State, valid: Tensor | None, *, training: bool
    ) -> tuple[Tensor, State]:
        """Runs the layers; see `CellLayer.run_steps`."""
        outputs = sequences
        ahead = list(state)
        after = []
        for number, layer in enumerate(self.layers):
            if number and self.skip_input:
                outputs = ops.concatenate([outputs, sequences], axis=-1)
            structure = layer.get_initial_state(1)
            size = len(keras.tree.flatten(structure))
            own = keras.tree.pack_sequence_as(structure, ahead[:size])
            del ahead[:size]
            outputs, *own = layer(
                outputs, initial_state=own, mask=valid, training=training
            )
            after += keras.tree.flatten(own)
        return outputs, tuple(after)


def _returned_alone(layer: keras.layers.RNN) -> _Returns:
    flags = _Returns(layer.return_sequences, layer.return_state)
    return _ALONE.setdefault(layer, flags)


def is_recurrent(value: Any) -> bool:
    """Returns whether a value is a layer over a cell, such as Keras's, or a sequence of them."""
    if not isinstance(value, (list, tuple)):
        value = [value]
    cells = [getattr(layer, "cell", None) for layer in value]
    return bool(cells) and all(hasattr(cell, "state_size") for cell in cells)


def _check(layers: list[Any]) -> None:
    if not is_recurrent(layers):
        raise ValueError(
            "`layers` must be a keras.layers.LSTM, GRU, SimpleRNN or RNN, or a list of them. "
            f"Received: layers={layers!r}"
        )
    for layer in layers:
        _check_dtype(layers[0].dtype_policy, layer)
        for name in MEANINGLESS:
            if getattr(layer, name):
                raise ValueError(
                    f"`layers` must have {name}=False. Received: {layer!r}"
                )


def _check_dtype(policy: keras.DTypePolicy, layer: keras.layers.RNN) -> None:
    # `RNN([cell, cell], dtype=...)` leaves the stack of cells with the default policy.
    for part in (layer, layer.cell, *_cells(layer)):
        if getattr(part, "dtype_policy", policy) != policy:
            raise ValueError(
                "`layers` and their cells must have one dtype policy. "
                f"Received: {policy.name} and {part.dtype_policy.name} of {part!r}"
            )


def _cells(layer: keras.layers.RNN) -> Sequence[Any]:
    cell = layer.cell
    is_stack = isinstance(cell, keras.layers.StackedRNNCells)
    cells: Sequence[Any] = cell.cells if is_stack else [cell]
    return cells


def _output_units(layer: keras.layers.RNN) -> int:
    size: int | None = getattr(layer.cell, "output_size", None)
    if size is None:
        size, *_ = keras.tree.flatten(layer.cell.state_size)
    return size
