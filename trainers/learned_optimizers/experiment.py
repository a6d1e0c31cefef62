"""The experiment of `trainers.meta`."""

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from etils import epath
from ml_collections import ConfigDict

from trainers.data import sequences
from trainers.data.image_files import Images
from trainers.data.sequences import SequenceData
from trainers.learned_optimizers import modeling, optimizees
from trainers.learned_optimizers.core import GATED, UpdateNetwork
from trainers.learned_optimizers.modeling import MetaTraining, Score
from trainers.learned_optimizers.optimizees import Optimizee, Quadratics
from trainers.learned_optimizers.optimizer import RecurrentOptimizer
from trainers.learned_optimizers.tasks import MEAN_LOSS
from trainers.models.cells import CELLS
from trainers.tasks import registry
from trainers.training import announcing, checkpoints, memory
from trainers.training.experiment import PROTOCOL, Check, ExamplesExperiment, Scores
from trainers.training.workdir import WorkdirError

OPTIMIZER = "optimizer.npz"
# Measured: the numbers that a step keeps for a unit of a cell, of a coordinate.
_NUMBERS_A_UNIT = 18
# Three gates and a candidate, which every cell needs again for the gradient.
_LEAST_A_UNIT = 4


class MetaExperiment(ExamplesExperiment):
    """The experiment of learning to learn.

    Args:
        config: the run's config.
        data_dir: the folder of the published files of images.
        path: the run's folder.

    Raises:
        ValueError, OSError: the images cannot be used, or do not suit the config.
    """

    def __init__(
        self, config: ConfigDict, data_dir: str | None, path: epath.Path
    ) -> None:
        super().__init__(config, load_images(config, data_dir))
        self._path = path
        self._optimizees = split_optimizees(config, self._data)

    def check_replicas(self, replicas: int) -> None:
        """Raises ValueError for several replicas: one optimization cannot be shared."""
        if replicas > 1:
            raise ValueError(
                "--distribute must be none: an optimization goes on from its last step. "
                f"Received: {replicas} replicas"
            )

    def need(self, config: ConfigDict) -> memory.Need:
        """Returns the memory that a truncation takes: each step keeps all gates."""
        data, model = config.data, config.model
        coordinates = modeling.draws(config) * self._size(config)
        units = coordinates * data.unroll * model.layers * model.units
        return memory.training(
            config, 0, _LEAST_A_UNIT * units, _NUMBERS_A_UNIT * units
        )

    def _size(self, config: ConfigDict) -> int:
        """Returns the coordinates of what a config optimizes."""
        sizes = [
            [values.data.get(name) for name in ("dimensions", *_SIZES)]
            for values in (config, self._config)
        ]
        if sizes[0] == sizes[1]:
            return self._optimizees["train"].size
        return split_optimizees(config, self._data)["train"].size

    def build(self) -> UpdateNetwork:
        """Returns the network, built."""
        return build(self._config)

    def task(self, model: UpdateNetwork) -> MetaTraining:
        """Returns what the loop trains."""
        return MetaTraining(model, self._config, self._optimizees)

    def introduction(self, model: UpdateNetwork) -> str:
        """Returns a line on what is optimized, and the network."""
        size = self._optimizees["train"].size
        return (
            f"{modeling.draws(self._config)} x {size:,} coordinates at once; the last cell has "
            f"{model.cells[-1].count_params():,} of the parameters"
        )

    def complete(self, scores: Scores, task: Any, check: Check) -> Scores:
        """Writes the optimizer."""
        check()
        self._save(task.model)
        return scores

    def describe(self, split: str, score: Score) -> str:
        """Returns one line: the mean loss of a split's steps, and that of the last."""
        mean = MEAN_LOSS.format_score(score.mean, score.draws)
        return f"{split} {MEAN_LOSS.name}: {mean}, last {MEAN_LOSS.text(score.final)}"

    def numbers(self, split: str, score: Score) -> dict[str, dict[str, Any]]:
        """Returns both losses of a split, and how many draws they are of."""
        losses = {MEAN_LOSS.name: score.mean, "last_loss": score.final}
        return {PROTOCOL: {**losses, MEAN_LOSS.counted: score.draws}}

    def observe(self, losses: Sequence[float]) -> None:
        """Writes the optimizer if the last of the validation losses is the best.

        A run that goes on has weights of a later step. So the best weights are read.
        """
        if losses[-1] > min(losses):
            return
        network = self.build()
        try:
            checkpoints.load_best(self._path, network)
        except WorkdirError:
            return  # they are not on disk, which the loop has told
        self._save(network)

    def _save(self, network: UpdateNetwork) -> None:
        path = self._path / OPTIMIZER
        with announcing.going_on_without(path):
            RecurrentOptimizer(network).save(path)


load = MetaExperiment


def build(config: ConfigDict) -> UpdateNetwork:
    """Returns the network of a config."""
    model = config.model
    cells = [
        CELLS[model.cell](model.units, name=f"cell_{number}")
        for number in range(model.layers)
    ]
    return UpdateNetwork(
        cells,
        update=model.update_rule,
        scale=None if model.update_rule == GATED else model.scale,
        projection=model.projection,
        p=model.p,
        name="network",
    )


def load_images(config: ConfigDict, data_dir: str | None) -> SequenceData | None:
    """Loads the images of a run; returns None if its task has none.

    Raises:
        ValueError, OSError: the images cannot be used, or are too few.
    """
    task: Any = registry.get(config.task)
    if task.images is None:
        return None
    return sequences.from_images(
        task.images,
        config.data.validation,
        config.seed,
        permuted=False,
        data_dir=data_dir,
    )


def split_optimizees(
    config: ConfigDict, data: SequenceData | None, **changes: Any
) -> Mapping[str, Optimizee]:
    """Returns what is optimized on each split.

    Args:
        config: the run's config.
        data: from `load_images`.
        **changes: other arguments of the task's function of `optimizees`.
    """
    if data is None:
        return dict.fromkeys(
            (*sequences.SPLITS, "tuning"),
            Quadratics(changes.get("size", config.data.dimensions)),
        )
    make = getattr(optimizees, _NETWORKS[config.task])
    # Tensors, as a graph would copy arrays.
    splits = {
        split: Images(*map(tf.constant, getattr(data, split)))
        for split in sequences.SPLITS
    }
    splits["tuning"] = splits["validation"]
    size = config.data.batch_size
    own = {name: config.data[name] for name in _SIZES if name in config.data}
    own["classes"] = len(data.classes)
    return {split: make(part, size, **own | changes) for split, part in splits.items()}


_NETWORKS = {
    "mnist_mlp": "perceptrons",
    "cifar10_cnn": "convolutional",
    "cifar10_resnet": "residual",
}
_SIZES = ("depth", "channels")
