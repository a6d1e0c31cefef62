"""How much memory this process can still get, and what limits it."""

import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_IMPORTS = 2 * 2**30  # bytes of address space; TensorFlow's libraries take 1.7 GiB
_UNLIMITED = 2**60  # cgroups of version 1 write a number near 2^63 for no limit


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
        if not controllers:
            yield from _group_sizes(
                root / "sys/fs/cgroup", path, "memory.max", "memory.current", ""
            )
        elif "memory" in controllers.split(","):
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
