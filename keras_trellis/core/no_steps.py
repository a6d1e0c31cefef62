"""Sequences without a time step, where a loop over time needs one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from keras import ops

from keras_trellis.core.convolution import time_steps, zeros
from keras_trellis.types import State, Tensor


def run(
    loop: Callable[[Tensor, State, Any], tuple[Tensor, State]],
    sequences: Tensor,
    state: State,
    mask: Tensor | None,
) -> tuple[Tensor, State]:
    """Runs a loop over time. Without a step there are no outputs, and the state stays.

    Args:
        loop: from sequences `[B, T, p]` with T >= 1, a state and a mask to the outputs and the
            state after the last step.
        sequences: `[B, T, p]`.
        state: the state before the first step, each `[B, channels]`.
        mask: bool `[B, T]`, or None.

    Returns:
        the outputs `[B, T, channels]` and the state after the last step.
    """
    if sequences.shape[1]:
        return loop(sequences, state, mask)
    time = time_steps(sequences)
    is_empty = ops.equal(time, 0)
    # A length that is known stays known: an array of JAX has no other.
    missing = 1 if sequences.shape[1] == 0 else ops.cast(is_empty, "int32")
    more = zeros(sequences, missing, sequences.shape[-1])
    sequences = ops.concatenate([sequences, more], axis=1)
    if mask is not None:
        mask = ops.pad(mask, [[0, 0], [0, missing]])
    outputs, after = loop(sequences, state, mask)
    # The step that was put in is a row of zeros, which would still change the state.
    pairs = zip(state, after, strict=True)
    return outputs[:, :time], tuple(ops.where(is_empty, *pair) for pair in pairs)
