"""What a run takes: how much it is fed, how long, and in how much memory."""

import resource
import sys
import time
from typing import NamedTuple

_MAXRSS_BYTES = 1 if sys.platform == "darwin" else 1024


class Cost(NamedTuple):
    """What a run has taken, over all the processes that it went through.

    What was lost when a process was killed, and computed again, counts once. NaN where a part of
    the run kept no record, as those of earlier versions.

    Attributes:
        weight: the sum of the batches' weights, such as tokens.
        seconds: of steps, tracing them, evaluation and checkpoints.
        peak_bytes: the most resident memory of a process; a GPU's is not in it.
    """

    weight: float = 0.0
    seconds: float = 0.0
    peak_bytes: float = 0.0


class Meter:
    """Adds what this process takes to what those before it took.

    Args:
        before: what the run had taken when this process began.
    """

    def __init__(self, before: Cost):
        self._before = before
        self._weight = before.weight
        self._began = time.monotonic()

    def add(self, weight: float) -> None:
        """Counts the weight of a batch."""
        self._weight += weight

    def read(self) -> Cost:
        """Returns what the run has taken up to now."""
        seconds = self._before.seconds + time.monotonic() - self._began
        peak = _MAXRSS_BYTES * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        # NaN first: `max` keeps its first argument where no comparison holds.
        return Cost(self._weight, seconds, max(self._before.peak_bytes, float(peak)))
