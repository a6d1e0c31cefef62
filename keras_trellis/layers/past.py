"""The cache of recurrent layers, and how they go on from it.

The state of a recurrent layer is all that it needs of its past, so that cache and state are one
thing: a flat tuple of tensors `[B, units]`. Only a masked step, which repeats the output before it,
needs more where that output is no part of the state: then the cache has it at its end.
"""

from __future__ import annotations

import functools
from typing import Any

import keras
from keras import ops

from keras_trellis.backend import current as backend
from keras_trellis.core import masks
from keras_trellis.core.convolution import time_steps, zero_rows
from keras_trellis.core.recurrence import run_any_steps
from keras_trellis.layers.inputs import check_cache
from keras_trellis.layers.sequence import SequenceLayer
from keras_trellis.types import Number, State, Tensor

_CELLS = (keras.layers.LSTMCell, keras.layers.GRUCell, keras.layers.SimpleRNNCell)


class CellLayer(SequenceLayer):
    """A sequence layer over cells."""

    receptive_field = None

    @property
    def output_cell(self) -> Any:
        """The cell that makes the output."""
        raise NotImplementedError

    def run_steps(
        self, sequences: Tensor, state: State, valid: Tensor | None, *, training: bool
    ) -> tuple[Tensor, State]:
        """Runs the cells over time.

        Args:
            sequences: `[B, T, p]` with T >= 1.
            state: the state before the first step.
            valid: the mask of packed steps, bool `[B, T]`, or None.
            training: whether dropout is applied.

        Returns:
            the outputs `[B, T, units]`, and the state after the last valid step.
        """
        raise NotImplementedError

    def cache_of_state(self, state: State) -> State:
        """Returns the state, and with it an output of zero where a state does not show it."""
        if output_place(self.output_cell) is not None:
            return state
        return (*state, zero_rows(state[0], self.output_units))

    def run_chunk(
        self, sequences: Tensor, cache: State, mask: Tensor | None, training: bool
    ) -> tuple[Tensor, State]:
        """Continues sequences from a cache; see `SequenceHooks.run_chunk`."""
        state = checked(self, cache, ops.shape(sequences)[0])
        place = output_place(self.output_cell)
        before = state[-1 if place is None else place]
        if place is None:
            state = state[:-1]
        # The valid steps are moved together, so that cuDNN runs them too.
        plan = masks.packing(mask)
        packed = masks.pack(sequences, plan)
        valid = None
        if plan is not None:
            valid = masks.steps_until(plan.count, time_steps(packed))
        run = functools.partial(self.run_steps, training=bool(training))
        outputs, after = run_any_steps(run, packed, state, valid)
        # A loop over steps needs states of unchanging static shape.
        after = tuple(map(backend.with_static_shape, after, state))
        outputs = masks.unpack(outputs, plan, before)
        if place is None:
            after += masks.last_valid((outputs,), None, (before,))
        return outputs, after


def output_place(cell: Any) -> int | None:
    """Returns which tensor of the state is the output, counted from the end; None: none is."""
    if not getattr(cell, "output_is_state", type(cell) in _CELLS):
        return None
    return -len(keras.tree.flatten(cell.state_size))


def checked(layer: Any, cache: Any, rows: Number) -> State:
    """Returns the tensors of a cache in the compute dtype."""
    cache = tuple(keras.tree.flatten(cache))
    begun: Any = layer.get_initial_cache(rows)
    check_cache(cache, tuple(begun))
    return tuple(ops.cast(tensor, layer.compute_dtype) for tensor in cache)
