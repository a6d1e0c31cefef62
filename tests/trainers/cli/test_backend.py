"""The commands on another backend of Keras."""

import os
import subprocess
import sys

import pytest

from tests import ROOT


def test_a_command_says_which_backend_it_needs():
    pytest.importorskip("jax")
    done = subprocess.run(
        [sys.executable, "-m", "trainers.lm", "--task=pydoc"],
        cwd=ROOT,
        env=os.environ | {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: KERAS_BACKEND must be tensorflow for the trainers")
    assert "Received: jax." in line
