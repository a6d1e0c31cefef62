"""Equal parts of a run whose steps differ."""

import dataclasses
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
