"""What a run takes: tokens, seconds and memory."""

import math
import time
from pathlib import Path
from typing import NamedTuple

from trainers.training import available_memory

_STATUS = Path("/proc/self/status")  # Linux's proc(5)


class Cost(NamedTuple):
    """What a run has taken in all its processes.

    Work that was lost and computed again counts once. A value is NaN if an earlier version kept no
    record of it, or if the system does not report memory.

    Attributes:
        weight: the sum of the batches' weights, such as tokens.
        seconds: the time of steps, tracing, evaluation and checkpoints.
        peak_bytes: the most resident memory of a process, without a GPU's memory.
    """

    weight: float = 0.0
    seconds: float = 0.0
    peak_bytes: float = 0.0


class Meter:
    """Adds the cost of this process to that of the run's earlier processes.

    Args:
        before: the run's cost when this process began.
    """

    def __init__(self, before: Cost):
        self._before = before
        self._weight = before.weight
        self._began = time.monotonic()

    def add(self, weight: float) -> None:
        """Counts the weight of a batch."""
        self._weight += weight

    def read(self) -> Cost:
        """Returns the run's cost up to now."""
        seconds = self._before.seconds + time.monotonic() - self._began
        peak = resident("VmHWM")
        if peak is None:
            return Cost(self._weight, seconds, math.nan)
        # `max` keeps a NaN only if it is the first argument.
        return Cost(self._weight, seconds, max(self._before.peak_bytes, float(peak)))


def resident(field: str) -> int | None:
    """Returns this process's resident memory in bytes; None if the system does not report it.

    `getrusage` does not serve: its peak may be that of the parent process.

    Args:
        field: "VmRSS" for the current memory, "VmHWM" for the most so far.
    """
    return available_memory.fields(_STATUS, unit=1024).get(field)
