"""Examples, such as images read pixel by pixel: the batches of a run, its loss, and its scores."""

import functools
import math
from typing import Any

import jax
import numpy as np
from etils import epath
from jax import numpy as jnp
from ml_collections import ConfigDict

from trainers.data import files, images, shuffling
from trainers.data.long_memory import Examples as Arrays
from trainers.data.sequences import SequenceData
from trainers.papers.step import State, bound
from trainers.sequences import models
from trainers.sequences.layer import TrainedLayer
from trainers.tasks import registry
from trainers.training.experiment import DATA, PROTOCOL
from trainers.training.workdir import WorkdirError, read_record

Scores = dict[str, dict[str, Any]]


class Examples(TrainedLayer):
    """A model of sequences and its examples.

    Args:
        config: the run's config.
        data: the examples.

    Attributes:
        model: the model, built.
        count: the number of training steps that read all examples once.
        measure: the task's measure.
        guess: the loss of equal probabilities; infinity for values.

    Raises:
        ValueError: there are fewer examples than a batch has, or none to validate on.
    """

    def __init__(self, config: ConfigDict, data: SequenceData) -> None:
        size = config.data.batch_size
        if size > data.count:
            raise ValueError(
                f"`config.data.batch_size` must be at most {data.count}, the number of training "
                f"examples. Received: config.data.batch_size={size}"
            )
        if config.data.validation == 0:
            raise ValueError(
                "`config.data.validation` must be at least 1: it chooses the best weights. "
                "Received: config.data.validation=0"
            )
        self._config, self._data = config, data
        self.measure = registry.get(config.task).measure
        self._smoothing = config.training.get("label_smoothing", 0.0)
        self.count = shuffling.steps_per_epoch(data.count, size)
        self.model = models.build(config, data)
        self.guess = math.log(len(data.classes)) if data.classes else math.inf
        self._score = jax.jit(self._scored)

    @functools.lru_cache(maxsize=1)  # noqa: B019 - it lives as long as its run
    def _order(self, done: int) -> np.ndarray:
        return shuffling.order(self._data.count, self._config.seed, done)

    def batch(self, step: int) -> tuple[list[np.ndarray], int]:
        """Returns the inputs and targets of a step of the run, and their number of time steps."""
        (done, at), size = divmod(step, self.count), self._config.data.batch_size
        chosen = self._order(done)[at * size : (at + 1) * size]
        inputs, targets = self._data.train
        return [inputs[chosen], targets[chosen]], inputs.shape[1]

    def first_state(self) -> tuple[()]:
        """Returns (): nothing is carried from batch to batch."""
        return ()

    def loss(self, batch: list, carried: tuple, depth: int | None) -> tuple:
        """Returns the loss summed over the targets; see `step.Loss`."""
        inputs, targets = batch
        stage = {} if depth is None else {"depth": depth}
        outputs = self.model(self._data.normalise(inputs), training=True, **stage)
        total = jnp.sum(_losses(targets, outputs, self._smoothing))
        return total, jnp.float32(targets.size), total, carried

    def validation(self, values: State) -> dict[str, float]:
        """Returns the loss by which the best epoch is chosen, and the measure."""
        score = self.scores(values, "validation")[PROTOCOL]
        return {name: score[name] for name in ("loss", self.measure.name)}

    def scores(self, values: State, split: str) -> Scores:
        """Returns the scores of a split, as `trainers.pixels` keeps them."""
        losses, hits = self._each(values, split)
        loss, accuracy = float(losses.mean()), 100 * float(hits.mean())
        value = accuracy if self.measure.higher_is_better else loss
        numbers = {"loss": loss, self.measure.counted: losses.size}
        return {PROTOCOL: {**numbers, self.measure.name: value}}

    def _each(self, values: State, split: str) -> tuple[np.ndarray, np.ndarray]:
        """Returns the loss of each target in float64, and whether it is right."""
        inputs, targets = getattr(self._data, split)
        size, losses, hits = self._config.evaluation.batch_size, [], []
        for start in range(0, len(inputs), size):
            # Those too many are examples again, so that all batches have one shape.
            chosen = np.arange(start, start + size) % len(inputs)
            loss, hit = self._score(values, inputs[chosen], targets[chosen])
            losses.append(np.asarray(loss, "float64"))
            hits.append(np.asarray(hit))
        count = len(inputs)
        return np.concatenate(losses)[:count], np.concatenate(hits)[:count]

    def _scored(self, values, inputs, targets):
        with bound(self.model, values):
            outputs = self.model(self._data.normalise(inputs), training=False)
        return _losses(targets, outputs), jnp.argmax(outputs, axis=-1) == targets


def _losses(targets: jax.Array, outputs: jax.Array, smoothing: float = 0.0) -> Any:
    """Returns the cross entropy of each class, or the squared error of each value.

    Args:
        targets: classes or values.
        outputs: logits of the classes, or values.
        smoothing: the share of a class that all classes get, in equal parts.
    """
    if not jnp.issubdtype(targets.dtype, jnp.integer):
        return jnp.square(jnp.squeeze(outputs, -1) - targets)
    precise = jnp.promote_types(outputs.dtype, "float32")
    logs = jax.nn.log_softmax(outputs.astype(precise))
    right = jnp.take_along_axis(logs, targets[..., None], axis=-1)[..., 0]
    if not smoothing:
        return -right
    return -(1 - smoothing) * right - smoothing * jnp.mean(logs, axis=-1)


def load(config: ConfigDict, data_dir: str | None, path: epath.Path) -> tuple:
    """Loads the examples of a run.

    Returns:
        the `Examples`, and a function that binds the run's folder to them.

    Raises:
        ValueError, OSError, WorkdirError: the examples cannot be used.
    """
    record = read_record(path / DATA, {"sha256": dict}) or {}
    task: Any = registry.get(config.task)
    data = task.load(config, data_dir, record.get("permutation"))
    made, checksums = Examples(config, data), data.checksums()
    if record and record["sha256"] != checksums:
        raise WorkdirError(
            f"{path} belongs to a run on other data; give that run's data by --data_dir, or "
            "choose another --workdir"
        )

    def keep() -> None:
        if not record:
            order = {"permutation": data.permutation}
            files.write_json(path / DATA, {"sha256": checksums, **order})

    return made, keep


def drawn(config: ConfigDict, count: int, classes: int) -> tuple[Examples, int]:
    """Returns a model with drawn images, and the training steps of a pass over the real ones.

    Args:
        config: the run's config.
        count: the number of real training images.
        classes: their classes.
    """
    task: Any = registry.get(config.task)
    size, rng = config.data.batch_size, np.random.default_rng(0)
    pixels = rng.integers(256, size=(size, *task.images.sequence_shape), dtype="uint8")
    part = Arrays(pixels, rng.integers(classes, size=size, dtype="int32"))
    normalise = functools.partial(images.normalise, task.images)
    data = SequenceData(part, part, part, normalise, classes, task.images.classes)
    return Examples(config, data), -(-count // size)
