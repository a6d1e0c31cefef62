"""The experiment of `trainers.pixels`, and the evaluation of its runs."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from etils import epath
from matplotlib import figure
from ml_collections import ConfigDict

from keras_trellis.models import stem
from trainers.kinds.measures import Measure
from trainers.sequences import models
from trainers.sequences.layer import LayerExperiment, sequence_layer
from trainers.sequences.modeling import Score, SequenceModeling
from trainers.tasks import registry
from trainers.training import memory
from trainers.training.experiment import (
    DATA,
    PROTOCOL,
    SPLITS,
    Check,
    ExamplesExperiment,
    Scores,
)
from trainers.training.progress import literal
from trainers.training.workdir import RESTORE, WorkdirError, read_record

CONFUSION = "confusion.png"
_SHOWN_ERRORS = 5


class SequenceExperiment(LayerExperiment, ExamplesExperiment):
    """The experiment of a model of sequences.

    Args:
        config: the run's config.
        data_dir: the folder of the published files.
        path: the run's folder; an order of time steps that is kept there holds.
        permutation: the order of time steps of a new run; None to draw it if the task has one.

    Raises:
        ValueError, OSError: the data cannot be used.
    """

    examples, contents = "sequences", "data"

    def __init__(
        self,
        config: ConfigDict,
        data_dir: str | None,
        path: epath.Path,
        permutation: Sequence[int] | None = None,
    ) -> None:
        order = saved_record(path).get("permutation", permutation)
        task: Any = registry.get(config.task)
        super().__init__(config, task.load(config, data_dir, order))
        self._measure = task.measure
        _, *self._shape = self._data.train.inputs.shape
        self.check_batch_size()

    @property
    def splits(self) -> Sequence[str]:
        """Those of `SPLITS` that have examples."""
        return [split for split in SPLITS if len(getattr(self._data, split).inputs)]

    def need(self, config: ConfigDict) -> memory.Need:
        """Returns the memory that training on these data takes."""
        steps, channels = self._shape
        every_step = self._data.train.targets.ndim == 2
        return models.need(config, steps, channels, self._data.outputs, every_step)

    def build(self) -> keras.Model:
        """Returns the model, built."""
        return models.build(self._config, self._data)

    def parameters(self, config: ConfigDict) -> int:
        """Returns the number of parameters of a config's model on these data."""
        return models.parameters(config, self._shape[-1], self._data.outputs)

    def task(self, model: keras.Model) -> SequenceModeling:
        """Returns what the loop trains."""
        return SequenceModeling(model, self._config, self._data)

    def record(self) -> dict[str, Any]:
        """Returns what a run's folder keeps of its data, with the order of time steps."""
        return super().record() | {"permutation": self._data.permutation}

    def introduction(self, model: keras.Model) -> str:
        """Returns lines on the data and the model; warns if it cannot see all time steps."""
        steps = self._shape[0]
        reach = stem.receptive_field(
            getattr(model, "convolutions", ()), sequence_layer(model).receptive_field
        )
        line = f"{self._data.summary} of {steps:,} steps"
        if "validation" not in self.splits:
            line += "; no validation images, so that the last epoch is kept"
        if reach is None:
            return line
        line += f"; receptive field {reach:,} steps"
        if reach < steps:
            line += f"\nwarning: of the {steps:,} steps the network sees the last {reach:,} alone"
        return line

    def describe(self, split: str, score: Score) -> str:
        """Returns one line, as `describe` of this module."""
        return describe(self._measure, split, score)

    def complete(self, scores: Scores, task: Any, check: Check) -> Scores:
        """Tells the errors on the last split that is scored, and draws those on test data."""
        classes = self._data.classes
        if not classes:
            return scores
        *_, (split, numbers) = scores.values.items()
        matrix = np.array(numbers[PROTOCOL]["confusion"])
        lines = [f"{split}, {line}" for line in error_lines(matrix, classes)]
        scores = scores._replace(beside=tuple(lines))
        if split != "test":
            return scores
        picture = draw_confusion(matrix, classes)
        return scores._replace(pictures={CONFUSION: picture})

    def numbers(self, split: str, score: Score) -> dict[str, dict[str, Any]]:
        """Returns the numbers of a score; of classes with their confusion matrix."""
        numbers = {
            "loss": score.loss,
            self._measure.counted: score.targets,
            self._measure.name: measured(self._measure, score),
        }
        if score.right_answers is not None:
            numbers["right_answers"] = 100 * score.right_answers
        numbers |= {metric.name: value for metric, value in score.metrics.items()}
        if self._data.classes:
            numbers["confusion"] = self._confusion(split, score).tolist()
        return {PROTOCOL: numbers}

    def details(self, split: str, score: Score) -> list[str]:
        """Returns the lines of `error_lines` for a task with classes."""
        if not self._data.classes:
            return []
        lines = error_lines(self._confusion(split, score), self._data.classes)
        return [f"  {line}" for line in lines]

    def evaluate(self, path: epath.Path) -> None:
        """Prints the scores of a run's best model, if its weights fit in memory."""
        memory.check_weights(self.parameters(self._config))
        super().evaluate(path)

    def _confusion(self, split: str, score: Score) -> np.ndarray:
        targets, classes = getattr(self._data, split).targets, self._data.outputs
        return tf.math.confusion_matrix(targets, score.predictions, classes).numpy()


