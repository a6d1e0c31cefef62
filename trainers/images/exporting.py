"""Exports a run's best classifier of images."""

import functools
from typing import Any

import keras
import tensorflow as tf
from etils import epath

from keras_trellis.export import export_classifier, inference_model
from trainers.data import images
from trainers.kinds.measures import Measure
from trainers.sequences import models
from trainers.sequences.experiment import SequenceExperiment, measured, saved_record
from trainers.tasks import registry, run_folders
from trainers.training import checkpoints, memory


def export(path: epath.Path, options: run_folders.ExportOptions) -> str:
    """Writes a run's best model as a new version of a served model; returns its folder.

    The served model takes unchanged images and puts their pixels in the run's order.

    Args:
        path: the run's folder.
        options: where to, and how.

    Raises:
        ValueError, OSError, WorkdirError: the run, the folder or the data cannot be used.
    """
    config = run_folders.load_config(path)
    task: Any = registry.get(config.task)
    record = saved_record(path)
    if not config.data.validation and options.precision != "float32":
        raise ValueError(
            f"--precision must be float32 for {path}, a run without the validation images that a "
            f"lower one is scored on. Received: --precision={options.precision}"
        )
    source, shape = task.images, task.images.sequence_shape
    memory.check_weights(models.parameters(config, shape[-1], len(source.classes)))
    model = models.classifier(
        config, shape, len(source.classes), record.get("permutation")
    )
    checkpoints.load_best(path, model)
    facts = run_folders.facts(path, config)
    facts |= task.data_facts(record.get("sha256", {}))
    if options.precision != "float32":
        experiment = SequenceExperiment(config, options.data_dir, path)
        experiment.check(path)
        facts |= _precision_facts(experiment, task.measure, model, options.precision)
    return export_classifier(
        model,
        options.output,
        labels=source.classes,
        inputs=tf.TensorSpec([None, *source.shape], tf.uint8, "images"),
        preprocess=functools.partial(images.as_sequences, source),
        precision=options.precision,
        runtime=options.runtime,
        facts=facts,
    )


def _precision_facts(
    experiment: SequenceExperiment,
    measure: Measure,
    model: keras.Model,
    precision: str,
) -> dict[str, str]:
    """Returns the line of the model card with the score before and after rounding."""
    scores = [
        experiment.task(candidate).score("validation")
        for candidate in (model, inference_model(model, precision))
    ]
    texts = [measure.text(measured(measure, score)) for score in scores]
    return run_folders.change(f"validation {measure.name}", precision, *texts)
