"""Measures of results, and those of texts; other kinds have theirs among their tasks.

A metric is a further number, which stands beside the measure.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Measure:
    """A measure of a task's results.

    Attributes:
        name: the name of the number, in printed lines and records.
        decimals: the number of decimals to print.
        counted: what a score counts, in the plural.
        higher_is_better: whether higher numbers are better.
        unit: the text after the number.
    """

    name: str
    decimals: int
    counted: str
    higher_is_better: bool = False
    unit: str = ""

    def text(self, value: float) -> str:
        """Returns a result as printed."""
        return f"{value:.{self.decimals}f}{self.unit}"

    def format_score(self, value: float, count: int) -> str:
        """Returns a result and what it counts, as printed."""
        return f"{self.text(value)} ({count:,} {self.counted})"

    def count(self, score: Mapping[str, Any]) -> int:
        """Returns the count of a score in a run's record."""
        return score[self.counted]


@dataclasses.dataclass(frozen=True)
class TokenMeasure(Measure):
    """A measure of language models, a function of the loss.

    Attributes:
        from_nats: takes nats a token and returns the number.
        types: the task's name for the tokens of its vocabulary.
    """

    from_nats: Callable[[float], float] = dataclasses.field(kw_only=True)
    types: str = dataclasses.field(kw_only=True)

    def count(self, score: Mapping[str, Any]) -> int:
        """Returns the count of a score in a run's record, where characters are tokens too."""
        return score["tokens"]


@dataclasses.dataclass(frozen=True)
class Number:
    """A number that stands beside a task's measure.

    Attributes:
        name: the name of the number, in printed lines and records.
        decimals: the number of decimals to print.
        unit: the text after the number.
    """

    name: str
    _: dataclasses.KW_ONLY
    decimals: int = 2
    unit: str = ""

    def format(self, value: float) -> str:
        """Returns the number with its name, as printed."""
        return f"{self.name} {value:.{self.decimals}f}{self.unit}"


@dataclasses.dataclass(frozen=True)
class Metric(Number):
    """A number that is scored beside a task's measure: a mean over the scored targets.

    Attributes:
        compute: takes log-probabilities `[..., V]` and targets `[...]`, integers, and returns a
            number for each target, `[...]`. In a task of values it takes the predicted values,
            `[...]`, and the targets.
    """

    compute: Callable[[Any, Any], Any]


def perplexity(nats: float) -> float:
    """Returns `exp(nats)`, or infinity if a float cannot hold it."""
    return math.exp(nats) if nats < 700 else math.inf


def bits(nats: float) -> float:
    """Returns nats in bits."""
    return nats / math.log(2)


WORDS = TokenMeasure("perplexity", 2, "tokens", from_nats=perplexity, types="words")
PIECES = dataclasses.replace(WORDS, types="pieces")
CHARACTERS = TokenMeasure("bpc", 3, "characters", from_nats=bits, types="symbols")

BITS_PER_BYTE = Number("bits_per_byte", decimals=3)
WORD_PERPLEXITY = Number("word_perplexity")
COMPARED = (BITS_PER_BYTE, WORD_PERPLEXITY)
"""Numbers of a text, whatever the tokens of the model are; see `language.compared`."""
