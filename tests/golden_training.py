"""The released code's training runs, followed step by step by the trainer's own task and loop."""

from ml_collections import ConfigDict
from numpy.testing import assert_allclose

from tests.golden import language_model
from trainers.data.names import flatten, nested
from trainers.language.modeling import LanguageModeling
from trainers.tasks import config as configs
from trainers.training import runs
from trainers.training.trainer import Trainer

TOLERANCE = 1e-8
LOSSES = ("prediction", "auxiliary", "activation", "temporal")


def check_training_run(arrays, config):
    """Runs a `training_*` file's recipe and compares all that it recorded.

    Args:
        arrays: The file's arrays.
        config: Its sizes and its recipe.
    """
    recipe = recipe_of(arrays, config)
    model = model_of(arrays, config, "param.")
    task = LanguageModeling(
        model,
        recipe,
        arrays["train_ids"].reshape(-1),
        arrays["evaluation_ids"].reshape(-1),
    )
    optimizer = runs.make_optimizer(recipe)
    trainer = Trainer(task, optimizer, clip_norm=config["clip_norm"])
    batches, state = trainer.batches(0), task.initial_state()
    evaluations = [task.evaluate()["loss"]]
    for step in range(config["steps"] + config["averaged_steps"]):
        if config["averaged_steps"] and step == config["steps"]:
            optimizer.start_averaging()
        if step % task.steps_per_epoch == 0:
            state = task.initial_state()
        metrics, state = trainer.step(next(batches), state)
        _check_step(metrics, arrays, step)
        if step + 1 == config["steps"]:
            evaluations.append(task.evaluate()["loss"])
    _check_parameters(model, arrays, config, "final.")
    if config["averaged_steps"]:
        evaluations.append(task.evaluate()["loss"])
        with optimizer.evaluation_weights(model.trainable_variables):
            _check_parameters(model, arrays, config, "average.")
            evaluations.append(task.evaluate()["loss"])
    _assert_close(evaluations, arrays["evaluation_losses"], "evaluation_losses")


def recipe_of(arrays, config):
    """The trainer's config of a file's recipe."""
    steps = config["steps"] + config["averaged_steps"]
    values = {
        "task": "text",
        "data": {
            "batch_size": len(arrays["train_ids"]),
            "window": config["window"],
            "horizon": config["discarded"],
            "history": config["history"],
            "lengths": "equal",
        },
        "optimizer": {
            "name": config["optimizer"].lower(),
            "learning_rate": config["learning_rate"],
            "weight_decay": config["weight_decay"],
            "clip_norm": config["clip_norm"],
        },
        "schedule": {"average": bool(config["averaged_steps"])},
        "training": {"epochs": steps, "steps": 0},
        "evaluation": {"batch_size": len(arrays["evaluation_ids"])},
    }
    return ConfigDict(nested(configs.completed(flatten(values))))


def model_of(arrays, config, prefix):
    # The tied decoder is named once in an average.
    decoder = {f"{prefix}decoder.weight": arrays[f"{prefix}encoder.weight"]}
    return language_model(
        decoder | arrays,
        config,
        prefix,
        activation_weight=config["activation_weight"],
        temporal_weight=config["temporal_weight"],
    )


def _check_step(metrics, arrays, step):
    for name in LOSSES:
        _assert_close(
            metrics[name], arrays[f"{name}_loss"][step], f"{name}_loss, step {step}"
        )
    _assert_close(
        metrics["loss"], arrays["total_loss"][step], f"total_loss, step {step}"
    )
    _assert_close(
        metrics["gradient_norm"],
        arrays["gradient_norm"][step],
        f"gradient_norm, step {step}",
    )


def _check_parameters(model, arrays, config, prefix):
    expected = model_of(arrays, config, prefix).trainable_variables
    assert len(model.trainable_variables) == len(expected)
    for variable, other in zip(model.trainable_variables, expected, strict=True):
        _assert_close(variable.numpy(), other.numpy(), f"{prefix} {variable.path}")


def _assert_close(actual, expected, what):
    assert_allclose(actual, expected, rtol=TOLERANCE, atol=TOLERANCE, err_msg=what)
