"""The interface of heads, functions that they share, and the plain softmax."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_trellis.backend import current as backend
from keras_trellis.core import checks
from keras_trellis.core.convolution import at_least_float32
from keras_trellis.types import Number, Tensor


class Head(keras.layers.Layer):
    """The interface of all heads: a head turns features into log-probabilities of tokens.

    A new head implements `build` and `log_probs`. Override `nll` if the nll of given targets costs
    less than the whole distribution. Override `logits` if the head has unnormalised logits; by
    default it returns the log-probabilities, which serve `from_logits=True` as well.

    All time steps of a sequence share the mask that a head draws in training. The time steps are
    the last axis but one of the features.

    `keras_trellis.heads.NAMES` registers heads by name. Decorate a head by
    `keras.saving.register_keras_serializable` to save it with its model.

    Args:
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.
    """

    _taken = False

    def take(self) -> None:
        """Claims the head for one model, which then trains its variables.

        Raises:
            ValueError: another model has claimed it.
        """
        if self._taken:
            raise ValueError(
                "`head` must belong to one model, which trains its variables: make a head for "
                f"each model. Received: head={self.name!r}, which another model has"
            )
        self._taken = True

    def build(self, features_shape: tuple, table_shape: tuple) -> None:
        """Creates the variables.

        Args:
            features_shape: `[..., E]`; the last size is known.
            table_shape: `[V, E']`, of the word vectors.
        """

    def log_probs(self, features: Tensor, table: Any, training: bool = False) -> Tensor:
        """Returns log-probabilities `[..., V]` for features `[..., E]` and a table `[V, E']`."""
        raise NotImplementedError

    def logits(self, features: Tensor, table: Any, training: bool = False) -> Tensor:
        """Returns logits `[..., V]`; their softmax is the distribution."""
        return self.log_probs(features, table, training)

    def nll(
        self, features: Tensor, targets: Tensor, table: Any, training: bool = False
    ) -> Tensor:
        """Returns the negative log-likelihood of each target.

        Args:
            features: `[..., E]`.
            targets: integers in [0, V), of the shape `features.shape[:-1]`. Axes between the first
                and the last may be 1: levels `[B, M, T, E]` share targets `[B, 1, T]`.
            table: `[V, E']`.
            training: whether to apply the head's dropout.

        Returns:
            `[...]`, in nats.

        Raises:
            ValueError: the targets have another shape.
        """
        targets = broadcast_targets(targets, features)
        log_probs = self.log_probs(features, table, training)
        words = checks.sizes(log_probs)[-1]
        rows = ops.reshape(log_probs, [-1, words])
        places = ops.reshape(targets, [-1, 1])
        picked = backend.gather_steps(rows, places)
        nll = -ops.reshape(picked, checks.sizes(targets))
        # For a target outside the vocabulary, a GPU, XLA and JAX gather a value from another place.
        return where_known(nll, targets, words)

    def call(self, features: Tensor, table: Any, training: bool = False) -> Tensor:
        """Returns `logits`."""
        return self.logits(features, table, training)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        # Keras requires this method if a constructor gets a dtype policy.
        return super().get_config()

    def _add_bias(self, words: int) -> keras.Variable:
        """Adds `bias [V]`, zero at the start."""
        # Not autocast: the softmax adds the bias in its own precision, which is never half.
        return self.add_weight(
            name="bias",
            shape=(words,),
            initializer="zeros",
            autocast=False,
        )


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


def broadcast_targets(targets: Any, features: Tensor) -> Tensor:
    """Returns one target for each position: integers of the shape `features.shape[:-1]`.

    Raises:
        ValueError: the targets have another shape; axes between the first and the last may be 1.
            If a graph does not know the shapes, TensorFlow refuses another number of targets.
    """
    targets = checks.integers("targets", targets)
    shape = checks.sizes(features)[:-1]
    wanted = list(shape)
    received = backend.static_shape(targets)
    if received is not None and len(received) == len(shape):
        for axis in range(1, len(shape) - 1):
            if received[axis] == 1:
                wanted[axis] = 1
    expected = "of the shape of `features` without its last axis"
    targets = checks.with_known_shape("targets", targets, wanted, expected)
    # A reshape checks the number of targets; an export must not have an assertion.
    targets = ops.reshape(targets, wanted)
    return ops.broadcast_to(targets, shape)


def where_known(nll: Tensor, targets: Tensor, words: Number) -> Tensor:
    """Returns the nll of targets, NaN for those outside of [0, words)."""
    known = (targets >= 0) & (targets < words)
    return ops.where(known, nll, float("nan"))


def dense_logits(features: Tensor, words: Any, bias: Any) -> Tensor:
    """Returns `features words^T + bias`, `[..., V]`, computed by one two-dimensional product.

    The product runs in the features' dtype, the sum in at least float32.

    Args:
        features: `[..., E]`.
        words: `[V, E]`.
        bias: `[V]`.
    """
    words = ops.cast(words, features.dtype)
    rows = ops.reshape(features, [-1, words.shape[1]])
    products = backend.matmul(rows, words, transpose_other=True)
    logits = at_least_float32(products)
    logits = logits + ops.cast(bias, logits.dtype)
    if len(features.shape) == 2:
        return logits
    *outer, _ = checks.sizes(features)
    return ops.reshape(logits, [*outer, words.shape[0]])


def log_add_exp(one: Tensor, other: Tensor | float) -> Tensor:
    """Returns log(exp(one) + exp(other))."""
    return one + ops.softplus(other - one)


def require_tied_sizes(name: str, features_shape: tuple, table_shape: tuple) -> None:
    """Raises ValueError unless features have as many channels as the table."""
    if features_shape[-1] != table_shape[-1]:
        raise ValueError(
            f"{name} multiplies features and word vectors, so `output_units` must "
            "equal `embedding_units`. "
            f"Received: output_units={features_shape[-1]}, embedding_units={table_shape[-1]}"
        )