def describe(measure: Measure, split: str, score: Score) -> str:
    """Returns one line: the score of a split, with what it counts."""
    number = measure.format_score(measured(measure, score), score.targets)
    parts = [f"{split} {measure.name}: {number}"]
    if score.right_answers is not None:
        parts.append(f"{score.right_answers:.2%} of the answers right")
    parts += [metric.format(value) for metric, value in score.metrics.items()]
    return ", ".join(parts)


def error_lines(matrix: np.ndarray, classes: Sequence[str]) -> list[str]:
    """Returns lines: how much of each class is right, if there is any; the most frequent errors.

    Args:
        matrix: counts `[classes, classes]`, a row for each true class.
        classes: their names.
    """
    right = [
        f"{name}: {row[place] / row.sum():.2%}"
        for place, (name, row) in enumerate(zip(classes, matrix, strict=True))
        if row.sum()
    ]
    errors = np.where(np.eye(len(classes), dtype=bool), 0, matrix)
    places = np.argsort(-errors, axis=None, kind="stable")[:_SHOWN_ERRORS]
    wrong = [
        f"{classes[row]} taken for {classes[column]}: {errors[row, column]}"
        for row, column in zip(*np.unravel_index(places, errors.shape), strict=True)
        if errors[row, column]
    ]
    lines = [f"right by class: {', '.join(right)}"]
    if wrong:
        lines.append(f"most frequent errors: {', '.join(wrong)}")
    return lines


def draw_confusion(matrix: np.ndarray, classes: Sequence[str]) -> figure.Figure:
    """Draws a confusion matrix with its numbers; the diagonal has no colour."""
    picture = figure.Figure(figsize=(8, 7), layout="constrained")
    axes = picture.subplots()
    names = [literal(name) for name in classes]
    errors = np.where(np.eye(len(classes), dtype=bool), 0, matrix)
    axes.imshow(errors, cmap="Oranges")
    for (row, column), count in np.ndenumerate(matrix):
        if count:
            axes.text(column, row, f"{count:,}", ha="center", va="center")
    axes.set_xticks(range(len(names)), names, rotation=45 if len(classes[0]) > 1 else 0)
    axes.set_yticks(range(len(names)), names)
    right = np.trace(matrix) / matrix.sum()
    axes.set_title(f"test: {right:.2%} of {matrix.sum():,} right")
    axes.set(xlabel="taken for", ylabel="class")
    return picture


def measured(measure: Measure, score: Score) -> float:
    """Returns a score in a measure."""
    if score.accuracy is None or not measure.higher_is_better:
        return score.loss
    return 100 * score.accuracy


def saved_record(path: epath.Path) -> dict[str, Any]:
    """Returns a run's record of its data; raises WorkdirError if it is damaged."""
    record = read_record(path / DATA, {"sha256": dict}) or {}
    if record and not _is_order(record.get("permutation", "missing")):
        raise WorkdirError(
            f"{path / DATA} is damaged: `permutation` is neither null nor each of "
            f"0, ..., T - 1 once. {RESTORE}"
        )
    return record


def _is_order(value: Any) -> bool:
    if value is None:
        return True
    is_list = isinstance(value, list) and all(type(item) is int for item in value)
    return is_list and sorted(value) == list(range(len(value)))
