"""Gradients of gradients."""

import pytest
import tensorflow as tf


def assert_no_second_gradient(layer, sequences, message):
    """Asks for the gradient of a gradient of a training step, which must be refused."""
    with tf.GradientTape() as outer:
        outer.watch(sequences)
        with tf.GradientTape() as tape:
            tape.watch(sequences)
            total = tf.reduce_sum(layer(sequences, training=True))
        gradient = tape.gradient(total, sequences)
    with pytest.raises(LookupError, match=message):
        outer.gradient(gradient, sequences)
