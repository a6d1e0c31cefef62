"""Writes a run's training, evaluation, weights and data for `run.py`.

The programs are those of the trainers, lowered to StableHLO; nothing is written twice. What a
program reads and changes (weights, moments, seeds, the learning rate) is among its arguments and
results. Initial weights are rounded to bfloat16, so that 24M of them take 48 MB.
"""

import json
import pathlib
import shutil
from collections.abc import Mapping
from typing import Any, NamedTuple

import keras
import ml_collections
import numpy as np
import tensorflow as tf

from benchmarks.paper import examples, run, texts
from benchmarks.paper.lowering import Lowering, described, packed
from trainers.tasks import registry
from trainers.tasks.task import LanguageTask
from trainers.training import runs, strategies, variables


def check_output(folder: pathlib.Path) -> None:
    """Raises ValueError if the folder exists and holds files."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(
            f"--output must be a new or an empty folder. Received: --output={folder}"
        )


def write(
    config: ml_collections.ConfigDict,
    data_dir: str | None,
    folder: pathlib.Path,
) -> int:
    """Writes the folder; returns its size in bytes.

    Args:
        config: the config of a run.
        data_dir: the folder of the task's data.
        folder: the folder to write.
    """
    strategies.make_deterministic(config.seed)
    language = isinstance(registry.TASKS[config.task], LanguageTask)
    kind = texts.TextRecipe if language else examples.ExamplesRecipe
    recipe = kind(config, data_dir)
    optimizer = runs.make_optimizer(config)
    trainer = runs.make_trainer(config, recipe.task, optimizer)
    model = recipe.task.model
    round_weights(model)

    named: dict[str, Any] = {
        **variables.model_variables(model),
        **variables.optimizer_variables(optimizer, model),
    }
    if optimizer.rate_factor is not None:
        named["optimizer/rate_factor"] = _Plain(optimizer.rate_factor)
    folder.mkdir(parents=True, exist_ok=True)
    lowering = Lowering(named, folder)
    arrays = {
        f"initial/{name}": packed(value)
        for name, value in variables.arrays(named).items()
    }
    arrays |= recipe.lower_training(lowering, trainer)
    arrays |= recipe.lower_scoring(lowering)
    np.savez_compressed(folder / run.ARRAYS, **arrays)

    manifest = {
        "config": config.to_dict(),
        "classes": recipe.classes,
        "parameters": runs.parameters(model),
        "scores": recipe.scores,
        "programs": lowering.programs,
        "variables": {
            name: described(variable.value) for name, variable in named.items()
        },
        "averages": _averages(named, model),
    }
    (folder / run.MANIFEST).write_text(json.dumps(manifest, indent=1))
    shutil.copyfile(run.__file__, folder / "run.py")
    return sum(file.stat().st_size for file in folder.iterdir())


class _Plain(NamedTuple):
    """A variable of TensorFlow with the members of Keras's that are read here."""

    value: tf.Variable

    def numpy(self) -> np.ndarray:
        """Returns its value."""
        return self.value.numpy()


def round_weights(model: keras.Model) -> None:
    """Rounds a model's trainable variables to bfloat16."""
    for variable in model.trainable_variables:
        variable.assign(tf.cast(tf.cast(variable.value, "bfloat16"), variable.dtype))


def _averages(
    named: Mapping[str, keras.Variable], model: keras.Model
) -> dict[str, str]:
    trained = {id(variable) for variable in model.trainable_variables}
    names = [name for name, variable in named.items() if id(variable) in trained]
    pairs = {name: f"optimizer/{name.removeprefix('model/')}/average" for name in names}
    return {name: average for name, average in pairs.items() if average in named}
