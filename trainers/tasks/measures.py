"""What a task is measured in: perplexity over words, bits over characters, percent of images."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Measure:
    """How a task's results are told.

    Attributes:
        name: What the number is called, in lines and records.
        decimals: How many of them are told.
        counted: What is counted of what was scored, in the plural.
        higher_is_better: Whether it is.
        unit: What follows the number.
    """

    name: str
    decimals: int
    counted: str
    higher_is_better: bool = False
    unit: str = ""

    def text(self, value: float) -> str:
        """Returns a result as people read it."""
        return f"{value:.{self.decimals}f}{self.unit}"

    def told(self, value: float, count: int) -> str:
        """Returns a result and how much it is of, as people read it."""
        return f"{self.text(value)} ({count:,} {self.counted})"

    def count(self, score: Mapping[str, Any]) -> int:
        """Returns how much a score is of, out of what a run keeps of it."""
        return score[self.counted]


@dataclasses.dataclass(frozen=True)
class TokenMeasure(Measure):
    """A measure of language models, which follows from the loss.

    Attributes:
        of: Takes nats a token and returns the number.
        types: What the task calls the tokens of its vocabulary.
    """

    of: Callable[[float], float] = dataclasses.field(kw_only=True)
    types: str = dataclasses.field(kw_only=True)

    def count(self, score: Mapping[str, Any]) -> int:
        """Returns how much a score is of; characters are tokens there too."""
        return score["tokens"]


def perplexity(nats: float) -> float:
    """Returns `exp(nats)`, infinity where that is beyond a float."""
    return math.exp(nats) if nats < 700 else math.inf


def bits(nats: float) -> float:
    """Returns nats in bits."""
    return nats / math.log(2)


WORDS = TokenMeasure("perplexity", 2, "tokens", of=perplexity, types="words")
CHARACTERS = TokenMeasure("bpc", 3, "characters", of=bits, types="symbols")
ACCURACY = Measure("accuracy", 2, "images", higher_is_better=True, unit=" %")
CROSS_ENTROPY = Measure("cross_entropy", 6, "symbols")
SQUARED_ERROR = Measure("squared_error", 6, "sequences")
