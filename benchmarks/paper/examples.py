"""What `run.py` needs of a task on sequences: shuffled examples, the loss and the accuracy."""

from collections.abc import Iterable

import ml_collections
import numpy as np
import tensorflow as tf

from benchmarks.paper.lowering import Lowering, small, sums
from trainers.data import shuffling
from trainers.sequences import modeling, models
from trainers.tasks import sequences
from trainers.training import schedules
from trainers.training.experiment import SPLITS
from trainers.training.trainer import Trainer


class ExamplesRecipe:
    """The programs and data of a task on sequences whose examples are all there.

    Args:
        config: the config of a run.
        data_dir: the folder of the published files, or None.

    Attributes:
        task: what the loop trains.
        classes: the number of outputs.
        scores: the scores that each scoring program sums; the first one drives the schedule.
    """

    def __init__(self, config: ml_collections.ConfigDict, data_dir: str | None) -> None:
        if config.data.validation == 0:
            raise ValueError(
                "`config.data.validation` must be at least 1: a program chooses the best weights "
                "by it. Received: config.data.validation=0"
            )
        self._data = sequences.load(config, data_dir)
        model = models.build(config, self._data)
        self.task = modeling.SequenceModeling(model, config, self._data)
        self.classes = self._data.outputs
        self._config = config
        classifies = self._data.test.targets.dtype == np.int32
        self.scores = {"examples": ["loss", "accuracy"] if classifies else ["loss"]}

    def lower_training(
        self, lowering: Lowering, trainer: Trainer
    ) -> dict[str, np.ndarray]:
        """Lowers a step for whole batches and one for an epoch's last; returns the data."""

        def step(inputs, targets):
            metrics, _ = trainer.step((inputs, targets), ())
            return metrics["loss"], metrics["gradient_norm"]

        inputs, targets = self._data.train
        size, count = self._config.data.batch_size, self._data.count
        for rows in {size, count % size or size}:
            batch = tf.constant(inputs[:rows]), tf.constant(targets[:rows])
            lowering.add(f"step_{rows}", step, *batch)
        passes = schedules.passes(self._config.training, self.task.steps_per_epoch)
        order = [
            shuffling.order(count, self._config.seed, epoch) for epoch in range(passes)
        ]
        return {
            "train/inputs": small(inputs),
            "train/targets": small(targets),
            "train/order": small(np.stack(order)),
        }

    def lower_scoring(self, lowering: Lowering) -> dict[str, np.ndarray]:
        """Lowers the loss and the accuracy; returns the examples in pieces."""

        def score(inputs, targets, scored):
            losses, hits = self.task.target_scores(inputs, targets)
            scores = [losses] if hits is None else [losses, hits]
            return (sums(scored, *scores),)

        arrays = {}
        for split in SPLITS:
            pieces = self._pieces(*getattr(self._data, split))
            arrays |= lowering.add_scoring("examples", split, score, pieces)
        return arrays

    def _pieces(
        self, inputs: np.ndarray, targets: np.ndarray
    ) -> Iterable[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Returns batches of inputs and targets, and what is scored, all of one size."""
        size = self._config.evaluation.batch_size
        for start in range(0, len(inputs), size):
            chosen = np.arange(start, start + size)
            scored = np.zeros([size, *targets.shape[1:]], bool)
            scored[chosen < len(inputs)] = True
            # Those too many are examples again, that are not scored.
            chosen = chosen % len(inputs)
            yield inputs[chosen], targets[chosen], scored
