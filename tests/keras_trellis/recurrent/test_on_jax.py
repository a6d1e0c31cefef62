"""All recurrent layers on JAX: the numbers of TensorFlow, and files from one to the other."""

import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from keras_trellis import recurrent
from tests import ROOT
from tests.keras_trellis.recurrent.models import model_of, weighed

T, CHANNELS = 4, 4
MASK = np.array([[1] * T, [0, 1, 0, 1], [0] * T], bool)


def with_gradients(model, x):
    """What a training call returns, and gradients by inputs and weights."""
    x = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        outputs = model([x, tf.constant(MASK)], training=True)
        loss = weighed(outputs)
    weights = [variable.value for variable in model.trainable_variables]
    return [*outputs, *tape.gradient(loss, [x, *weights])]


def test_jax_gives_the_numbers_of_tensorflow(tmp_path):
    pytest.importorskip("jax")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(len(MASK), T, CHANNELS)).astype("float32")
    with_nan = np.where(MASK[..., None], x, np.nan).astype("float32")
    model = model_of(recurrent, T, CHANNELS)
    model.set_weights([0.5 * rng.normal(size=each.shape) for each in model.weights])
    model.save(tmp_path / "model.keras")
    np.savez(tmp_path / "data.npz", x=with_nan, mask=MASK)

    module = "tests.keras_trellis.recurrent.on_jax"
    done = subprocess.run(
        [sys.executable, "-m", module, tmp_path],
        cwd=ROOT,
        env={**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]

    *results, trained = np.load(tmp_path / "results.npz").values()
    for result, expected in zip(results, with_gradients(model, with_nan), strict=True):
        assert_allclose(result, expected, rtol=2e-5, atol=2e-5)
    again = keras.models.load_model(tmp_path / "trained.keras")
    assert_allclose(again(np.where(MASK[..., None], x, 0)), trained, atol=2e-5)
