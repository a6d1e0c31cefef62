"""Gradients that are clipped together."""

from collections.abc import Sequence

import tensorflow as tf


def clip_by_global_norm(
    gradients: Sequence[tf.Tensor], clip_norm: float | None
) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Scales gradients down to a global norm: g * min(1, clip_norm / (norm + 1e-6)).

    Args:
        gradients: dense tensors.
        clip_norm: the largest norm; None keeps the gradients as they are.

    Returns:
        the clipped gradients, and the norm before clipping.
    """
    norm = tf.linalg.global_norm(gradients)
    if clip_norm is None:
        return list(gradients), norm
    scale = tf.minimum(tf.ones_like(norm), clip_norm / (norm + 1e-6))
    return [gradient * tf.cast(scale, gradient.dtype) for gradient in gradients], norm
