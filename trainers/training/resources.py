"""What a run takes, tokens, seconds and memory; and how much memory this process can still get.

Nothing here needs TensorFlow, which a process may lack the memory to import.
"""

import math
import mmap
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_IMPORTS = 2 * 2**30  # bytes of address space; TensorFlow's libraries take 1.7 GiB
OUT_OF_MEMORY = "memory has run out{}; docs/troubleshooting.md says what needs less"
_LEAST = 64 * 2**20  # bytes; with less, a step, a thread or a graph may fail anywhere
_UNLIMITED = 2**60  # cgroups of version 1 write a number near 2^63 for no limit
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
    return fields(_STATUS, unit=1024).get(field)


class Room(NamedTuple):
    """Available memory.

    Attributes:
        size: its bytes.
        limit: what limits it, in words.
    """

    size: int
    limit: str


def room(root: Path = Path("/")) -> Room | None:
    """Returns the least memory that the machine, the cgroups and `ulimit` leave; None if unknown.

    Swap adds to the first two. Cached files count as available, since the system can drop them.

    Args:
        root: the folder of `proc` and `sys`.
    """
    machine = fields(root / "proc/meminfo", 1024)
    swap = machine.get("SwapFree", 0)
    rooms = [Room(size + swap, "cgroup limit") for size in _cgroup_sizes(root)]
    if "MemAvailable" in machine:
        rooms.append(Room(machine["MemAvailable"] + swap, "this machine"))
    used = fields(root / "proc/self/status", 1024)
    for number, flag, name in (
        (resource.RLIMIT_AS, "-v", "VmSize"),
        (resource.RLIMIT_DATA, "-d", "VmData"),
    ):
        limit, _ = resource.getrlimit(number)
        if limit != resource.RLIM_INFINITY:
            rooms.append(Room(max(0, limit - used.get(name, 0)), f"ulimit {flag}"))
    return min(rooms, default=None)


def is_short() -> bool:
    """Returns whether the system refuses this process a little more address space."""
    try:
        mmap.mmap(-1, _LEAST).close()
    except (OSError, MemoryError):
        return True
    return False


def check_imports() -> None:
    """Exits with a line if `ulimit -v` leaves too little to import TensorFlow."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < _IMPORTS:
        print(
            f"error: `ulimit -v` must leave at least {_IMPORTS >> 10} KiB, which TensorFlow takes. "
            f"Received: {limit >> 10} KiB",
            file=sys.stderr,
        )
        sys.exit(2)


def _cgroup_sizes(root: Path) -> Iterator[int]:
    """Yields the memory that each cgroup of this process leaves, in both versions."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:  # version 2
            yield from _group_sizes(
                root / "sys/fs/cgroup", path, "memory.max", "memory.current", ""
            )
        elif "memory" in controllers.split(","):
            # In version 1 the numbers of a group and of those in it begin with `total_`.
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
            yield from _group_sizes(root / "sys/fs/cgroup/memory", path, *names)


def _group_sizes(
    mount: Path, path: str, limit_name: str, usage_name: str, prefix: str
) -> Iterator[int]:
    """Yields the memory that a group and its parents leave."""
    group = mount / path.lstrip("/")
    for folder in (group, *group.parents):
        limit, usage = (
            _text(folder / name).strip() for name in (limit_name, usage_name)
        )
        if limit.isdecimal() and usage.isdecimal() and int(limit) < _UNLIMITED:
            statistics = fields(folder / "memory.stat")
            # The usage counts cached files, which the system drops before it refuses memory.
            kinds = ("inactive_file", "active_file")
            files = sum(statistics.get(f"{prefix}{kind}", 0) for kind in kinds)
            yield max(0, int(limit) - int(usage) + files)
        if folder == mount:
            return


def fields(file: Path, unit: int = 1) -> dict[str, int]:
    """Returns the numbers of lines such as `MemFree:  12 kB`, times `unit`."""
    numbers = {}
    for line in _text(file).splitlines():
        name, *values = line.replace(":", " ").split()
        if values and values[0].isdecimal():
            numbers[name] = int(values[0]) * unit
    return numbers


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError):
        return ""
