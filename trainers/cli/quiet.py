"""Keeps what TensorFlow says of the machine at its start off stderr.

TensorFlow's C++ code writes these lines to descriptor 2 before it reads which log level is wanted.
"""

import contextlib
import faulthandler
import importlib
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from trainers.training import stopping

_NOTICE = re.compile(
    r"WARNING: All log messages before absl|[IWE]\d{4} [\d:.]+ +\d+ \S+\.cc:\d+\] "
)
_DRIVER = Path("/dev/nvidiactl")  # is there if a driver for GPUs has been loaded


def import_tensorflow() -> None:
    """Imports TensorFlow and has it look for GPUs, as absl's `app.run` would have it later.

    A signal ends the process at once, until the command listens itself.
    """
    with _held_back():
        tensorflow = importlib.import_module("tensorflow")
    # Without a driver, that CUDA cannot begin is no news; with one, it is an error to be seen.
    with contextlib.nullcontext() if _DRIVER.exists() else _held_back():
        tensorflow.config.list_physical_devices()


@contextlib.contextmanager
def _held_back() -> Iterator[None]:
    """Holds back what is written to stderr, and writes it at the end without TensorFlow's notices.

    If an exception leaves the context, all of it is written. A crash or a signal is told at once.
    """
    if not hasattr(os, "memfd_create"):  # not Linux
        yield
        return
    stderr, notice = os.dup(2), None
    with os.fdopen(os.memfd_create("stderr"), "r+", errors="replace") as held:
        os.dup2(held.fileno(), 2)
        try:
            with _ends_told_to(stderr):
                yield
            notice = _NOTICE
        finally:
            sys.stderr.flush()
            os.dup2(stderr, 2)
            os.close(stderr)
            held.seek(0)
            for line in held:
                if notice is None or not notice.match(line):
                    sys.stderr.write(line)


@contextlib.contextmanager
def _ends_told_to(descriptor: int) -> Iterator[None]:
    """Has the traceback of a crash and the line of a signal written to a descriptor meanwhile."""
    enabled = faulthandler.is_enabled()
    faulthandler.enable(descriptor)
    stopping.listen(importing=True, stderr=descriptor)
    try:
        yield
    finally:
        stopping.listen(importing=True)
        faulthandler.enable() if enabled else faulthandler.disable()
