"""What a run takes: how much it is fed, how long, and in how much memory."""

import math
import time
from pathlib import Path
from typing import NamedTuple

_STATUS = Path("/proc/self/status")  # Linux's proc(5)


class Cost(NamedTuple):
    """What a run has taken, over all the processes that it went through.

    What was lost when a process was killed, and computed again, counts once. NaN where a part of
    the run kept no record, as those of earlier versions, or the system tells no memory.

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
        peak = resident("VmHWM")
        # NaN first: `max` keeps its first argument where no comparison holds.
        peak_bytes = math.nan if peak is None else max(self._before.peak_bytes, float(peak))
        return Cost(self._weight, seconds, peak_bytes)


def resident(field: str) -> int | None:
    """Returns this process's resident memory in bytes; None where the system does not tell.

    Not `getrusage`: its peak may be that of the process from which this one was started.

    Args:
        field: "VmRSS", what it holds now, or "VmHWM", the most that it has held.
    """
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    return None
