"""Sequences by task: images read pixel by pixel, and generated tests of memory.

seq_mnist       MNIST, row by row
permuted_mnist  MNIST, in an order drawn from the seed, the same for all images
seq_cifar10     CIFAR-10, row by row, three channels
copy_memory     ten symbols to say again after a delay
adding          two numbers to add, among many
"""

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from etils import epath

from trainers.data import images, long_memory
from trainers.data.long_memory import Examples
from trainers.tasks.names import IMAGES

SPLITS = ("train", "validation", "test")
IMAGE_SETS = {"seq_mnist": "mnist", "permuted_mnist": "mnist", "seq_cifar10": "cifar10"}
_GENERATED = {"copy_memory": long_memory.copy_memory, "adding": long_memory.adding}


@dataclasses.dataclass(frozen=True)
class SequenceData:
    """What a task on sequences trains on and is measured by.

    Attributes:
        train: The training examples.
        validation: Likewise, to choose the best weights by.
        test: Likewise, to be scored once.
        normalise: Makes of inputs what the network reads, float32.
        outputs: How many numbers the network gives a label or a value.
        classes: The name of each class of images; empty for other tasks.
        permutation: The order in which the network reads the steps, or None.
    """

    train: Examples
    validation: Examples
    test: Examples
    normalise: Callable[[tf.Tensor], tf.Tensor]
    outputs: int
    classes: tuple[str, ...] = ()
    permutation: tuple[int, ...] | None = None

    def checksums(self) -> dict[str, str]:
        """Returns the SHA-256 of each split's inputs and targets."""
        return {split: _checksum(getattr(self, split)) for split in SPLITS}


def load(
    config: Any,
    data_dir: epath.PathLike | None = None,
    cache_dir: epath.PathLike | None = None,
    permutation: Sequence[int] | None = None,
) -> SequenceData:
    """Loads the data of a run.

    Args:
        config: The run's config, of one of the tasks above.
        data_dir: The folder of the published files; None to download them.
        cache_dir: A local folder for downloads; see `images.load`.
        permutation: The order that a run was begun with; None to draw it where the task has one.

    Raises:
        ValueError, OSError: The data cannot be used, or does not suit the config.
    """
    if config.task in IMAGES:
        return _load_images(config, data_dir, cache_dir, permutation)
    if data_dir is not None:
        raise ValueError(
            f"--data_dir has no use for --task={config.task}, which is drawn from the seed. "
            f"Received: --data_dir={data_dir}"
        )
    return _generate(config)


def _load_images(
    config: Any,
    data_dir: epath.PathLike | None,
    cache_dir: epath.PathLike | None,
    permutation: Sequence[int] | None,
) -> SequenceData:
    name = IMAGE_SETS[config.task]
    found = images.load(name, data_dir, cache_dir)
    _check_validation(config.data.validation, len(found.train.labels))
    train, validation = images.split(found.train, config.data.validation, config.seed)
    if config.task == "permuted_mnist" and permutation is None:
        steps = train.pixels.shape[1]
        permutation = np.random.default_rng(config.seed).permutation(steps).tolist()
    return SequenceData(
        Examples(*train),
        Examples(*validation),
        Examples(*found.test),
        functools.partial(images.normalise, name),
        len(found.classes),
        found.classes,
        None if permutation is None else tuple(permutation),
    )


def _generate(config: Any) -> SequenceData:
    data = config.data
    # A generator each: the length of one split changes nothing in the others.
    generators = map(np.random.default_rng, np.random.SeedSequence(config.seed).spawn(len(SPLITS)))
    train, validation, test = (
        _GENERATED[config.task](data[split], data.steps, generator)
        for split, generator in zip(SPLITS, generators, strict=True)
    )
    outputs = long_memory.CLASSES if config.task == "copy_memory" else 1
    return SequenceData(train, validation, test, lambda x: tf.cast(x, tf.float32), outputs)


def _check_validation(validation: int, count: int) -> None:
    if validation >= count:
        raise ValueError(
            f"`config.data.validation` must be at most {count - 1}, as there are {count} training "
            f"images. Received: config.data.validation={validation}"
        )


def _checksum(examples: Examples) -> str:
    digest = hashlib.sha256()
    for array in examples:
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
