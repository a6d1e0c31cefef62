"""The batches of a run, as a task gives them and as the loop reads them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tensorflow as tf

Batches = Iterable[Any]
"""Batches in order, read once: nests of NumPy arrays or of the backend's tensors. The first
dimension of each part is the global batch."""


def as_dataset(batches: Batches) -> tf.data.Dataset:
    """Returns batches as TensorFlow's pipelines have them; what is one already stays as it is.

    Args:
        batches: at least one, alike in types and in ranks.
    """
    import tensorflow as tf  # here, as trainers.reproduce has none

    if isinstance(batches, tf.data.Dataset):
        return batches

    def any_size(part: Any) -> tf.TensorSpec:
        tensor = tf.convert_to_tensor(part)
        # The last batch of an epoch may be a smaller one, and the trainer compiles its steps for
        # the shape of the batch that it draws first.
        return tf.TensorSpec([None] * tensor.shape.rank, tensor.dtype)

    rest = iter(batches)
    first = next(rest)
    # The first one is drawn once for its types. A pipeline calls the function once, too.
    dataset = tf.data.Dataset.from_generator(
        lambda: itertools.chain([first], rest),
        output_signature=tf.nest.map_structure(any_size, first),
    )
    return dataset.prefetch(1)
