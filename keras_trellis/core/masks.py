"""Time masks: the network skips a masked time step, wherever it is.

`pack` moves the valid steps of a row to its left, the network runs over them, and `unpack` moves
the outputs back. This is exact, since the network is causal: no valid step reads a step to its
right. So the network itself needs no mask.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from keras_trellis.core.convolution import last_steps, pad_left, zero_rows
from keras_trellis.types import State


def dense(sequences: Any, mask: Any = None) -> tuple[Any, Any]:
    """Pads ragged sequences on the right, `[B, T, ...]`; returns them and their mask.

    Other sequences and their mask are returned unchanged.
    """
    mask = steps_mask(sequences, mask)
    if isinstance(sequences, tf.RaggedTensor):
        sequences = sequences.to_tensor()
    return sequences, mask


def steps_mask(sequences: Any, mask: Any = None) -> Any:
    """Returns the mask of sequences, `[B, T]`, false at the padding of ragged ones.

    It is None where there is no mask. `mask` may be ragged too: an embedding of ragged ids makes
    such masks.
    """
    if isinstance(mask, tf.RaggedTensor):
        mask = mask.to_tensor()
    if not isinstance(sequences, tf.RaggedTensor):
        return mask
    longest = sequences.bounding_shape(axis=1)
    present = tf.sequence_mask(sequences.row_lengths(), longest)
    if mask is None:
        return present
    return present & flat(mask)


def flat(mask: Any) -> tf.Tensor:
    """Returns a mask `[B, T]`, or `[B, T, 1]` as from some layers, as booleans `[B, T]`."""
    mask = tf.cast(mask, tf.bool)
    has_channel = mask.shape.rank == 3 and mask.shape[-1] == 1
    if has_channel:
        return tf.squeeze(mask, -1)
    return mask


class Packing(NamedTuple):
    """The plan by which `pack` moves the valid steps of each row.

    Attributes:
        mask: the mask itself, bool `[B, T]`.
        order: the step that moves to each place, the valid ones together, in order, int32 `[B, T]`.
        seen: the number of packed steps up to and including the last one that is valid so far,
            int32 `[B, T]`; 0 before the first one.
        count: the number of valid steps, int32 `[B]`.
    """

    mask: tf.Tensor
    order: tf.Tensor
    seen: tf.Tensor
    count: tf.Tensor


def packing(mask: tf.Tensor | None) -> Packing | None:
    """Plans the packing for a mask `[B, T]`, true or non-zero at valid steps; None for no mask."""
    if mask is None:
        return None
    mask = tf.cast(mask, tf.bool)
    valid = tf.cast(mask, tf.int32)
    return Packing(
        mask=mask,
        order=tf.argsort(1 - valid, axis=1, stable=True),
        seen=tf.cumsum(valid, axis=1),
        count=tf.reduce_sum(valid, axis=1),
    )


def packing_right(mask: tf.Tensor) -> tuple[Packing, tf.Tensor]:
    """Plans a packing that moves the valid steps to the right: all rows end together.

    Returns:
        the plan, and the mask of the packed steps.
    """
    mask = tf.cast(mask, tf.bool)
    valid = tf.cast(mask, tf.int32)
    count = tf.reduce_sum(valid, axis=1)
    seen = tf.cumsum(valid, axis=1)
    masked = tf.shape(valid)[1] - count[:, None]  # these come first
    plan = Packing(
        mask=mask,
        order=tf.argsort(valid, axis=1, stable=True),
        seen=tf.where(seen > 0, masked + seen, 0),
        count=count,
    )
    return plan, tf.gather(mask, plan.order, axis=1, batch_dims=1)


def zero_masked(sequences: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Sets the masked steps of `[B, T, C]` to zero, NaN included."""
    return tf.where(tf.expand_dims(mask, -1), sequences, 0)


def pack(sequences: tf.Tensor, plan: Packing | None) -> tf.Tensor:
    """Moves the valid steps of `[B, T, C]` together, and fills the rest with zeros."""
    if plan is None:
        return sequences
    valid = zero_masked(sequences, plan.mask)
    return tf.gather(valid, plan.order, axis=1, batch_dims=1)


def unpack(
    sequences: tf.Tensor, plan: Packing | None, before: tf.Tensor | None = None
) -> tf.Tensor:
    """Moves packed outputs `[B, T, C]` back; a masked step gets the output before it.

    Args:
        sequences: the network's outputs over packed steps, `[B, T, C]`.
        plan: the packing.
        before: the output at the steps before the first valid one, `[B, C]`; None for zeros.
    """
    if plan is None:
        return sequences
    if before is None:
        before = zero_rows(sequences, sequences.shape[-1])
    padded = _prepend(before, sequences)
    return tf.gather(padded, plan.seen, axis=1, batch_dims=1)


def last_valid(state: State, plan: Packing | None, before: State) -> State:
    """Returns a state at the last valid step of each row.

    Args:
        state: at packed steps, each `[B, T, C]`; without packing the last step is enough.
        plan: the packing.
        before: the state of rows without a valid step, each `[B, C]`.

    Returns:
        each `[B, C]`.
    """
    states = []
    for first, tensor in zip(before, state, strict=True):
        if plan is None:
            padded = _prepend(first, tensor[:, -1:])
            last = padded[:, -1]
        else:
            padded = _prepend(first, tensor)
            last = tf.gather(padded, plan.count, axis=1, batch_dims=1)
        states.append(last)
    return tuple(states)


def last_valid_steps(padded: tf.Tensor, width: int, plan: Packing | None) -> tf.Tensor:
    """Returns the last `width` valid steps of the past and the chunk together.

    Args:
        padded: `[B, width + T, C]`, the past and the chunk, whose valid steps stand first.
        width: the length of the past.
        plan: the chunk's packing; None where all its steps are valid.

    Returns:
        `[B, width, C]`.
    """
    if plan is None:
        return last_steps(padded, width)
    places = tf.expand_dims(plan.count, 1) + tf.range(width)
    return tf.gather(padded, places, axis=1, batch_dims=1)


def _prepend(first: tf.Tensor, sequences: tf.Tensor) -> tf.Tensor:
    return pad_left(tf.expand_dims(first, 1), sequences)
