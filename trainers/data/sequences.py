"""Data of the tasks on sequences: images read pixel by pixel, and sequences drawn from a seed.

tensorflow-datasets has no reader of the published files, no fixed order of pixels, and no
generated tasks. Hence this module.
"""

import dataclasses
import functools
import hashlib
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from etils import epath
from keras import ops

from keras_trellis.types import Tensor
from trainers.data import images
from trainers.data.long_memory import Examples

SPLITS = ("train", "validation", "test")


@dataclasses.dataclass(frozen=True)
class SequenceData:
    """The examples of a task on sequences.

    Attributes:
        train: the training examples.
        validation: the examples that choose the best weights.
        test: the examples that are scored once.
        normalise: turns inputs into what the network reads, float32.
        outputs: how many numbers the network returns for one target.
        classes: the name of each class of images; empty for other tasks.
        permutation: the order in which the network reads the steps, or None.
        answer: the first time step of the answer, and that after it; None: all time steps.
    """

    train: Examples
    validation: Examples
    test: Examples
    normalise: Callable[[Tensor], Tensor]
    outputs: int
    classes: tuple[str, ...] = ()
    permutation: tuple[int, ...] | None = None
    answer: tuple[int, int] | None = None

    @property
    def count(self) -> int:
        """The number of training examples of an epoch."""
        return len(self.train.inputs)

    @property
    def summary(self) -> str:
        """The same in words."""
        return f"{self.count:,} training sequences"

    def batches(self, batch_size: int, seed: int, epochs: int, first_step: int) -> Any:
        """Returns the batches of a run; see `datasets.batches_dataset`."""
        from trainers.data import datasets  # it needs TensorFlow

        return datasets.batches_dataset(
            *self.train,
            batch_size=batch_size,
            seed=seed,
            epochs=epochs,
            first_step=first_step,
        )

    def checksums(self) -> dict[str, str]:
        """Returns the SHA-256 of each split's inputs and targets."""
        return {split: _checksum(getattr(self, split)) for split in SPLITS}


def from_images(
    source: images.ImageSource,
    validation: int,
    seed: int,
    *,
    permuted: bool,
    permutation: Sequence[int] | None = None,
    data_dir: epath.PathLike | None = None,
) -> SequenceData:
    """Loads images.

    Args:
        source: where they come from.
        validation: the number of training images to validate on.
        seed: the seed of their choice, and of the order of the pixels.
        permuted: whether pixels are read in an order drawn from the seed.
        permutation: the order with which a run began; None to draw it.
        data_dir: the folder of the published files; None to download them.

    Raises:
        ValueError, OSError: the images cannot be used, or are too few.
    """
    data = images.load(source, data_dir)
    train, aside = images.split(data.train, validation, seed)
    if permuted and permutation is None:
        steps = train.pixels.shape[1]
        permutation = np.random.default_rng(seed).permutation(steps).tolist()
    return SequenceData(
        Examples(*train),
        Examples(*aside),
        Examples(*data.test),
        functools.partial(images.normalise, source),
        len(data.classes),
        data.classes,
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
        draw: takes a number of sequences, their time steps and a generator.
        lengths: how many sequences each split has.
        steps: what `draw` takes.
        seed: the seed of the draw.
        outputs: how many numbers the network returns for one target.
    """
    # Each split has a generator, so that its length does not change the others.
    seeds = np.random.SeedSequence(seed).spawn(len(SPLITS))
    generators = map(np.random.default_rng, seeds)
    train, validation, test = map(draw, lengths, itertools.repeat(steps), generators)
    return SequenceData(train, validation, test, as_floats, outputs)


def as_floats(inputs: Tensor) -> Tensor:
    """Returns inputs that need no other change as float32."""
    return ops.cast(inputs, "float32")


def _checksum(examples: Examples) -> str:
    digest = hashlib.sha256()
    for array in examples:
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
