"""Makes file operations go wrong: compiles shim.c, and tells it which operations fail.

LD_PRELOAD loads the library when a process begins. Each fork of that process then chooses its own
fault.
"""

import ctypes
import dataclasses
import enum
import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).with_name("shim.c")
VARIABLE = "LD_PRELOAD"


class Action(enum.IntEnum):
    """What happens to an operation; the same numbers as in shim.c.

    Attributes:
        NOTHING: it is done.
        BEFORE: the process is sent a signal before it.
        AFTER: the process is sent a signal after it.
        ONCE: it fails.
        LASTING: it fails, and so do all later ones; on a full disk those that take space.
        MATCHING: all matching operations fail.
        SHORT: it writes half of its bytes.
        FITS: from here on no file can grow beyond a limit.
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
        action: what happens to the operation.
        value: a signal, or an errno.
        operation: its name, as shim.c calls it, or a pattern.
        path: the file below the folder that is watched, or a pattern.
        at: its number among the operations that match, from 1.
        fits: the limit of a file's size in bytes.
    """

    action: Action = Action.NOTHING
    value: int = 0
    operation: str = "*"
    path: str = "*"
    at: int = 1
    fits: int = 0


def build(folder: Path) -> Path | None:
    """Compiles the library into a folder; returns its file, or None if that is not possible."""
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        return None
    library = folder / "shim.so"
    flags = (
        "-shared",
        "-fPIC",
        "-O2",
        "-o",
        str(library),
        str(SOURCE),
        "-ldl",
        "-lpthread",
    )
    subprocess.run([compiler, *flags], check=True)
    return library


def present() -> bool:
    """Returns whether this process has loaded the library."""
    return hasattr(ctypes.CDLL(None), "faults_arm")


@functools.cache
def library() -> Path:
    """Returns the file of the library, which the processes that this one begins do not load."""
    return Path(os.environ.pop(VARIABLE))


def arm(prefix: Path, fault: Fault) -> None:
    """Makes operations below a folder go wrong in this process from here on."""
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
    """Writes a line for each operation to a file: its name, path and flags."""
    ctypes.CDLL(None).faults_log(descriptor)


def begun() -> bool:
    """Returns whether the fault has come."""
    return bool(ctypes.CDLL(None).faults_begun())


def count_calls(at: int = 0, signal: int = 0) -> None:
    """Counts calls and returns of Python functions in this thread; sends a signal at one."""
    library = ctypes.CDLL(None)
    library.faults_events(ctypes.c_longlong(at), signal)
    counter = ctypes.cast(library.faults_event, ctypes.c_void_p)
    ctypes.pythonapi.PyEval_SetProfile(counter, ctypes.py_object(None))


def stop_counting() -> None:
    """Stops counting, and sends no signal."""
    ctypes.pythonapi.PyEval_SetProfile(None, None)


def calls() -> int:
    """Returns the number of counted calls."""
    counted = ctypes.CDLL(None).faults_counted
    counted.restype = ctypes.c_longlong
    return counted()
