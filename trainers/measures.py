"""What a task is measured in: perplexity over words, or bits over characters."""

import math
from collections.abc import Callable
from typing import NamedTuple


class Measure(NamedTuple):
    """How a task's losses are told.

    Attributes:
        name: What the number is called, in lines and records.
        of: Takes nats a token and returns the number.
        decimals: How many of them are told of a result.
        tokens: What the task calls its tokens, in the plural.
        types: What it calls the tokens of its vocabulary.
    """

    name: str
    of: Callable[[float], float]
    decimals: int
    tokens: str
    types: str

    def text(self, value: float) -> str:
        """Returns a result as people read it."""
        return f"{value:.{self.decimals}f}"

    def told(self, nats: float, tokens: int) -> str:
        """Returns what a text of so many tokens is worth, at `nats` a token."""
        return f"{self.text(self.of(nats))} ({tokens:,} {self.tokens})"


def perplexity(nats: float) -> float:
    """Returns `exp(nats)`, infinity where that is beyond a float."""
    return math.exp(nats) if nats < 700 else math.inf


def bits(nats: float) -> float:
    """Returns nats in bits."""
    return nats / math.log(2)


WORDS = Measure("perplexity", perplexity, 2, "tokens", "words")
CHARACTERS = Measure("bpc", bits, 3, "characters", "symbols")
_MEASURES = {"ptb_char": CHARACTERS}


def measure_of(task: str) -> Measure:
    """Returns the measure of one of the tasks."""
    return _MEASURES.get(task, WORDS)
