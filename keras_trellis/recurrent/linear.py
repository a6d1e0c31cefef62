"""Layers whose state is a first-order linear recurrence, c = f * c' + x with h = o * c.

No gate reads the state. So f, o and x are there for all steps before. Where a state enters its own
gates, if only element by element as in the `SRU`, the recurrence is not linear.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from keras import ops

from keras_trellis.backend import current as backend
from keras_trellis.core import masks
from keras_trellis.core.convolution import at_least_float32, swapped, where
from keras_trellis.core.recurrence import Step
from keras_trellis.recurrent.steps import t_lstm
from keras_trellis.types import State, Tensor

if TYPE_CHECKING or backend.NAME == "tensorflow":
    from keras_trellis.engine.linear_recurrence import solve


def is_solved(step: Step, steps: int | None, *, training: bool, unroll: bool) -> bool:
    """Returns whether `run` computes a cell; otherwise a loop over its steps does.

    On JAX the loop is faster, and on torch for wide states and short sequences.

    Args:
        step: one step of the cell.
        steps: T, if it is known.
        training: whether it is a training step.
        unroll: whether there is no loop at inference.
    """
    if backend.NAME != "tensorflow" or step is not t_lstm:
        return False
    return training or not (unroll or steps == 1)


def run(
    now: State, valid: Tensor | None, state: State, *, training: bool
) -> tuple[Tensor, State]:
    """Runs a cell of `steps.t_lstm` over time.

    Args:
        now: f, o and x, each `[T, B, n]`.
        valid: bool `[B, T]`; at another step the state stays, and the output before it is
            repeated, at first zeros. None: all steps are valid.
        state: c before the first step, `[B, n]`.
        training: whether it is a training step.

    Returns:
        the outputs `[T, B, n]`, and c after the last step.
    """
    keep, read, written = now
    (cell,) = state
    if valid is not None:
        is_valid = ops.expand_dims(swapped(valid), -1)
        keep = where(is_valid, keep, 1)
        written = where(is_valid, written, 0)
    exact = map(at_least_float32, (keep, written, cell))
    cells = ops.cast(solve(*exact, training=training), cell.dtype)
    outputs = read * cells
    if valid is not None:
        plan = masks.packing(valid)
        outputs = swapped(masks.unpack(masks.pack(swapped(outputs), plan), plan))
    return outputs, (cells[-1],)
