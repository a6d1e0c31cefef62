"""The released code's own numbers: the files of the folder of golden vectors.

The folder is `TRELLIS_GOLDEN`, by default `../shared/golden` beside the repository. Each file is
one small run of the released code in float64; what it holds goes by the `kind` in its config.
"""

import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from keras_trellis import convert
from tests import ROOT
from tests.golden import (
    DTYPE,
    FOLDER,
    assert_equal,
    language_model,
    load,
    part,
)
from tests.golden_dropped import check_dropped_step
from tests.golden_pixels import check_pixel_run
from tests.golden_training import check_training_run

FILES = [
    path
    for folder in (FOLDER, FOLDER / "masked", FOLDER / "pixel")
    for path in sorted(folder.glob("*.npz"))
]

if not FILES:
    pytest.skip(
        f"no golden vectors in {FOLDER}; TRELLIS_GOLDEN names the folder",
        allow_module_level=True,
    )


def assert_variables_equal(gradients, expected):
    """Compares gradients with those that conversion has put into the variables `expected`."""
    assert len(gradients) == len(expected)
    for gradient, variable in zip(gradients, expected, strict=True):
        assert_equal(gradient, variable.numpy(), variable.path)


def check_core(arrays, config):
    arguments = {
        "depth": config["num_layers"],
        "dilation_rate": config["dilations"],
        "output_units": config["output_size"],
        "dtype": DTYPE,
    }
    layer = convert.layer_from_torch(part(arrays, "param."), **arguments)
    inputs = [
        tf.constant(arrays[name])
        for name in ("inputs", "initial_hidden", "initial_cell")
    ]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        outputs, (hidden, cell), auxiliary = layer.propagate(
            inputs[0],
            initial_state=inputs[1:],
            auxiliary_every=config["aux_frequency"],
        )
        results = {"outputs": outputs, "hidden": hidden, "cell": cell}
        if config["aux_frequency"]:
            results["aux"] = auxiliary
        loss = tf.add_n(
            [
                tf.reduce_sum(value * arrays[f"cotangent_{name}"])
                for name, value in results.items()
            ]
        )
    gradients, by_inputs = tape.gradient(loss, [layer.trainable_variables, inputs])
    for name, value in results.items():
        name = {"hidden": "final_hidden", "cell": "final_cell"}.get(name, name)
        assert_equal(value, arrays[name], name)
    assert_equal(loss, arrays["loss"], "loss")
    names = ("inputs", "initial_hidden", "initial_cell")
    for name, gradient in zip(names, by_inputs, strict=True):
        assert_equal(gradient, arrays[f"grad_{name}"], f"grad_{name}")
    expected = convert.layer_from_torch(part(arrays, "grad."), **arguments)
    assert_variables_equal(gradients, expected.trainable_variables)


def check_language_model(arrays, config):
    model = language_model(arrays, config, "param.")
    ids, targets = arrays["ids"], arrays["targets"]
    state = [arrays["initial_hidden"], arrays["initial_cell"]]
    with tf.GradientTape() as tape:
        terms, final = model.loss_terms(ids, targets, initial_state=state)
        loss = tf.add_n(terms)
    gradients = tape.gradient(loss, model.trainable_variables)
    outputs, _, _ = model.trellis.propagate(model.embedding(ids), initial_state=state)
    log_probs = model.head.log_probs(outputs, model.embedding.embeddings)
    nll, scored = model.score(ids, targets, initial_state=state)
    assert_equal(log_probs, arrays["log_probs"], "log_probs")
    assert_equal(nll, arrays["nll"], "nll")
    assert_equal(terms.prediction, np.mean(arrays["nll"]), "prediction")
    if config["aux_frequency"]:
        auxiliary = config["aux_weight"] * np.sum(arrays["aux_nll"])
        assert_equal(terms.auxiliary, auxiliary, "auxiliary")
    assert_equal(loss, arrays["total_loss"], "total_loss")
    for states in (final, scored):
        assert_equal(states[0], arrays["final_hidden"], "final_hidden")
        assert_equal(states[1], arrays["final_cell"], "final_cell")
    expected = language_model(arrays, config, "grad.")
    assert_variables_equal(gradients, expected.trainable_variables)


def check_split_softmax(arrays, config):
    model, expected = (split_softmax_model(arrays, config, of) for of in ("", "grad_"))
    hiddens, targets = (tf.constant(arrays[name]) for name in ("hiddens", "targets"))
    variables = [model.embedding.embeddings, *model.head.trainable_variables]
    with tf.GradientTape() as tape:
        tape.watch(hiddens)
        nll = model.head.nll(hiddens, targets, model.embedding.embeddings)
        # The released code adds up in float32, whatever the dtype.
        loss = tf.reduce_mean(tf.cast(nll, tf.float32))
    sources = [hiddens, [each.value for each in variables]]
    of_hiddens, gradients = tape.gradient(loss, sources)
    log_probs = model.head.log_probs(hiddens, model.embedding.embeddings)
    places = arrays["targets"][:, None]
    chosen = -np.take_along_axis(np.asarray(log_probs), places, 1)[:, 0]
    assert_equal(nll, chosen, "nll")
    assert_equal(loss, arrays["loss"], "loss", 1e-6)
    assert_equal(of_hiddens, arrays["grad_hiddens"], "grad_hiddens")
    assert_variables_equal(
        gradients, [expected.embedding.embeddings, *expected.head.trainable_variables]
    )


def split_softmax_model(arrays, config, prefix):
    """A language model with the file's head, or its gradients; the network in front is any."""
    units = config["hidden_size"]
    names = {
        "encoder.weight": "weight",
        "decoder.weight": "weight",
        "decoder.bias": "bias",
    }
    names |= {name: name for name in ("tail_vectors", "tail_bias")}
    state = {name: arrays[prefix + other] for name, other in names.items()}
    state |= {f"full_conv.weight{i}": np.zeros((4 * units, units, 2)) for i in (1, 2)}
    state["full_conv.bias2"] = np.zeros(4 * units)
    return convert.language_model_from_torch(
        state, depth=1, dilation_rate=1, cutoffs=config["splits"], dtype=DTYPE
    )


CHECKS = {
    "dropped": check_dropped_step,
    "pixel": check_pixel_run,
    "core": check_core,
    "lm": check_language_model,
    "split_softmax": check_split_softmax,
    "training": check_training_run,
}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_golden(path):
    arrays, config = load(path)
    CHECKS[config["kind"]](arrays, config)


def test_the_training_step_of_reproduce():
    """In a process with Keras on JAX in float64."""
    pytest.importorskip("jax", reason="trainers.reproduce needs JAX")
    kinds = ("training", "dropped", "pixel")
    files = [str(path) for path in FILES if path.name.startswith(kinds)]
    own = {"KERAS_BACKEND": "jax", "JAX_ENABLE_X64": "1", "JAX_PLATFORMS": "cpu"}
    ended = subprocess.run(
        [sys.executable, "-m", "tests.golden_reproduced", *files],
        env={**os.environ, **own},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.split() == files
