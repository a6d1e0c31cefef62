"""A Keras LSTM language model of as many parameters as an exported model, for the benchmarks."""

from __future__ import annotations

from typing import Any

from benchmarks.exported import Model
from benchmarks.sizes import nearest_units


def units(model: Model) -> int:
    """Returns the units of the first of two layers, of which the second has `embedding_units`."""

    def count(units: int) -> int:
        embedding_units = model.embedding_units
        first = 4 * units * (embedding_units + units + 1)
        second = 4 * embedding_units * (units + embedding_units + 1)
        return model.head_weights + first + second

    return nearest_units(count, model.parameters)


def network(model: Model) -> Any:
    """Returns the language model over two of Keras's LSTM layers."""
    import keras

    from keras_trellis import TrellisLM

    layers = [keras.layers.LSTM(each) for each in (units(model), model.embedding_units)]
    return TrellisLM(model.vocabulary_size, layers, embedding_units=model.embedding_units)


def read(network: Any, ids: Any, states: Any) -> tuple[Any, Any]:
    """Returns the log-probabilities [B, V] of the token after ids [B], and the states."""
    features, states = network.stream(ids[:, None], states)
    return network.head.log_probs(features[:, 0], network.embedding.embeddings), states


def continued(network: Any, ids: Any, states: Any, count: Any) -> Any:
    """Returns the most probable tokens [B, count] after ids [B], by a loop of the graph."""
    import tensorflow as tf

    def advance(index: Any, ids: Any, states: Any, tokens: Any) -> tuple[Any, ...]:
        scores, states = read(network, ids, states)
        ids = tf.argmax(scores, -1, tf.int32)
        return index + 1, ids, states, tokens.write(index, ids)

    tokens = tf.TensorArray(tf.int32, count, element_shape=ids.shape)
    loop = (tf.constant(0), ids, states, tokens)
    *_, tokens = tf.while_loop(lambda index, *_: index < count, advance, loop)
    return tf.transpose(tokens.stack())


def export(model: Model, path: str) -> None:
    """Writes a SavedModel whose signature `generate` continues ids [B]."""
    import tensorflow as tf

    lstm = network(model)

    def generate(ids: tf.Tensor, max_length: tf.Tensor) -> dict[str, tf.Tensor]:
        states = lstm.get_initial_cache(tf.shape(ids)[0])
        return {"ids": continued(lstm, ids, states, max_length)}

    specs = [tf.TensorSpec([None], tf.int32, "ids"), tf.TensorSpec([], tf.int32, "max_length")]
    module = tf.Module()
    module.weights = [each.value for each in lstm.variables]
    function = tf.function(generate, input_signature=specs, autograph=False)
    signature = function.get_concrete_function()
    tf.saved_model.save(module, path, signatures={"generate": signature})
