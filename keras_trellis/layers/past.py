"""The cache of recurrent layers, and how they go on from it.

The state of a recurrent layer is all that it needs of its past, so that cache and state are one
thing: a flat tuple of tensors `[B, units]`. Only a masked step, which repeats the output before it,
needs more where that output is no part of the state: then the cache has it at its end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import keras
from keras import ops

from keras_trellis.backend import current as backend
from keras_trellis.core import masks, no_steps
from keras_trellis.core.convolution import time_steps, zero_rows
from keras_trellis.layers.inputs import check_cache
from keras_trellis.types import Number, State, Tensor

Run: TypeAlias = Callable[[Tensor, State, Tensor | None], tuple[Tensor, State]]
"""From sequences `[B, T, p]` with T >= 1, a state, and the mask of packed steps or None, to the
outputs `[B, T, units]` and the state after the last valid step."""

_CELLS = (keras.layers.LSTMCell, keras.layers.GRUCell, keras.layers.SimpleRNNCell)


def output_place(cell: Any) -> int | None:
    """Returns which tensor of the state is the output, counted from the end; None: none is."""
    if not getattr(cell, "output_is_state", type(cell) in _CELLS):
        return None
    return -len(keras.tree.flatten(cell.state_size))


def begin(state: State, cell: Any, units: int) -> State:
    """Returns the cache before the first step.

    Args:
        state: the state to begin from.
        cell: the cell that makes the output.
        units: the number of channels of an output.
    """
    if output_place(cell) is not None:
        return state
    return (*state, zero_rows(state[0], units))


def stream(
    layer: Any,
    cell: Any,
    run: Run,
    sequences: Tensor,
    cache: Any,
    mask: Tensor | None,
) -> tuple[Tensor, State]:
    """Continues sequences whose past is in `cache`.

    Args:
        layer: the layer, whose `get_initial_cache` makes such caches.
        cell: the cell that makes its output.
        run: runs the layer.
        sequences: the next steps, `[B, n, p]`.
        cache: the past.
        mask: bool `[B, n]`, or None.

    Returns:
        outputs `[B, n, units]` and the next cache.
    """
    state = checked(layer, cache, ops.shape(sequences)[0])
    place = output_place(cell)
    before = state[-1 if place is None else place]
    if place is None:
        state = state[:-1]
    # The valid steps are moved together, so that cuDNN runs them too.
    plan = masks.packing(mask)
    packed = masks.pack(sequences, plan)
    valid = None
    if plan is not None:
        valid = masks.steps_until(plan.count, time_steps(packed))
    outputs, after = no_steps.run(run, packed, state, valid)
    # A loop over steps needs states of unchanging static shape.
    after = tuple(map(backend.with_static_shape, after, state))
    outputs = masks.unpack(outputs, plan, before)
    if place is None:
        after += masks.last_valid((outputs,), None, (before,))
    return outputs, after


def checked(layer: Any, cache: Any, rows: Number) -> State:
    """Returns the tensors of a cache in the compute dtype."""
    cache = tuple(keras.tree.flatten(cache))
    begun: Any = layer.get_initial_cache(rows)
    check_cache(cache, tuple(begun))
    return tuple(ops.cast(tensor, layer.compute_dtype) for tensor in cache)
