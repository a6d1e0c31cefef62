"""The heads that `config.model.head` chooses. A new one is an entry of `HEADS`."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import ml_collections

from keras_trellis.heads import (
    BLOCK,
    WORDS,
    AdaptiveSoftmax,
    Head,
    MixtureOfSoftmaxes,
    TiedSoftmax,
)
from trainers.tasks import counting


def _all_words(model: ml_collections.ConfigDict, rows: int, words: int) -> int:
    """Counts the logits and the log-probabilities of all words."""
    del model
    return 2 * rows * words


class Kind(NamedTuple):
    """A kind of head: builds one from `config.model`, and says how large it is.

    Attributes:
        build: Takes the group `model` and a seed, and returns the head.
        kept: Takes the group `model`, positions and words, and estimates how many numbers a
            training step keeps.
    """

    build: Callable[[ml_collections.ConfigDict, int], Head]
    kept: Callable[[ml_collections.ConfigDict, int, int], int] = _all_words

    def parameters(
        self, model: ml_collections.ConfigDict, features: int, words: int
    ) -> int:
        """Returns the number of its parameters except the word vectors.

        Args:
            model: The group `model` of the config.
            features: Channels of the features.
            words: The size of the vocabulary.
        """
        make = functools.partial(self.build, model, 0)
        table = (words, model.embedding_units)
        return counting.parameters(make, (None, None, features), table)


def _by_blocks(model: ml_collections.ConfigDict, rows: int, words: int) -> int:
    """Counts the logits of one block, and the numbers around them."""
    words = min(words, WORDS)
    return 3 * min(rows * words, BLOCK) + (words + 3 * rows) * model.embedding_units


HEADS = {
    "tied": Kind(
        build=lambda model, seed: TiedSoftmax(dtype=model.dtype, name="head"),
    ),
    "mixture": Kind(
        build=lambda model, seed: MixtureOfSoftmaxes(
            **model.mixture.to_dict(), seed=seed, dtype=model.dtype, name="head"
        ),
        kept=lambda model, rows, words: _by_blocks(
            model, rows * model.mixture.experts, words
        ),
    ),
    "adaptive": Kind(
        build=lambda model, seed: AdaptiveSoftmax(
            model.adaptive.cutoffs, dtype=model.dtype, name="head"
        ),
        kept=_by_blocks,
    ),
}
