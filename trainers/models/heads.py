"""The heads that `config.model.head` chooses. A new one is an entry of `HEADS`."""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Annotated, NamedTuple

from ml_collections import ConfigDict

from keras_trellis.heads import (
    BLOCK,
    WORDS,
    AdaptiveSoftmax,
    Head,
    MixtureOfSoftmaxes,
    TiedSoftmax,
)
from trainers.models.fields import COUNT, CUTOFFS, RATE, Rule, Values
from trainers.models.kinds import count_parameters


@dataclasses.dataclass(frozen=True)
class MixtureGroup:
    """The arguments of the head "mixture"."""

    experts: Annotated[int, COUNT] = 15
    latent_dropout: Annotated[float, RATE] = 0.0
    epsilon: Annotated[float, RATE] = 0.0


@dataclasses.dataclass(frozen=True)
class AdaptiveGroup:
    """The arguments of the head "adaptive"."""

    cutoffs: Annotated[tuple[int, ...], CUTOFFS] = (2_000,)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fields:
    """The fields of `config.model` that heads alone have."""

    mixture: MixtureGroup = MixtureGroup()
    adaptive: AdaptiveGroup = AdaptiveGroup()


def _all_words(model: ConfigDict, rows: int, words: int) -> int:
    """Counts the logits and the log-probabilities of all words."""
    del model
    return 2 * rows * words


class Kind(NamedTuple):
    """A kind of head: builds one from `config.model`, and says how large it is.

    Attributes:
        build: takes the group `model` and a seed, and returns the head.
        activations: takes the group `model`, positions and words, and estimates how many numbers a
            training step keeps.
        projects: whether features need not be as wide as word vectors.
    """

    build: Callable[[ConfigDict, int], Head]
    activations: Callable[[ConfigDict, int, int], int] = _all_words
    projects: bool = False

    def parameters(self, model: ConfigDict, features: int, words: int) -> int:
        """Returns the number of its parameters except the word vectors.

        Args:
            model: the group `model` of the config.
            features: channels of the features.
            words: the size of the vocabulary.
        """
        make = functools.partial(self.build, model, 0)
        table = (words, model.embedding_units)
        return count_parameters(make, (None, None, features), table)

    def rules(self, values: Values) -> Iterator[Rule]:
        """Yields what a config with this head, and a layer of `output_units`, must not have."""
        outputs, words = values["model.output_units"], values["model.embedding_units"]
        differs = None not in (outputs, words) and outputs != words
        expected = (
            "config.model.embedding_units, as outputs and word vectors are multiplied"
        )
        refused = differs and not self.projects
        yield refused, "model.output_units", expected, "model.embedding_units"


def _by_blocks(model: ConfigDict, rows: int, words: int) -> int:
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
        activations=lambda model, rows, words: _by_blocks(
            model, rows * model.mixture.experts, words
        ),
        projects=True,
    ),
    "adaptive": Kind(
        build=lambda model, seed: AdaptiveSoftmax(
            model.adaptive.cutoffs, dtype=model.dtype, name="head"
        ),
        activations=_by_blocks,
    ),
}
