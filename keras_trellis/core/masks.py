"""Time masks: a masked step is skipped, wherever it stands.

The valid steps of a row are moved together to its left, the network runs over them as if they
had been alone, and its outputs are moved back. Causality makes this exact: no valid step reads
what stands to its right. So the network itself needs no mask.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from keras_trellis.types import State


def dense(sequences: Any, mask: Any = None) -> tuple[Any, Any]:
    """Pads ragged sequences on their right, [B, T, ...]; returns them and the mask of their steps.

    Other sequences and their mask are returned unchanged.
    """
    mask = of_steps(sequences, mask)
    return sequences.to_tensor() if isinstance(sequences, tf.RaggedTensor) else sequences, mask


def of_steps(sequences: Any, mask: Any = None) -> Any:
    """Returns the mask of sequences, false where ragged ones are padded, [B, T]; None for none.

    The mask may be ragged too, as an embedding of ragged ids makes it.
    """
    if isinstance(mask, tf.RaggedTensor):
        mask = mask.to_tensor()
    if not isinstance(sequences, tf.RaggedTensor):
        return mask
    present = tf.sequence_mask(sequences.row_lengths(), sequences.bounding_shape(axis=1))
    return present if mask is None else present & flat(mask)


def flat(mask: Any) -> tf.Tensor:
    """Returns a mask [B, T], or [B, T, 1] as some layers make it, as booleans [B, T]."""
    mask = tf.cast(mask, tf.bool)
    return tf.squeeze(mask, -1) if mask.shape.rank == 3 and mask.shape[-1] == 1 else mask


class Packing(NamedTuple):
    """How the valid steps of each row are moved together.

    Attributes:
        mask: the mask itself, bool [B, T].
        order: the step that moves to each place, valid ones first and in order, int32 [B, T].
        seen: the number of valid steps up to and including each step, int32 [B, T].
        count: the number of valid steps, int32 [B].
    """

    mask: tf.Tensor
    order: tf.Tensor
    seen: tf.Tensor
    count: tf.Tensor


def packing(mask: tf.Tensor | None) -> Packing | None:
    """Plans the packing of a mask [B, T] (true or non-zero: valid); None where there is no mask."""
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


def zero_masked(sequences: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Zeroes the masked steps of [B, T, C], NaN included."""
    return tf.where(tf.expand_dims(mask, -1), sequences, tf.zeros_like(sequences))


def pack(sequences: tf.Tensor, plan: Packing | None) -> tf.Tensor:
    """Moves the valid steps of [B, T, C] to the left and fills up with zeros."""
    if plan is None:
        return sequences
    return tf.gather(zero_masked(sequences, plan.mask), plan.order, axis=1, batch_dims=1)


def unpack(
    sequences: tf.Tensor, plan: Packing | None, before: tf.Tensor | None = None
) -> tf.Tensor:
    """Moves packed outputs [B, T, C] back; a masked step repeats the output before it.

    Args:
        sequences: the network's outputs over packed steps, [B, T, C].
        plan: the packing.
        before: the output at the steps before the first valid one, [B, C]; None for zeros.
    """
    if plan is None:
        return sequences
    if before is None:
        before = tf.zeros([tf.shape(sequences)[0], sequences.shape[-1]], sequences.dtype)
    return tf.gather(_prepend(before, sequences), plan.seen, axis=1, batch_dims=1)


def last_valid(state: State, plan: Packing | None, before: State) -> State:
    """Returns a state at the last valid step of each row.

    Args:
        state: over packed steps, each [B, T, C]; without packing its last step is enough.
        plan: the packing.
        before: the state of rows without a valid step, each [B, C].

    Returns:
        each [B, C].
    """
    pairs = list(zip(before, state, strict=True))
    if plan is None:
        return tuple(_prepend(first, each[:, -1:])[:, -1] for first, each in pairs)
    return tuple(
        tf.gather(_prepend(first, each), plan.count, axis=1, batch_dims=1) for first, each in pairs
    )


def _prepend(first: tf.Tensor, sequences: tf.Tensor) -> tf.Tensor:
    return tf.concat([tf.expand_dims(first, 1), sequences], axis=1)
