"""What a classifier of images has in common with the authors' code; see `language.authors`."""

import dataclasses
import functools
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from ml_collections import ConfigDict

from keras_trellis import arguments
from trainers.authors import beside, released
from trainers.authors.released import Arrays
from trainers.data import files
from trainers.data.sequences import SequenceData
from trainers.data.stores import to_path
from trainers.sequences import models as networks
from trainers.sequences.experiment import SequenceExperiment
from trainers.sequences.modeling import SequenceModeling
from trainers.tasks import registry

SCORED: dict[str, Any] = {}
_PIXELS = 28 * 28


def is_permuted(task: str) -> bool:
    """Returns whether a task has an order of its pixels."""
    known: Any = registry.get(task)
    return known.permuted


def make_comparable(config: ConfigDict) -> None:
    """Raises ValueError for what their code lacks."""
    task: Any = registry.get(config.task)
    outputs, classes = config.model.output_units, len(task.images.classes)
    if outputs != classes:  # their linear map is square
        expected = f"{classes}, the number of classes, as in the authors' code"
        raise arguments.refusal("config.model.output_units", outputs, expected)
    if smoothing := config.training.label_smoothing:
        expected = "0.0, as in the authors' code"
        raise arguments.refusal("config.training.label_smoothing", smoothing, expected)
    if filters := config.model.stem.filters:
        expected = "(), as in the authors' code"
        raise arguments.refusal("config.model.stem.filters", filters, expected)


class OurClassifier(beside.InTraining):
    """Our classifier of pixel sequences.

    Args:
        config: from `trainers.verify.comparable`.
        weights: the authors' weights, as `convert.classifier_from_torch` takes them.
        data: the images.
    """

    def __init__(self, config: ConfigDict, weights: Arrays, data: SequenceData):
        self._permutation, self._normalise = data.permutation, data.normalise
        # A graph may round the normalisation in another way than the next: `batches` has it.
        data = dataclasses.replace(data, normalise=lambda normalised: normalised)
        model = networks.build(config, data)
        super().__init__(config, weights, model, SequenceModeling(model, config, data))

    def from_theirs(self, arrays: Arrays) -> Any:
        """Returns a classifier with arrays that have the names of their weights."""
        return released.classifier(arrays, self._config, self._permutation)

    def batches(self) -> Iterator[Any]:
        """Returns the batches of the run, (normalised images `[B, T, p]`, labels `[B]`)."""
        for pixels, labels in super().batches():
            yield self._normalise(pixels), labels

    def read_by_them(self, batch: Any) -> tuple[np.ndarray, np.ndarray]:
        """Returns the images in the order in which the pixels are read, and the labels.

        Order and normalisation stand in their script, outside of their model.
        """
        images, labels = (part.numpy() for part in batch)
        if self._permutation is not None:
            images = images[:, list(self._permutation)]
        return images, labels

    def _outputs(self, inputs: Any, state: Any) -> dict[str, tf.Tensor]:
        """Returns the log-probabilities of the classes, `[B, classes]`."""
        return {"log_probs": tf.nn.log_softmax(self.model(inputs))}


def models(
    clone: str, config: ConfigDict, data_dir: str | None
) -> tuple[Any, OurClassifier]:
    """Returns their classifier, by a clone of their code, and ours."""
    reference = beside.reference_module(clone, "seq_MNIST_CIFAR/model")
    task: Any = registry.get(config.task)
    data = task.load(config, data_dir)
    theirs = reference.PixelReference(clone, config, data.train.inputs.shape[-1])
    return theirs, OurClassifier(config, theirs.weights(), data)


def imported(weights: released.Weights) -> released.Imported:
    """Returns what a file of weights becomes."""
    order = _permutation(weights)
    make = functools.partial(released.classifier, permutation=order)
    source, config = released.read(weights, make)
    experiment = SequenceExperiment(config, weights.data_dir, weights.path, order)
    model = experiment.build()
    released.give_weights(model, source)
    return model, config, experiment.keep, f"{source.classes} classes"


def _permutation(weights: released.Weights) -> list[int] | None:
    """Returns the order of the pixels; None for their own order."""
    if not is_permuted(weights.config.task):
        return None
    if not weights.permutation:
        raise ValueError(
            "--permutation is missing: the authors' script draws the order of the pixels anew in "
            "each process and does not save it; expected the file of "
            '`np.save("order.npy", permute.cpu().numpy())`, from the process that trained'
        )
    file = to_path(weights.permutation)
    files.check_regular(file, "permutation")
    try:
        with file.open("rb") as stream:
            order = np.load(stream, allow_pickle=False)
    except (ValueError, EOFError, MemoryError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{file} is no file of integers that `np.save` wrote, or is cut short"
        ) from error
    # An .npz file is no array.
    is_array = isinstance(order, np.ndarray) and order.dtype.kind in "iu"
    numbers = order.ravel().tolist() if is_array else []
    if sorted(numbers) != list(range(_PIXELS)):
        raise ValueError(
            f"{file} must have each of the integers 0, ..., {_PIXELS - 1} once"
        )
    return numbers
