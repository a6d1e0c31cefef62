"""Which documents to keep: comparisons of their scores with numbers."""

import math
import operator
import re
from typing import NamedTuple

from trainers.scoring.scorer import Scores

_COMPARE = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_CONDITION = re.compile(r"\s*(\w+)\s*(<=|>=|<|>)\s*(\S+)\s*", re.ASCII)


class Condition(NamedTuple):
    """A comparison of a score with a number. It holds for no empty document.

    Attributes:
        field: a field of `Scores`.
        sign: `<`, `<=`, `>` or `>=`.
        number: what to compare with.
    """

    field: str
    sign: str
    number: float

    def holds(self, scores: Scores) -> bool:
        """Returns whether a document's scores are like this."""
        if scores.is_empty:
            return False
        return _COMPARE[self.sign](getattr(scores, self.field), self.number)


def parse(text: str) -> Condition:
    """Returns the condition that a text such as `perplexity<200` says.

    Raises:
        ValueError: it is no such text.
    """
    match = _CONDITION.fullmatch(text)
    field, sign, number = match.groups() if match else ("", "", "")
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if field not in Scores._fields or not math.isfinite(value):
        raise ValueError(
            f"--keep must be FIELD<NUMBER (or <=, >, >=), FIELD one of "
            f"{', '.join(Scores._fields)}. Received: --keep={text}"
        )
    return Condition(field, sign, value)
