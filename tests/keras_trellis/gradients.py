"""Gradients of layers, and gradients of gradients."""

import pytest
import tensorflow as tf


def with_gradients(call, layer, x, initial, mask):
    """The results of a call, and gradients of a sum that weighs them all."""
    x, *initial = map(tf.convert_to_tensor, [x, *initial])
    with tf.GradientTape() as tape:
        tape.watch([x, initial])
        results = tf.nest.flatten(call(x, initial_state=initial or None, mask=mask))
        loss = 0.0
        for result in results:
            flat = tf.reshape(result, [-1])
            loss += tf.reduce_sum(flat * tf.sin(tf.range(tf.size(flat), dtype=x.dtype)))
    variables = [each.value for each in layer.trainable_variables]
    sources = [x, *initial, *variables]
    none = tf.UnconnectedGradients.ZERO
    return results, tape.gradient(loss, sources, unconnected_gradients=none)


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
