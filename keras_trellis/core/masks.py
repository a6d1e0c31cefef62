"""Time masks: a masked step is skipped, wherever it stands.

The valid steps of a row are moved together to its left, the network runs over them as if they
had been alone, and its outputs are moved back. Causality makes this exact: what stands to the
right of the valid steps reaches none of them. No mask is needed inside the network.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf


def dense(sequences: Any, mask: Any = None) -> tuple[Any, Any]:
    """Returns ragged sequences padded on their right, [B, T, ...], and the mask of their steps.

    Others, and the mask where there is none, are returned as they are.
    """
    mask = of_steps(sequences, mask)
    return sequences.to_tensor() if isinstance(sequences, tf.RaggedTensor) else sequences, mask


def of_steps(sequences: Any, mask: Any = None) -> Any:
    """Returns the mask of sequences and of what ragged ones are padded with, [B, T]; None for none.

    A mask may be ragged as well, as that of an embedding of ragged ids is.
    """
    if isinstance(mask, tf.RaggedTensor):
        mask = mask.to_tensor()
    if not isinstance(sequences, tf.RaggedTensor):
        return mask
    present = tf.sequence_mask(sequences.row_lengths(), sequences.bounding_shape(axis=1))
    return present if mask is None else present & flat(mask)


def flat(mask: Any) -> tf.Tensor:
    """Returns a mask [B, T] or, as some layers make them, [B, T, 1] as booleans [B, T]."""
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


def packing(mask: tf.Tensor) -> Packing:
    """Plans the packing of a mask [B, T] (true or non-zero: valid)."""
    mask = tf.cast(mask, tf.bool)
    valid = tf.cast(mask, tf.int32)
    return Packing(
        mask=mask,
        order=tf.argsort(1 - valid, axis=1, stable=True),
        seen=tf.cumsum(valid, axis=1),
        count=tf.reduce_sum(valid, axis=1),
    )


def zero_masked(sequences: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Zeroes the masked steps of [B, T, C]; whatever stood there, NaN included, is gone."""
    return tf.where(tf.expand_dims(mask, -1), sequences, tf.zeros_like(sequences))


def pack(sequences: tf.Tensor, plan: Packing) -> tf.Tensor:
    """Moves the valid steps of [B, T, C] to the left and fills up with zeros."""
    return tf.gather(zero_masked(sequences, plan.mask), plan.order, axis=1, batch_dims=1)


def unpack(sequences: tf.Tensor, plan: Packing, before: tf.Tensor) -> tf.Tensor:
    """Moves packed outputs [B, T, C] back; a masked step repeats the output before it.

    Args:
        sequences: the network's outputs over packed steps, [B, T, C].
        plan: the packing.
        before: what a step before the first valid one gets, [B, C].
    """
    return tf.gather(_prepend(before, sequences), plan.seen, axis=1, batch_dims=1)


def last_valid(sequences: tf.Tensor, plan: Packing | None, before: tf.Tensor) -> tf.Tensor:
    """Returns the last valid step [B, C] of packed [B, T, C], or `before` where there is none."""
    if plan is None:
        return _prepend(before, sequences[:, -1:])[:, -1]
    return tf.gather(_prepend(before, sequences), plan.count, axis=1, batch_dims=1)


def _prepend(first: tf.Tensor, sequences: tf.Tensor) -> tf.Tensor:
    return tf.concat([tf.expand_dims(first, 1), sequences], axis=1)
