"""Which loop over time runs a cell: the engine's on TensorFlow, the plain one elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keras_trellis.backend import current as backend
from keras_trellis.core import recurrence
from keras_trellis.core.recurrence import Recurrent, Step
from keras_trellis.types import State, Tensor

if TYPE_CHECKING or backend.NAME == "tensorflow":
    from keras_trellis.engine import recurrence as engine
    from keras_trellis.engine.recurrence_blocks import recur_recomputing


def recur(
    step: Step,
    recurrent: Recurrent,
    inputs: State,
    state: State,
    units: int,
    *,
    training: bool,
    unroll: bool = False,
    recompute: bool = False,
) -> tuple[Tensor, State]:
    """Runs a cell over time; see `core.recurrence.recur`.

    Args:
        step: as there, and so are the next three.
        recurrent: what the state meets.
        inputs: what was computed before.
        state: the state at the beginning.
        units: the number of channels of an output.
        training: whether it is a training step.
        unroll: whether there is no loop; TensorFlow has one in training all the same.
        recompute: whether a training step saves memory.
    """
    recompute = recompute and training
    if backend.NAME != "tensorflow":
        return recurrence.recur(
            step, recurrent, inputs, state, unroll=unroll, recompute=recompute
        )
    arguments = (step, recurrent, inputs, state, units)
    if recompute:
        return recur_recomputing(*arguments)
    return engine.recur(*arguments, training=training, unroll=unroll)
