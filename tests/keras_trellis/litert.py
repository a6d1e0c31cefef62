"""Models as LiteRT runs them."""

import keras
import numpy as np
import pytest
import tensorflow as tf

IS_THERE = pytest.mark.skipif(
    tuple(map(int, keras.__version__.split(".")[:2])) < (3, 13),
    reason="Keras exports to LiteRT from 3.13 on",
)


def check_layer(layer, sequences, path):
    """Compares a layer of Keras with what LiteRT makes of its model, for sequences [B, T, p]."""
    rows, *shape = sequences.shape
    inputs = keras.Input(shape, batch_size=rows)
    model = keras.Model(inputs, layer(inputs))
    sequences = sequences.astype("float32")
    converted = outputs(model, path, sequences)
    np.testing.assert_allclose(converted, model(sequences), atol=1e-5)


def outputs(model, path, values):
    """The output of a model of one input, converted, on LiteRT's own operations."""
    model.export(path, format="litert", verbose=False)
    interpreter = tf.lite.Interpreter(str(path))
    (place,) = interpreter.get_input_details()
    interpreter.resize_tensor_input(place["index"], values.shape)
    interpreter.allocate_tensors()
    interpreter.set_tensor(place["index"], values)
    interpreter.invoke()
    (found,) = interpreter.get_output_details()
    return interpreter.get_tensor(found["index"])
