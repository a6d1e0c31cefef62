"""Imports TensorFlow for a command, without its first notes about the machine on stderr.

TensorFlow's C++ code writes these lines to descriptor 2 before it reads the log level.
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
_DRIVER = Path("/dev/nvidiactl")  # exists if a driver for GPUs is loaded


def import_tensorflow() -> None:
    """Imports TensorFlow and makes it look for GPUs, which `app.run` would do later.

    Until the command itself listens, a signal ends the process at once.
    """
    with _held_back():
        tensorflow = importlib.import_module("tensorflow")
    # Hide CUDA's failure to start only if there is no driver. With one, users must see the error.
    with contextlib.nullcontext() if _DRIVER.exists() else _held_back():
        tensorflow.config.list_physical_devices()


_REASONS = {
    "tensorflow": "the trainers: they train with `tf.distribute` and export SavedModels",
    "jax": "trainers.reproduce, which needs no TensorFlow",
}


def check_backend(expected: str = "tensorflow") -> None:
    """Exits with a line if Keras runs on another backend than `expected`, or JAX is missing."""
    try:
        name = importlib.import_module("keras").backend.backend()
    except ModuleNotFoundError as error:
        if expected != "jax" or error.name != "jax":
            raise
        print(f"error: trainers.reproduce needs JAX: {error}", file=sys.stderr)
        sys.exit(2)
    if name != expected:
        print(
            f"error: KERAS_BACKEND must be {expected} for {_REASONS[expected]}. "
            f'Received: {name}. Unset it, or correct "backend" in ~/.keras/keras.json',
            file=sys.stderr,
        )
        sys.exit(2)


@contextlib.contextmanager
def _held_back() -> Iterator[None]:
    """Holds back stderr, and at the end writes it without TensorFlow's notices.

    If an exception leaves the context, everything is written. A crash or a signal is told at once.
    """
    if not hasattr(os, "memfd_create"):  # not Linux
        yield
        return
    stderr, notice = os.dup(2), None
    with os.fdopen(os.memfd_create("stderr"), "r+", errors="replace") as held:
        os.dup2(held.fileno(), 2)
        try:
            with _crash_output(stderr):
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
def _crash_output(descriptor: int) -> Iterator[None]:
    """Sends the traceback of a crash and the line of a signal to a descriptor."""
    enabled = faulthandler.is_enabled()
    faulthandler.enable(descriptor)
    stopping.listen(importing=True, stderr=descriptor)
    try:
        yield
    finally:
        stopping.listen(importing=True)
        faulthandler.enable() if enabled else faulthandler.disable()
