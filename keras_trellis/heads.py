"""Output heads: what turns a network's features into a distribution over a vocabulary.

A head owns what comes after the features and before the probabilities, except for the table of word
vectors: that one is the embedding's (the two are tied) and comes in as an argument of every method.
All methods take features of any rank, `[..., E]`: those of the top level `[B, T, E]` and the
auxiliary ones of several levels `[B, M, T, E]` go through the same code, the latter in one call.

Softmax and nll are computed in at least float32, whatever the dtype of the features.
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

__all__ = ["Head", "TiedSoftmax", "at_least_float32", "get"]


def at_least_float32(tensor: tf.Tensor) -> tf.Tensor:
    """Casts a half-precision tensor to float32; float32 and float64 stay as they are."""
    return tensor if tensor.dtype == tf.float64 else tf.cast(tensor, tf.float32)


class Head(keras.layers.Layer):
    """The interface that `TrellisLM` asks of a head.

    A head of one's own implements `build`, `log_probs` and, where the nll of given targets costs
    less than the whole distribution, `nll`. A head that has unnormalised logits implements
    `logits` too; for the others `logits` are the log-probabilities, which are as right for
    `from_logits=True`.

    A mask that a head draws in training is shared by all steps of a sequence: the steps are the
    last axis but one of the features.
    """

    def build(self, features_shape: tuple, table_shape: tuple) -> None:
        """Creates the variables.

        Args:
            features_shape: `[..., E]`, the shape of the features; the last size is known.
            table_shape: `[V, E']`, the shape of the table of word vectors.
        """

    def log_probs(self, features: tf.Tensor, table: Any, training: bool = False) -> tf.Tensor:
        """Returns log-probabilities `[..., V]` for features `[..., E]` and a table `[V, E']`."""
        raise NotImplementedError

    def logits(self, features: tf.Tensor, table: Any, training: bool = False) -> tf.Tensor:
        """Returns `[..., V]`, of which the softmax is the distribution."""
        return self.log_probs(features, table, training)

    def nll(
        self, features: tf.Tensor, targets: tf.Tensor, table: Any, training: bool = False
    ) -> tf.Tensor:
        """Returns the negative log-likelihood of each target.

        Args:
            features: `[..., E]`.
            targets: integers in [0, V) that broadcast to `features.shape[:-1]`.
            table: `[V, E']`.
            training: whether to drop what the head drops in training.

        Returns:
            `[...]`, in nats.
        """
        log_probs = self.log_probs(features, table, training)
        targets = tf.broadcast_to(targets, tf.shape(log_probs)[:-1])
        return -tf.gather(log_probs, targets, batch_dims=targets.shape.rank)

    def call(self, features: tf.Tensor, table: Any, training: bool = False) -> tf.Tensor:
        """Returns `logits`."""
        return self.logits(features, table, training)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments; Keras wants it said, as a policy is among them."""
        return super().get_config()


@keras.saving.register_keras_serializable("keras_trellis")
class TiedSoftmax(Head):
    """One softmax over the whole vocabulary, its word vectors those of the embedding.

    `logits = features table^T + bias`. The only variable is `bias [V]`, zero at the start. The
    product runs in the features' dtype, all that follows in at least float32.

    A target outside [0, V) is an error on a CPU and a NaN on an accelerator and under XLA.

    Source: Bai et al. (2019), section 5 (tied weights, after Press and Wolf, 2017).
    """

    def build(self, features_shape: tuple, table_shape: tuple) -> None:
        """Creates `bias [V]`; features must have as many channels as the table."""
        if features_shape[-1] != table_shape[-1]:
            raise ValueError(
                "A tied softmax multiplies features and word vectors, so `output_units` must "
                "equal `embedding_units`. "
                f"Received: output_units={features_shape[-1]}, embedding_units={table_shape[-1]}"
            )
        # Not autocast: the sum with the bias belongs to the softmax, which is never in half
        # precision.
        self.bias = self.add_weight(
            name="bias", shape=(table_shape[0],), initializer="zeros", autocast=False
        )

    def logits(self, features: tf.Tensor, table: Any, training: bool = False) -> tf.Tensor:
        """Returns unnormalised logits `[..., V]` in at least float32."""
        logits = at_least_float32(_times_transposed(features, table))
        return logits + tf.cast(self.bias, logits.dtype)

    def log_probs(self, features: tf.Tensor, table: Any, training: bool = False) -> tf.Tensor:
        """Returns log-probabilities `[..., V]` in at least float32."""
        return tf.nn.log_softmax(self.logits(features, table, training))

    def nll(
        self, features: tf.Tensor, targets: tf.Tensor, table: Any, training: bool = False
    ) -> tf.Tensor:
        """Returns the negative log-likelihood of each target; see `Head.nll`."""
        logits = self.logits(features, table, training)
        targets = tf.broadcast_to(targets, tf.shape(logits)[:-1])
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=targets, logits=logits)


def _times_transposed(features: tf.Tensor, table: Any) -> tf.Tensor:
    """Returns `features table^T`, `[..., V]`, as one two-dimensional product."""
    table = tf.cast(table, features.dtype)
    rows = tf.reshape(features, [-1, table.shape[1]])
    products = tf.matmul(rows, table, transpose_b=True)
    return tf.reshape(products, tf.concat([tf.shape(features)[:-1], tf.shape(table)[:1]], axis=0))


_NAMES = {"tied": TiedSoftmax}


def get(identifier: Any, **arguments: Any) -> Head:
    """Returns a head for a name, a serialised head, or a head.

    Args:
        identifier: `"tied"`, what `keras.saving.serialize_keras_object` returned for a head, or a
            `Head`, which is returned as it is.
        **arguments: constructor arguments for a head given by name.

    Raises:
        ValueError: the identifier is none of these.
    """
    if isinstance(identifier, str) and identifier in _NAMES:
        return _NAMES[identifier](**arguments)
    if isinstance(identifier, dict):
        identifier = keras.saving.deserialize_keras_object(identifier)
    if isinstance(identifier, Head):
        return identifier
    raise ValueError(
        f"`head` must be one of {sorted(_NAMES)} or a keras_trellis.heads.Head. "
        f"Received: head={identifier!r}"
    )
