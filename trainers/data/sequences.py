"""Data of the tasks on sequences: images read pixel by pixel, and sequences drawn from a seed.

tensorflow-datasets has no reader of the published files, nor a fixed order of pixels for all
images, nor generated tasks: these are here.
"""

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from etils import epath

from trainers.data import images
from trainers.data.long_memory import Examples

SPLITS = ("train", "validation", "test")


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


def of_images(
    source: images.ImageSource,
    validation: int,
    seed: int,
    *,
    permuted: bool,
    permutation: Sequence[int] | None = None,
    data_dir: epath.PathLike | None = None,
    cache_dir: epath.PathLike | None = None,
) -> SequenceData:
    """Loads images.

    Args:
        source: Where they come from.
        validation: How many training images to set aside.
        seed: What decides which, and the order of the pixels.
        permuted: Whether pixels are read in an order drawn from the seed.
        permutation: The order that a run was begun with; None to draw it.
        data_dir: The folder of the published files; None to download them.
        cache_dir: A local folder for downloads; see `images.load`.

    Raises:
        ValueError, OSError: The images cannot be used, or are too few.
    """
    found = images.load(source, data_dir, cache_dir)
    _check_validation(validation, len(found.train.labels))
    train, aside = images.split(found.train, validation, seed)
    if permuted and permutation is None:
        steps = train.pixels.shape[1]
        permutation = np.random.default_rng(seed).permutation(steps).tolist()
    return SequenceData(
        Examples(*train),
        Examples(*aside),
        Examples(*found.test),
        functools.partial(images.normalise, source),
        len(found.classes),
        found.classes,
        None if permutation is None else tuple(permutation),
    )


def generated(
    draw: Callable[[int, np.random.Generator], Examples],
    lengths: Sequence[int],
    seed: int,
    outputs: int,
) -> SequenceData:
    """Draws the sequences of a generated task.

    Args:
        draw: Takes a number of sequences and a generator.
        lengths: How many sequences each split has.
        seed: What decides them.
        outputs: How many numbers the network gives at a step.
    """
    # A generator each: the length of one split changes nothing in the others.
    seeds = np.random.SeedSequence(seed).spawn(len(SPLITS))
    generators = map(np.random.default_rng, seeds)
    train, validation, test = map(draw, lengths, generators)
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
