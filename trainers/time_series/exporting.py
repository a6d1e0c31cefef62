"""Exports a run's best model of recordings: what it knows of its data travels with it."""

import functools
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from etils import epath

from keras_trellis import TrellisClassifier
from keras_trellis.export import export_classifier, inference_model, saving, versions
from keras_trellis.export.cards import card
from keras_trellis.export.checks import Tensors, sequences_and_mask
from keras_trellis.export.saving import Companions, Signature
from keras_trellis.export.weights import Weights, fingerprint
from keras_trellis.types import Tensor
from trainers.data.recordings import Facts
from trainers.sequences.layer import sequence_layer
from trainers.tasks import registry, run_folders
from trainers.time_series import experiment, models, objectives

Scale = Callable[[Tensor], Tensor]
"""Scales sequences `[B, T, p]`."""

_REFUSAL = "`keras_trellis.serving` runs language models, and classifiers of sequences"
_WINDOWS = 250  # in a call
_STATED = {
    "Intended use": "answers for recordings like those of the training data",
    "Limits": "It answers whatever it is given. Leave out a step that lacks a channel: the model "
    "has skipped those in training.",
}


def export(path: epath.Path, options: run_folders.ExportOptions) -> str:
    """Writes a run's best model as a new version of a served model; returns its folder.

    The served model takes recordings as the files have them, and their lengths.

    Args:
        path: the run's folder.
        options: where to, and how. A model without one class for each recording has no precision
            below float32, and no form for `runtime`.

    Raises:
        ValueError, OSError, WorkdirError: the run, the folder or the data cannot be used.
    """
    config = run_folders.load_config(path)
    facts, checksums = experiment.saved_record(path)
    card_facts = run_folders.facts(path, config)
    card_facts |= registry.get(config.task).data_facts(checksums) | _channels(facts)
    model = experiment.load_model(path, config, facts)
    if facts.every_step or not facts.classes:
        if options.precision != "float32":
            raise ValueError(
                "--precision must be float32 for a model without one class for each recording. "
                f"Received: --precision={options.precision}"
            )
        task: Any = registry.get(config.task)
        ahead = config.data.ahead if task.objective == "next_step" else 0
        return _save(Endpoints(model, facts, ahead), options.output, card_facts)
    classifier, scaled = models.classifier(model, facts)
    if options.precision != "float32":
        loaded = experiment.SeriesExperiment(config, options.data_dir)
        loaded.check(path)
        objective = objectives.Classes(config, loaded.data)
        card_facts |= _precision_facts(objective, classifier, scaled, options.precision)
    return export_classifier(
        classifier,
        options.output,
        labels=facts.classes,
        preprocess=scaled,
        precision=options.precision,
        runtime=options.runtime,
        facts=card_facts,
    )


def _channels(facts: Facts) -> dict[str, str]:
    """Returns the rows of the model card about a recording."""
    rows = {"Channels": ", ".join(facts.channels), **_STATED}
    if facts.period is not None:
        rows["Time between two steps"] = f"{facts.period:g}"
    return rows


def _precision_facts(
    objective: objectives.Classes,
    classifier: TrellisClassifier,
    scaled: Scale,
    precision: str,
) -> dict[str, str]:
    """Returns the line of the model card with the score before and after rounding."""
    texts = []
    for candidate in (classifier, inference_model(classifier, precision)):
        score = objective.window_score("validation", _outputs(candidate, scaled))
        texts.append(f"{score.values['accuracy']:.2f} %")
    return run_folders.change("validation accuracy", precision, *texts)


def _outputs(model: TrellisClassifier, scaled: Scale) -> objectives.Outputs:
    """Returns what runs a classifier over windows."""

    @tf.function(autograph=False)
    def run(window: Tensor) -> Tensor:
        mask = models.whole(window)
        return model(scaled(models.without_gaps(window, mask)), mask=mask)

    def outputs(windows: np.ndarray) -> np.ndarray:
        parts = np.array_split(windows, -(-len(windows) // _WINDOWS))
        return np.concatenate([run(tf.constant(part)).numpy() for part in parts])

    return outputs


class Endpoints:
    """The signature of a model of recordings that gives no class for each of them.

    Args:
        model: the model.
        facts: what it knows of its data.
        ahead: how many steps later the step is whose surprise it gives; 0: it gives answers.
    """

    def __init__(self, model: keras.Sequential, facts: Facts, ahead: int) -> None:
        self.model, self._facts, self._ahead = model, facts, ahead

    def signatures(self) -> dict[str, Signature]:
        """Returns the signatures by name."""
        steps, channels = self._ahead + 1, len(self._facts.channels)
        specs = {
            "sequences": tf.TensorSpec([None, None, channels], tf.float32, "sequences"),
            "lengths": tf.TensorSpec([None], tf.int32, "lengths"),
        }
        example = {
            "sequences": tf.zeros([1, steps, channels]),
            "lengths": tf.fill([1], steps),
        }
        signature = Signature(self.answer, specs, example)
        return {"serving_default": signature, "serve": signature}

    def answer(self, sequences: Tensor, lengths: Tensor) -> Tensors:
        """Answers recordings.

        Args:
            sequences: `[B, T, p]`.
            lengths: `[B]`, the number of steps of each, at least 1.

        Returns:
            `values` `[B]` or `[B, T, outputs]`; or `probabilities` `[B, T, classes]` and `labels`
            `[B, T]`; or `scores` `[B, T - ahead]`. At padding they say nothing.
        """
        sequences, mask = sequences_and_mask(sequences, lengths)
        outputs = models.run(self.model, models.without_gaps(sequences, mask), mask)
        if self._ahead:
            padded = tf.where(mask[..., None], sequences, float("nan"))
            terms = objectives.next_step_terms(
                self._facts, self._ahead, padded, outputs
            )
            return {"scores": terms.losses * terms.known}
        if not self._facts.classes:
            return {"values": outputs if self._facts.every_step else outputs[:, 0]}
        labels = tf.gather(tf.constant(self._facts.classes), tf.argmax(outputs, -1))
        return {"probabilities": tf.nn.softmax(outputs), "labels": labels}


def _save(endpoints: Endpoints, output: str, facts: Mapping[str, str]) -> str:
    """Writes a version; returns its folder."""
    saving.check_requirements()
    versions.check_folder(output)
    model = endpoints.model
    described: Any = SimpleNamespace(
        count_params=model.count_params, trellis=sequence_layer(model)
    )

    describe = functools.partial(card, "A model of recordings", facts, described)
    beside = Companions("recordings", fingerprint(model, ()), refusal=_REFUSAL)
    weights, signatures = Weights(model, "float32"), endpoints.signatures()
    return saving.save(signatures, weights, {}, output, describe, beside)
