"""Data of the tasks on sequences."""

from collections.abc import Sequence
from typing import Any

from etils import epath

from trainers.data import sequences
from trainers.data.sequences import SequenceData
from trainers.tasks import registry
from trainers.tasks.task import ImageTask


def load(
    config: Any,
    data_dir: epath.PathLike | None = None,
    cache_dir: epath.PathLike | None = None,
    permutation: Sequence[int] | None = None,
) -> SequenceData:
    """Loads the data of a run.

    Args:
        config: The run's config, of a task on images or of a generated one.
        data_dir: The folder of the published files; None to download them.
        cache_dir: A local folder for downloads; see `images.load`.
        permutation: The order that a run was begun with; None to draw it if the task has one.

    Raises:
        ValueError, OSError: The data cannot be used, or do not suit the config.
    """
    task: Any = registry.get(config.task)
    data = config.data
    if isinstance(task, ImageTask):
        return sequences.of_images(
            task.images,
            data.validation,
            config.seed,
            permuted=task.permuted,
            permutation=permutation,
            data_dir=data_dir,
            cache_dir=cache_dir,
        )
    if data_dir is not None:
        raise ValueError(
            f"--data_dir has no use for --task={config.task}, which is drawn from the seed. "
            f"Received: --data_dir={data_dir}"
        )
    lengths = [data[split] for split in sequences.SPLITS]
    return sequences.generated(
        task.draw, lengths, data.steps, config.seed, task.outputs
    )
