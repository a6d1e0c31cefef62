"""`fit` and `evaluate` of a model on the loss that it has itself."""

from __future__ import annotations

import warnings
from typing import Any

import keras
import tensorflow as tf

from keras_trellis import heads
from keras_trellis.models import losses
from keras_trellis.models.losses import LossTerms


class OwnLoss(keras.Model):
    """A model with a loss of its own, which trains where `compile()` is given none."""

    def own_loss(
        self, data: Any, training: bool
    ) -> tuple[LossTerms, LossTerms, tf.Tensor]:
        """Returns the sums of the loss terms of a batch, their weights, and the logits."""
        raise NotImplementedError

    def train_step(self, data: Any) -> dict[str, Any]:
        """One step of `fit`: on the loss given to `compile`, else on the model's own."""
        if self.loss is not None:
            return super().train_step(data)
        with tf.GradientTape() as tape:
            loss, logits = self._share(data, training=True)
            scaled = self.optimizer.scale_loss(loss)
        variables = self.trainable_variables
        if variables:
            gradients = tape.gradient(scaled, variables)
            self.optimizer.apply_gradients(zip(gradients, variables, strict=True))
        else:
            warnings.warn(  # as every Keras model does
                "The model has no trainable weights, so that `fit` changes nothing. "
                "Received: trainable=False",
                stacklevel=2,
            )
        return self._reported(data, loss, logits)

    def test_step(self, data: Any) -> dict[str, Any]:
        """One step of `evaluate`: the loss that `train_step` trains, with dropout off."""
        if self.loss is not None:
            return super().test_step(data)
        return self._reported(data, *self._share(data, training=False))

    def _share(self, data: Any, training: bool) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns this replica's share of the loss, and the logits.

        Only metrics read the logits; without any, the graph is pruned of them.
        """
        sums, weights, logits = self.own_loss(data, training)
        weights = LossTerms(*map(losses.global_sum, weights))
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        penalties = [heads.at_least_float32(loss) / replicas for loss in self.losses]
        return tf.add_n([*losses.means(sums, weights), *penalties]), logits

    def _reported(
        self,
        data: Any,
        loss: tf.Tensor,
        logits: tf.Tensor,
    ) -> dict[str, Any]:
        """Updates the metrics and returns them."""
        ids, targets, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(
                    losses.global_sum(loss), sample_weight=tf.shape(ids)[0]
                )
        return self.compute_metrics(ids, targets, logits, sample_weight=sample_weight)
