"""A language model over Keras's LSTMs with as many parameters as an exported model."""

from __future__ import annotations

from typing import Any

from benchmarks.exported import Model
from benchmarks.sizes import nearest_units


def units(model: Model) -> int:
    """Returns the units of the first of two layers; the second one has `embedding_units`."""
    embedding_units = model.embedding_units

    def count(units):
        inputs = embedding_units + units + 1
        first = 4 * units * inputs
        inputs = units + embedding_units + 1
        second = 4 * embedding_units * inputs
        return model.head_weights + first + second

    return nearest_units(count, model.parameters)


def network(model: Model) -> Any:
    """Returns the language model, built."""
    import keras

    import keras_trellis

    widths = (units(model), model.embedding_units)
    layers = [keras.layers.LSTM(width) for width in widths]
    network = keras_trellis.TrellisLM(
        model.vocabulary_size, layers, embedding_units=model.embedding_units
    )
    network.build((None, None))
    return network


def continued(network: Any, ids: Any, cache: Any, count: Any) -> Any:
    """Returns the most probable tokens [B, count] after ids [B], from a loop in the graph."""
    import tensorflow as tf

    def advance(index, ids, cache, tokens):
        scores, cache = network.step(ids, cache)
        ids = tf.argmax(scores, -1, tf.int32)
        return index + 1, ids, cache, tokens.write(index, ids)

    tokens = tf.TensorArray(tf.int32, count, element_shape=ids.shape)
    loop = (tf.constant(0), ids, cache, tokens)
    *_, tokens = tf.while_loop(lambda index, *_: index < count, advance, loop)
    return tf.transpose(tokens.stack())
