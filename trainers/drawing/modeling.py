"""Drawing images as a task of the training loop."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from ml_collections import ConfigDict

from keras_trellis.types import Tensor
from trainers.data.sequences import SequenceData
from trainers.drawing.model import DRAW
from trainers.training.experiment import ShuffledExamples
from trainers.training.schedules import WHOLE


class Score(NamedTuple):
    """The mean bound of images in nats.

    Attributes:
        reconstruction: the mean of -log p(image | canvas).
        kl: the mean of the steps' summed divergences.
        images: the number of images.
    """

    reconstruction: float
    kl: float
    images: int

    @property
    def parts(self) -> dict[str, float]:
        """Both parts by their names."""
        return {"reconstruction": self.reconstruction, "kl": self.kl}

    @property
    def loss(self) -> float:
        """The bound, the sum of both parts."""
        return self.reconstruction + self.kl


class DrawingImages(ShuffledExamples):
    """The loop's `Task` for DRAW, on batches (pixels, labels).

    Args:
        model: the model, built.
        config: the run's config.
        data: the images, uint8 `[N, height * width, C]`.
    """

    unit = "images"
    stages, allows_rewrites = WHOLE, True

    def __init__(self, model: DRAW, config: ConfigDict, data: SequenceData) -> None:
        super().__init__(config, data)
        self.model = model
        self._bound = tf.function(model.bound, reduce_retracing=True, autograph=False)

    def loss(self, batch: tuple, state: Any) -> tuple[Tensor, Tensor, Any, dict]:
        """Returns the bound summed over the images, their number, (), and the bound's parts."""
        pixels, _ = batch
        images = self.images(pixels)
        bound = self.model.bound(images)
        parts = {"reconstruction": bound.reconstruction, "kl": bound.kl}
        sums = {name: tf.reduce_sum(part) for name, part in parts.items()}
        rows = tf.shape(pixels)[0]
        count = tf.cast(rows, bound.kl.dtype)
        total = sums["reconstruction"] + sums["kl"]
        return total, count, state, sums

    def evaluate(self) -> dict[str, float]:
        """Returns the bound of the present weights on validation images, and its parts."""
        score = self.score("validation")
        return {"loss": score.loss, **score.parts}

    def display(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Returns the bound in nats and its parts."""
        parts = {name: metrics[name] for name in ("reconstruction", "kl")}
        return {"nats": metrics["loss"], **parts}

    def score(self, split: str) -> Score:
        """Returns the bound on a split; the noise depends on the seed and the place alone."""
        pixels, _ = getattr(self._data, split)
        size = self._config.evaluation.batch_size
        reconstruction = kl = 0.0
        starts = range(0, len(pixels), size)
        for number, start in enumerate(starts):
            part = tf.constant(pixels[start : start + size])
            images = self.images(part)
            seed = tf.constant([self._config.seed, number], "int64")
            noise = self.model.noise(len(images), seed)
            bound = self._bound(images, noise)
            reconstruction += float(np.sum(bound.reconstruction, dtype="float64"))
            kl += float(np.sum(bound.kl, dtype="float64"))
        count = len(pixels)
        return Score(reconstruction / count, kl / count, count)

    def images(self, pixels: Tensor) -> tf.Tensor:
        """Returns pixels `[B, height * width, C]` as images from 0 to 1."""
        shape = [-1, *self.model.image_shape]
        images = tf.reshape(pixels, shape)
        return tf.cast(images, self.model.compute_dtype) / 255

    def examples(self, count: int) -> Tensor:
        """Returns the first images of the validation part, from 0 to 1."""
        pixels = self._data.validation.inputs[:count]
        return self.images(tf.constant(pixels))
