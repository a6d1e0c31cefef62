"""Data of the tasks on sequences."""

from collections.abc import Sequence
from typing import Any

from etils import epath

from trainers.data import sequences
from trainers.data.sequences import SequenceData
from trainers.tasks import registry
from trainers.tasks.task import AlgorithmTask, ImageTask


def load(
    config: Any,
    data_dir: epath.PathLike | None = None,
    cache_dir: epath.PathLike | None = None,
    permutation: Sequence[int] | None = None,
) -> SequenceData:
    """Loads the data of a run.

    Args:
        config: the run's config, of a task on images or of one that is drawn from the seed.
        data_dir: the folder of the published files; None to download them.
        cache_dir: a local folder for downloads; see `images.load`.
        permutation: the order that a run was begun with; None to draw it if the task has one.

    Raises:
        ValueError, OSError: the data cannot be used, or do not suit the config.
    """
    task: Any = registry.get(config.task)
    data = config.data
    if isinstance(task, ImageTask):
        return sequences.from_images(
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
    return _drawn(task, config)


def _drawn(task: Any, config: Any) -> SequenceData:
    """Returns data that are drawn from the seed."""
    data = config.data
    lengths = [data[split] for split in sequences.SPLITS]
    if isinstance(task, AlgorithmTask):
        from trainers.data import algorithms, streamed  # they need TensorFlow

        algorithm = task.algorithm(data)
        _check(algorithm, algorithms.LARGEST, config)
        return streamed.streamed(algorithm, lengths, config.seed)
    return sequences.generated(
        task.draw, lengths, data.steps, config.seed, task.outputs
    )


def _check(algorithm: Any, largest: int, config: Any) -> None:
    """Refuses examples that cannot be counted, and a run that would have to repeat them."""
    data, training = config.data, config.training
    if max(algorithm.sizes) > largest:
        raise ValueError(
            "(`config.data.kinds` - 1) to the power of half of `config.data.symbols` must be below "
            f"2**62. Received: config.data.kinds={data.kinds}, config.data.symbols={data.symbols}"
        )
    steps = training.steps or training.epochs * -(-data.train // data.batch_size)
    held_out, read = data.validation + data.test, steps * data.batch_size
    if held_out + read > algorithm.examples:
        raise ValueError(
            f"a run of --task={config.task} sees each example once, and there are "
            f"{algorithm.examples:,}. Received: {held_out:,} that are held out and {read:,} to "
            "train on (config.training.epochs, config.data.train)"
        )
