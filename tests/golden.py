"""The folder of golden vectors: `TRELLIS_GOLDEN`, by default `../shared/golden`."""

import json
import os
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from keras_trellis import convert
from tests import ROOT

FOLDER = pathlib.Path(
    os.environ.get("TRELLIS_GOLDEN") or ROOT / ".." / "shared" / "golden"
)
TOLERANCE = 1e-9
DTYPE = "float64"  # the contract has other precisions, and graphs, equal


def load(path):
    """The arrays of a file, and the config in it."""
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files if name != "config"}
        return arrays, json.loads(str(file["config"]))


def on_files(files):
    """Runs a test of a `path` on files; without any it is skipped."""
    return pytest.mark.parametrize("path", files, ids=lambda path: path.name)


def part(arrays, prefix):
    """The arrays whose names begin so, without the beginning."""
    names = [name for name in arrays if name.startswith(prefix)]
    return {name.removeprefix(prefix): arrays[name] for name in names}


def language_model(arrays, config, prefix, **arguments):
    """The model of a file, with its parameters or with their gradients."""
    return convert.language_model_from_torch(
        part(arrays, prefix),
        depth=config["num_layers"],
        dilation_rate=config["dilations"],
        auxiliary_every=config["aux_frequency"],
        auxiliary_weight=config["aux_weight"],
        dtype=DTYPE,
        **arguments,
    )


def parameters(arrays):
    """The parameters in a file, as constants."""
    params = part(arrays, "param.")
    return {name: tf.constant(value, DTYPE) for name, value in params.items()}


def assert_equal(actual, expected, what, tolerance=TOLERANCE):
    np.testing.assert_allclose(
        tf.convert_to_tensor(actual),
        expected,
        rtol=tolerance,
        atol=tolerance,
        err_msg=what,
    )


def assert_run_equal(arrays, results, loss, by_inputs):
    """Compares a run's outputs, final states and loss, and the loss's gradient by the inputs."""
    assert_equal(loss, arrays["loss"], "loss")
    assert_equal(by_inputs, arrays["grad_inputs"], "grad_inputs")
    for name, value in results.items():
        name = name if name == "outputs" else f"final_{name}"
        assert_equal(value, arrays[name], name)


def assigned(model, pairs):
    """Assigns all trainable variables; returns them, and what each was made of.

    Args:
        model: What has the variables.
        pairs: Its parts, each with values by the names of its variables.
    """
    variables = [v for part, _ in pairs for v in part.trainable_variables]
    made = [of[v.name] for part, of in pairs for v in part.trainable_variables]
    assert len(variables) == len(model.trainable_variables)
    for variable, value in zip(variables, made, strict=True):
        variable.assign(value)
    return variables, made
