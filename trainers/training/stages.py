"""Equal parts of a run whose steps differ."""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

Stage = Mapping[str, Any]
"""The arguments that the task's loss has in a part of the run, by name."""


@dataclasses.dataclass(frozen=True)
class Stages:
    """The parts of a run, one after another, each of the same number of steps.

    Attributes:
        arguments: what the task's loss takes in each part.
        costs: how long a step of each part takes, beside one of the last part; for the estimate of
            the run's time.
        lines: what a user reads about the parts.
    """

    arguments: Sequence[Stage] = ({},)
    costs: Sequence[float] = (1.0,)
    lines: Sequence[str] = ()


WHOLE = Stages()
"""A run of one part."""


def total_cost(costs: Sequence[float], steps: int, length: int) -> float:
    """Returns the sum of the costs of a run's first steps; see `loop.Plan.stage`.

    Args:
        costs: those of a step in each part.
        steps: the number of steps.
        length: the steps of the whole run.
    """
    ends = [math.ceil(part * length / len(costs)) for part in range(len(costs) + 1)]
    parts = zip(costs, itertools.pairwise(ends), strict=True)
    return sum(cost * max(0, min(steps, end) - start) for cost, (start, end) in parts)
