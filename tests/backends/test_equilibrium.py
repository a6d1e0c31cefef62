"""An equilibrium layer on JAX, in a process of its own, against the one on TensorFlow."""

import os
import subprocess
import sys

import keras
import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests import ROOT
from tests.backends import equilibrium

pytest.importorskip("jax")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("jax")
    backend = {"KERAS_BACKEND": "jax", "JAX_ENABLE_X64": "1", "JAX_PLATFORMS": "cpu"}
    # No fork: those have imported TensorFlow.
    done = subprocess.run(
        [sys.executable, "-m", "tests.backends.equilibrium", str(path)],
        env={**os.environ, **backend},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    return path


def test_jax_computes_the_same(folder):
    """Outputs, states, how far the iteration came, caches; gradients by the theorem."""
    expected = equilibrium.numbers()
    with np.load(folder / "jax.npz") as actual:
        assert set(actual) == set(expected)
        for name, values in expected.items():
            assert actual[name].dtype == values.dtype, name
            assert_allclose(actual[name], values, rtol=1e-8, atol=1e-8, err_msg=name)
    for case in equilibrium.CASES:
        assert_allclose(
            expected[f"{case}_streamed_0"][0], expected[f"{case}_settled_0"][0], 1e-8
        )


def test_a_file_of_jax_answers_the_same(folder):
    model = keras.saving.load_model(folder / "jax.keras")
    answers = model.predict(equilibrium.inputs(), verbose=0)
    assert_allclose(answers, np.load(folder / "answers.npy"), atol=2e-5)
