"""What lets file operations go wrong: shim.c, compiled, and what tells it which.

The library has to be there from a process's beginning, by LD_PRELOAD; a process that was forked
from such a one sets for itself what goes wrong.
"""

import ctypes
import dataclasses
import enum
import os
import shutil
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).with_name("shim.c")
VARIABLE = "LD_PRELOAD"


class Action(enum.IntEnum):
    """What becomes of an operation; the same numbers as in shim.c.

    Attributes:
        NOTHING: it is done.
        BEFORE: the process is sent a signal before it.
        AFTER: the process is sent a signal after it.
        ONCE: it fails.
        LASTING: it fails, and so does all that follows; a full disk refuses what takes space alone.
        MATCHING: all like it fail, and nothing else.
        SHORT: half of what was to be written is.
        FITS: from it on, no file can become larger than it may be.
    """

    NOTHING = 0
    BEFORE = 1
    AFTER = 2
    ONCE = 3
    LASTING = 4
    MATCHING = 5
    SHORT = 6
    FITS = 7


@dataclasses.dataclass(frozen=True)
class Fault:
    """What goes wrong, and where.

    Attributes:
        action: what becomes of the operation.
        value: a signal, or an errno.
        operation: its name, as shim.c calls it, or a pattern.
        path: the file below the folder that is watched, or a pattern.
        at: which of the operations that match, counted from 1.
        fits: how many bytes a file may have.
    """

    action: Action = Action.NOTHING
    value: int = 0
    operation: str = "*"
    path: str = "*"
    at: int = 1
    fits: int = 0


def build(folder: Path) -> Path | None:
    """Compiles the library into a folder; returns its file, None where that is not possible."""
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        return None
    library = folder / "shim.so"
    flags = ("-shared", "-fPIC", "-O2", "-o", str(library), str(SOURCE), "-ldl", "-lpthread")
    subprocess.run([compiler, *flags], check=True)
    return library


def present() -> bool:
    """Whether this process was begun with the library."""
    return hasattr(ctypes.CDLL(None), "faults_arm")


def arm(prefix: Path, fault: Fault) -> None:
    """Has operations below a folder go wrong in this process from here on."""
    ctypes.CDLL(None).faults_arm(
        os.fsencode(prefix),
        fault.operation.encode(),
        os.fsencode(fault.path),
        fault.at,
        int(fault.action),
        fault.value,
        ctypes.c_long(fault.fits),
    )


def log_to(descriptor: int) -> None:
    """Has a line for each operation, its name, path and flags, written to a file."""
    ctypes.CDLL(None).faults_log(descriptor)


def begun() -> bool:
    """Whether what was to go wrong has."""
    return bool(ctypes.CDLL(None).faults_begun())


def count_calls(at: int = 0, signal: int = 0) -> None:
    """Counts the Python functions that this thread calls and leaves, and sends a signal at one."""
    library = ctypes.CDLL(None)
    library.faults_events(ctypes.c_longlong(at), signal)
    counter = ctypes.cast(library.faults_event, ctypes.c_void_p)
    ctypes.pythonapi.PyEval_SetProfile(counter, ctypes.py_object(None))


def stop_counting() -> None:
    """Counts no more, and sends no signal."""
    ctypes.pythonapi.PyEval_SetProfile(None, None)


def calls() -> int:
    """Returns how many were counted."""
    counted = ctypes.CDLL(None).faults_counted
    counted.restype = ctypes.c_longlong
    return counted()
