"""Data of the tasks on sequences: images read pixel by pixel, and sequences drawn from a seed.

tensorflow-datasets has no reader of the published files, no fixed order of pixels, and no
generated tasks. Hence this module.
"""

import dataclasses
import functools
import hashlib
import itertools
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from etils import epath

from trainers.data import images
from trainers.data.long_memory import Examples

SPLITS = ("train", "validation", "test")


@dataclasses.dataclass(frozen=True)
class SequenceData:
    """The examples of a task on sequences.

    Attributes:
        train: The training examples.
        validation: The examples that choose the best weights.
        test: The examples that are scored once.
        normalise: Turns inputs into what the network reads, float32.
        outputs: How many numbers the network returns for one target.
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
        validation: The number of training images to validate on.
        seed: The seed of their choice, and of the order of the pixels.
        permuted: Whether pixels are read in an order drawn from the seed.
        permutation: The order with which a run began; None to draw it.
        data_dir: The folder of the published files; None to download them.
        cache_dir: A local folder for downloads; see `images.load`.

    Raises:
        ValueError, OSError: The images cannot be used, or are too few.
    """
    found = images.load(source, data_dir, cache_dir)
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
    draw: Callable[[int, int, np.random.Generator], Examples],
    lengths: Sequence[int],
    steps: int,
    seed: int,
    outputs: int,
) -> SequenceData:
    """Draws the sequences of a generated task.

    Args:
        draw: Takes a number of sequences, their time steps and a generator.
        lengths: How many sequences each split has.
        steps: What `draw` takes.
        seed: The seed of the draw.
        outputs: How many numbers the network returns for one target.
    """
    # Each split has a generator, so that its length does not change the others.
    seeds = np.random.SeedSequence(seed).spawn(len(SPLITS))
    generators = map(np.random.default_rng, seeds)
    train, validation, test = map(draw, lengths, itertools.repeat(steps), generators)
    return SequenceData(
        train, validation, test, lambda x: tf.cast(x, tf.float32), outputs
    )


def _checksum(examples: Examples) -> str:
    digest = hashlib.sha256()
    for array in examples:
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
