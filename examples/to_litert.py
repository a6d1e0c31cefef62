"""Converts a trained model for LiteRT, and runs it at any batch size and length, as a phone would.

python examples/to_litert.py    # a quarter of a minute on two cores; needs Keras 3.13
"""

import tempfile
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from keras_trellis import TrellisLayer


def train() -> keras.Model:
    """Returns a model of random walks: is the walk, at each step, above where it began?"""
    walks = np.random.default_rng(0).choice([-1.0, 1.0], (2000, 30, 1))
    model = keras.Sequential([keras.Input([None, 1])])
    model.add(TrellisLayer(16, depth=30, return_sequences=True))
    model.add(keras.layers.Dense(1, activation="sigmoid"))
    model.compile("adam", "binary_crossentropy")
    model.fit(walks, walks.cumsum(axis=1) > 0, verbose=0)
    return model


def run(interpreter: tf.lite.Interpreter, sequences: np.ndarray) -> np.ndarray:
    """Runs a converted model on sequences of any number and length."""
    (inputs,) = interpreter.get_input_details()
    (outputs,) = interpreter.get_output_details()
    interpreter.resize_tensor_input(inputs["index"], sequences.shape)
    interpreter.allocate_tensors()
    interpreter.set_tensor(inputs["index"], sequences)
    interpreter.invoke()
    return interpreter.get_tensor(outputs["index"])


def main() -> None:
    """Converts a model and compares the outputs of both for sequences of several sizes."""
    model = train()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.tflite")
        model.export(path, format="litert", verbose=False)
        converted = path.read_bytes()
    print(f"{len(converted):,} bytes")
    # On the phone, without TensorFlow: `ai_edge_litert.interpreter.Interpreter`, used alike.
    interpreter = tf.lite.Interpreter(model_content=converted)
    for batch, steps in [(1, 1), (4, 30), (2, 300)]:
        walks = np.random.default_rng(steps).choice([-1.0, 1.0], (batch, steps, 1))
        expected = np.asarray(model(walks))
        found = run(interpreter, walks.astype("float32"))
        difference = np.abs(found - expected).max()
        print(f"{batch} walks of {steps} steps: differs by {difference:.0e} at most")
        assert difference < 1e-5


if __name__ == "__main__":
    main()
