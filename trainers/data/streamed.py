"""Examples of an algorithm that are computed during training, in TensorFlow."""

import dataclasses
from collections.abc import Callable, Sequence

import tensorflow as tf

from trainers.data import shuffling
from trainers.data.algorithms import Algorithm
from trainers.data.long_memory import Examples
from trainers.data.sequences import SequenceData, as_floats


@dataclasses.dataclass(frozen=True, kw_only=True)
class StreamedData(SequenceData):
    """Training examples that no run reads twice; `train` has none of them, only their shapes.

    Attributes:
        draw: takes places in the order of examples, int64 `[B]`.
        first: the place of the first training example; those that are held out come before.
        epoch_examples: the number of training examples of an epoch.
    """

    draw: Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]
    first: int
    epoch_examples: int

    @property
    def count(self) -> int:
        """The number of training examples of an epoch."""
        return self.epoch_examples

    @property
    def summary(self) -> str:
        """The same in words."""
        return f"{self.count:,} new training sequences an epoch"

    def batches(
        self, batch_size: int, seed: int, epochs: int, first_step: int
    ) -> tf.data.Dataset:
        """Returns the batches of a run; the seed has determined the order already."""
        steps = epochs * shuffling.steps_per_epoch(self.epoch_examples, batch_size)
        within = tf.range(batch_size, dtype="int64")

        def batch(step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return self.draw(self.first + step * batch_size + within)

        chosen = tf.data.Dataset.range(first_step, steps)
        return chosen.map(batch).prefetch(tf.data.AUTOTUNE)


def streamed(algorithm: Algorithm, lengths: Sequence[int], seed: int) -> StreamedData:
    """Draws the held-out examples of an algorithm, and makes its training examples ready.

    Validation and test examples are the first in the seed's order, the training examples follow.

    Args:
        algorithm: what is learned.
        lengths: how many training examples an epoch has, and how many examples the other splits.
        seed: the seed of the order.
    """
    epoch, validation, test = lengths

    def draw(places: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        inputs, answers = algorithm.at(places, seed)
        return tf.one_hot(inputs, algorithm.kinds, dtype="uint8"), answers

    def between(start: int, end: int) -> Examples:
        arrays = draw(tf.range(start, end, dtype="int64"))
        return Examples(*(array.numpy() for array in arrays))

    first = validation + test
    return StreamedData(
        between(0, 0),
        between(0, validation),
        between(validation, first),
        as_floats,
        algorithm.kinds,
        answer=algorithm.answer,
        draw=draw,
        first=first,
        epoch_examples=epoch,
    )
