"""The released code's training runs, taken by the training step of `trainers.reproduce`.

A program, with Keras on JAX in float64: `python -m tests.golden_reproduced FILE...`
"""

import sys
from unittest import mock

import numpy as np
from ml_collections import ConfigDict
from numpy.testing import assert_allclose

from tests import golden_dropped, golden_pixels, golden_training
from tests.golden import load
from trainers.data.long_memory import Examples as Arrays
from trainers.data.names import nested
from trainers.data.sequences import SequenceData
from trainers.papers import examples, texts
from trainers.papers.training import Run
from trainers.tasks import config as configs
from trainers.training import variables

TOLERANCES = {"training": 1e-8, "dropped": 1e-9, "pixel": 1e-9}


def check_training(arrays, config, tolerance):
    """Takes the steps of a `training_*` file; compares losses, norms, weights and averages."""
    recipe = golden_training.recipe_of(arrays, config)
    model = golden_training.model_of(arrays, config, "param.")
    ids = {
        "train": arrays["train_ids"].reshape(-1),
        "validation": arrays["evaluation_ids"].reshape(-1),
    }
    run, steps = _run(texts.Texts, model, recipe, ids, 2)
    evaluations = [_validation(run)]
    for step in range(config["steps"] + config["averaged_steps"]):
        if config["averaged_steps"] and step == config["steps"]:
            run.rule.start_averaging()
        run.take_step()
        if step + 1 == config["steps"]:
            evaluations.append(_validation(run))
    losses, norms = _losses_and_norms(steps)
    _assert_close(losses, arrays["prediction_loss"], tolerance)
    _assert_close(norms, arrays["gradient_norm"], tolerance)
    expected = golden_training.model_of(arrays, config, "final.")
    _assert_weights(run.state, model, expected, tolerance)
    if config["averaged_steps"]:
        evaluations.append(run.parts.validation(run.state)["loss"])
        expected = golden_training.model_of(arrays, config, "average.")
        _assert_weights(run.weights(), model, expected, tolerance)
        evaluations.append(_validation(run))
    _assert_close(evaluations, arrays["evaluation_losses"], tolerance)


def check_dropped(arrays, config, tolerance):
    """Takes the step of a `dropped_*` file with its masks, at rate 1: it takes off the gradient."""
    model = golden_dropped.model_of(arrays, config, "param.")
    rows, window = arrays["ids"].shape
    recipe = _completed(
        {
            "task": "text",
            "data.batch_size": rows,
            "data.window": window,
            "data.horizon": 0,
            "data.history": "carried",
            "data.lengths": "equal",
            "optimizer.name": "sgd",
            "optimizer.learning_rate": 1.0,
            "optimizer.clip_norm": 1e30,
            "training.epochs": 1,
        }
    )
    ids = {"train": np.zeros(rows * (window + 1), "int32")}
    run, steps = _run(texts.Texts, model, recipe, ids, 2)
    run.parts.batch = lambda step: ([arrays["ids"], arrays["targets"]], window)
    run.state |= {
        "state/0": arrays["initial_hidden"],
        "state/1": arrays["initial_cell"],
    }
    before = variables.arrays(variables.model_variables(model))
    with golden_dropped.drawing(golden_dropped.masks_of(arrays)):
        run.take_step()
    losses, _ = _losses_and_norms(steps)
    _assert_close(losses, arrays["terms"][:1], tolerance)
    _assert_close(run.state["state/0"], arrays["final_hidden"], tolerance)
    _assert_close(run.state["state/1"], arrays["final_cell"], tolerance)
    gradients = {name: value - run.state[name] for name, value in before.items()}
    expected = golden_dropped.model_of(arrays, config, "grad.")
    _assert_weights(gradients, model, expected, tolerance)


def check_pixel(arrays, config, tolerance):
    """Takes the steps of a `pixel_*` file; compares losses, norms and weights."""
    model = golden_pixels.model_of(arrays, config, "param.")
    inputs, labels = np.swapaxes(arrays["X"], 2, 3), arrays["Y"].astype("int32")
    recipe = _completed(
        {
            "task": "seq_cifar10",
            "data.batch_size": labels.shape[1],
            "data.validation": 1,
            "optimizer.name": "adam",
            "optimizer.learning_rate": config["lr"],
            "optimizer.weight_decay": config["wd"],
            "optimizer.clip_norm": config["clip"],
            "training.epochs": len(labels),
        }
    )
    part = Arrays(inputs[0], labels[0])
    data = SequenceData(part, part, part, lambda each: each, 1)
    run, steps = _run(examples.Examples, model, recipe, data)
    run.parts.batch = lambda step: ([inputs[step], labels[step]], inputs.shape[2])
    for _ in labels:
        run.take_step()
    losses, norms = _losses_and_norms(steps)
    _assert_close(losses, arrays["losses"], tolerance)
    _assert_close(norms, arrays["norms"], tolerance)
    expected = golden_pixels.model_of(arrays, config, "final.")
    _assert_weights(run.state, model, expected, tolerance)


def _completed(values):
    return ConfigDict(nested(configs.completed(values)))


def _run(make, model, recipe, *data):
    """A run of a model that is there already, and what its steps will return beside the state."""
    kind = {texts.Texts: texts, examples.Examples: examples}[make]
    with mock.patch.object(kind.models, "build", return_value=model):
        run = Run(recipe, make(recipe, *data))
    run.fill({})
    step, seen = run.step, []

    def recorded(*arguments, **stage):
        state, metrics = step(*arguments, **stage)
        seen.append(np.asarray(metrics))
        return state, metrics

    run.step = recorded
    return run, seen


def _losses_and_norms(steps):
    total, number, norms = np.transpose(steps)
    return total / number, norms


def _validation(run):
    return run.parts.validation(run.weights())["loss"]


def _assert_weights(values, model, expected, tolerance):
    named = variables.model_variables(model)
    names = [name for name, variable in named.items() if variable.trainable]
    assert len(names) == len(expected.trainable_variables)
    for name, other in zip(names, expected.trainable_variables, strict=True):
        _assert_close(values[name], np.array(other.value), tolerance, name)


def _assert_close(actual, expected, tolerance, what=""):
    assert np.asarray(actual).dtype == "float64", what
    assert_allclose(actual, expected, rtol=tolerance, atol=tolerance, err_msg=what)


CHECKS = {"training": check_training, "dropped": check_dropped, "pixel": check_pixel}

if __name__ == "__main__":
    for path in sys.argv[1:]:
        print(path, flush=True)
        arrays, config = load(path)
        CHECKS[config["kind"]](arrays, config, TOLERANCES[config["kind"]])
