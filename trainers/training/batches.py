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
    rest = iter(batches)
    first = next(rest)
    specs = tf.nest.map_structure(_any_size, first)
    # The first one is drawn once for its types. A pipeline calls the function once, too.
    dataset = tf.data.Dataset.from_generator(
        lambda: itertools.chain([first], rest), output_signature=specs
    )
    return dataset.prefetch(1)


def _any_size(part: Any) -> tf.TensorSpec:
    """Returns the spec of a part of a batch; the last batch of an epoch may be a smaller one."""
    import tensorflow as tf

    tensor = tf.convert_to_tensor(part)
    # The trainer compiles its steps for the shape of the batch that it draws first.
    return tf.TensorSpec([None] * tensor.shape.rank, tensor.dtype)
