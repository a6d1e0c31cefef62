"""What tasks on shuffled examples share, whatever they learn of them."""

from collections.abc import Mapping

import tensorflow as tf
from etils import epath
from ml_collections import ConfigDict

from trainers.data import files, shuffling
from trainers.data.sequences import SequenceData
from trainers.training import schedules
from trainers.training.stages import WHOLE, Stages
from trainers.training.workdir import WorkdirError, read_kept

DATA = "data.json"


class ShuffledExamples:
    """The part of the loop's `Task` that draws batches; nothing is carried between them.

    Args:
        config: The run's config.
        data: The examples.
    """

    stages: Stages = WHOLE
    allows_rewrites: bool = True

    def __init__(self, config: ConfigDict, data: SequenceData) -> None:
        self._config = config
        self._data = data
        size = config.data.batch_size
        self.steps_per_epoch = shuffling.steps_per_epoch(data.count, size)
        validation, test = (len(each.inputs) for each in (data.validation, data.test))
        # Without a backward pass, which takes twice as long as the forward pass.
        self.evaluation_steps = validation / size / 3
        self.scoring = (validation + test) / validation

    def dataset(self, first_step: int) -> tf.data.Dataset:
        """Returns the batches (inputs, targets) from a training step to the run's end."""
        config = self._config
        epochs = schedules.passes(config.training, self.steps_per_epoch)
        return self._data.batches(
            config.data.batch_size, config.seed, epochs, first_step
        )

    def initial_state(self) -> tuple[()]:
        """Returns (): nothing is carried from batch to batch."""
        return ()


def check_batch_size(count: int, batch_size: int, what: str) -> None:
    """Raises ValueError if a batch has more examples than there are.

    Args:
        count: The number of training examples.
        batch_size: The config's.
        what: What an example is, in the plural.
    """
    if batch_size > count:
        raise ValueError(
            f"`config.data.batch_size` must be at most {count}, the number of training "
            f"{what}. Received: config.data.batch_size={batch_size}"
        )


def check_replicas(count: int, batch_size: int, replicas: int, what: str) -> None:
    """Raises ValueError if replicas cannot share an epoch's batches, the last included."""
    if batch_size % replicas or count % batch_size % replicas:
        raise ValueError(
            f"`config.data.batch_size` must leave no rest that {replicas} replicas cannot share: "
            f"of {count:,} training {what} the last batch has {count % batch_size}. "
            f"Received: config.data.batch_size={batch_size}"
        )


def check_same(
    path: epath.Path,
    kept: Mapping[str, str] | None,
    found: Mapping[str, str],
    what: str,
) -> None:
    """Raises WorkdirError if a run was trained on other examples.

    Args:
        path: The run's folder.
        kept: The checksum of each split that the folder has; None if it has none yet.
        found: The checksum of each split.
        what: What the examples are, in the plural.
    """
    if kept is None:
        return
    if differing := [split for split in found if kept.get(split) != found[split]]:
        raise WorkdirError(
            f"{path} belongs to a run on other {what} ({', '.join(differing)}); "
            "give that run's data by --data_dir, or choose another --workdir"
        )


def check_images(path: epath.Path, found: Mapping[str, str]) -> None:
    """Raises WorkdirError if the folder's run was trained on other images.

    Args:
        path: The run's folder.
        found: The checksum of each split.
    """
    kept = read_kept(path / DATA, {"sha256": dict}) or {}
    check_same(path, kept.get("sha256"), found, "images")


def keep_images(path: epath.Path, found: Mapping[str, str]) -> None:
    """Records the images of a run in its folder, after `check_images`."""
    check_images(path, found)
    if not files.exists(path / DATA):
        files.write_json(path / DATA, {"sha256": found})
