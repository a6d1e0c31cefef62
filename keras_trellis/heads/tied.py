"""One softmax over the whole vocabulary."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_trellis.heads.head import (
    Head,
    broadcast_targets,
    dense_logits,
    require_tied_sizes,
    where_known,
)
from keras_trellis.types import Tensor


@keras.saving.register_keras_serializable("keras_trellis")
class TiedSoftmax(Head):
    """One softmax over the whole vocabulary, with the embedding's word vectors.

    `logits = features table^T + bias`. The only variable is `bias [V]`, initially zero. The product
    runs in the features' dtype, everything after it in at least float32.

    A target outside [0, V) is an error of TensorFlow on a CPU. On JAX, on an accelerator and under
    XLA its nll is NaN.

    Source: Bai et al. (2019), section 5 (tied weights, after Press and Wolf, 2017).

    Args:
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.

    Input shape:
        features `[..., E]`, and the table of word vectors, `[V, E]`.

    Output shape:
        `[..., V]`.

    Examples:
        >>> import numpy as np
        >>> from keras_trellis.heads import TiedSoftmax
        >>> head = TiedSoftmax()
        >>> features, table = np.ones([2, 5, 8], "float32"), np.ones([50, 8], "float32")
        >>> tuple(head(features, table).shape)
        (2, 5, 50)
    """

    def build(self, features_shape: tuple, table_shape: tuple) -> None:
        """Creates `bias [V]`; features must have as many channels as the table."""
        require_tied_sizes("A tied softmax", features_shape, table_shape)
        self.bias = self._add_bias(table_shape[0])

    def logits(self, features: Tensor, table: Any, training: bool = False) -> Tensor:
        """Returns unnormalised logits `[..., V]` in at least float32."""
        return dense_logits(features, table, self.bias)

    def log_probs(self, features: Tensor, table: Any, training: bool = False) -> Tensor:
        """Returns log-probabilities `[..., V]` in at least float32."""
        return ops.log_softmax(self.logits(features, table, training))

    def nll(
        self, features: Tensor, targets: Tensor, table: Any, training: bool = False
    ) -> Tensor:
        """Returns the negative log-likelihood of each target; see `Head.nll`."""
        targets = broadcast_targets(targets, features)
        logits = self.logits(features, table, training)
        nll = ops.sparse_categorical_crossentropy(targets, logits, from_logits=True)
        nll = ops.cast(nll, logits.dtype)  # JAX with 64 bits makes it float64
        return where_known(nll, targets, logits.shape[-1])
