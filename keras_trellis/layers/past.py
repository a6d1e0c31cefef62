"""The cache of recurrent layers, and how they go on from it.

The state of a recurrent layer is all that it needs of its past, so that cache and state are one
thing: a flat tuple of tensors `[B, units]`. Only a masked step, which repeats the output before it,
needs more where that output is no part of the state: then the cache has it at its end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import keras
import tensorflow as tf

from keras_trellis.core import masks
from keras_trellis.core.convolution import time_steps, zero_rows
from keras_trellis.engine import no_steps
from keras_trellis.engine.depth_loop import with_static_shape
from keras_trellis.layers.inputs import check_cache
from keras_trellis.types import State

Run: TypeAlias = Callable[[tf.Tensor, State, tf.Tensor | None], tuple[tf.Tensor, State]]
"""From sequences `[B, T, p]` with T >= 1, a state, and the mask of packed steps or None, to the
outputs `[B, T, units]` and the state after the last valid step."""

_CELLS = (keras.layers.LSTMCell, keras.layers.GRUCell, keras.layers.SimpleRNNCell)


def output_place(cell: Any) -> int | None:
    """Returns which tensor of the state is the output, counted from the end; None: none is."""
    if not getattr(cell, "output_is_state", type(cell) in _CELLS):
        return None
    return -len(tf.nest.flatten(cell.state_size))


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
    sequences: tf.Tensor,
    cache: Any,
    mask: tf.Tensor | None,
) -> tuple[tf.Tensor, State]:
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
    state = checked(layer, cache, tf.shape(sequences)[0])
    place = output_place(cell)
    before = state[-1 if place is None else place]
    if place is None:
        state = state[:-1]
    outputs, state = run_valid(run, sequences, state, mask, before)
    if place is None:
        state += masks.last_valid((outputs,), None, (before,))
    return outputs, state


def run_valid(
    run: Run,
    sequences: tf.Tensor,
    state: State,
    mask: tf.Tensor | None,
    before: tf.Tensor | None = None,
) -> tuple[tf.Tensor, State]:
    """Runs a layer over the valid steps; a masked one has the output before it.

    The valid steps are moved together first, so that cuDNN runs them too.

    Args:
        run: runs the layer.
        sequences: `[B, T, p]`, of any number of steps.
        state: the state before the first step.
        mask: bool `[B, T]`, or None.
        before: the output before the first step, `[B, units]`; None for zeros.

    Returns:
        outputs `[B, T, units]` and the state after the last valid step.
    """
    plan = masks.packing(mask)
    packed = masks.pack(sequences, plan)
    valid = None
    if plan is not None:
        valid = tf.sequence_mask(plan.count, time_steps(packed))
    outputs, after = no_steps.run(run, packed, state, valid)
    # A loop over steps needs states of unchanging static shape.
    after = tuple(map(with_static_shape, after, state))
    return masks.unpack(outputs, plan, before), after


def checked(layer: Any, cache: Any, rows: tf.Tensor) -> State:
    """Returns the tensors of a cache in the compute dtype."""
    cache = tuple(tf.nest.flatten(cache))
    begun: Any = layer.get_initial_cache(rows)
    check_cache(cache, tuple(tensor.shape for tensor in begun))
    return tuple(tf.cast(tensor, layer.compute_dtype) for tensor in cache)
