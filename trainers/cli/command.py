"""What all commands have in common: their exit status, and errors in one line."""

import contextlib
import enum
import errno
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from typing import NoReturn

import tensorflow as tf
from absl import app, flags, logging

from trainers.cli import config_flags, flag_errors, terminal
from trainers.tasks import registry
from trainers.training import stopping
from trainers.training.workdir import NotKeptError, WorkdirError


class Status(enum.IntEnum):
    """What a command's exit status says; a signal's is 128 and its number.

    Attributes:
        DONE: what was asked for has been done.
        DIFFERENT: what was compared differs; Python's own status of an unexpected error, too.
        REFUSED: a flag, a file or a folder cannot be used; the message says why.
        NOT_FINITE: the loss or the gradient is NaN or infinite: training cannot go on.
        NOT_KEPT: what was computed could not be written, and the run has not finished.
    """

    DONE = 0
    DIFFERENT = 1
    REFUSED = 2
    NOT_FINITE = 3
    NOT_KEPT = 4


ERRORS = (ValueError, OSError, ImportError, WorkdirError, flags.Error)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
OUT_OF_MEMORY = (MemoryError, tf.errors.ResourceExhaustedError)


def start(main: Callable[[list[str]], int], parse: Callable[[list[str]], list[str]]) -> NoReturn:
    """Runs a command as this process.

    Args:
        main: from what `parse` leaves of the command line to the exit status.
        parse: parses the flags; may be `absl`'s.
    """
    stopping.listen()
    try:
        with _output():
            app.run(main, flags_parser=parse)
    except stopping.OutputError as error:
        sys.exit(_lost(error))
    except stopping.StoppedError as stopped:
        os._exit(int(stopped.code or 0))  # threads that are at work would be waited for
    except BaseException:
        if (status := stopping.ended_by()) is None:
            raise
        os._exit(status)
    raise AssertionError("app.run has to end by SystemExit")


def run(argv: list[str], command: Callable[[], int | None]) -> int:
    """Runs a command with what `parse_flags` left of its arguments; returns the exit status."""
    try:
        if len(argv) > 1:
            raise ValueError(
                f"arguments must be flags, --FLAG=VALUE. Received: {' '.join(argv[1:])}"
            )
        with _output():
            return command() or Status.DONE
    except stopping.OutputError as error:
        return _lost(error)
    except NotKeptError as error:
        return fail(str(error), Status.NOT_KEPT)
    except ERRORS as error:
        status = Status.NOT_KEPT if getattr(error, "errno", None) in _FULL else Status.REFUSED
        return fail(flag_errors.told(error), status)
    except OUT_OF_MEMORY as error:
        return fail(out_of_memory(error), Status.REFUSED)
    except tf.errors.OpError as error:
        if "://" not in error.message:  # of an object store, as OSError is of a disk
            raise
        return fail(" ".join(error.message.split()), Status.REFUSED)


def parse_flags(argv: list[str], check: Callable[[list[str]], None]) -> list[str]:
    """Parses a command line and checks it; exits with one line where it is not valid."""
    try:
        # Those of --flagfile among them, which decide on task and preset as any others do.
        argv = _with_flags_of_files(argv)
        # Only what names a task has the fields of its config.
        rest = config_flags.parse(argv) if "task" in flags.FLAGS else flags.FLAGS(argv)
        flag_errors.check_paths()
        check(argv)
    except stopping.OutputError:  # of --help
        raise
    except ERRORS as error:
        sys.exit(fail(flag_errors.told(error), Status.REFUSED))
    return rest


def _with_flags_of_files(argv: list[str]) -> list[str]:
    try:
        return flags.FLAGS.read_flags_from_files(argv, force_gnu=False)
    except UnicodeDecodeError as error:
        raise ValueError(f"--flagfile must be a text file in UTF-8: {error}") from error


def require(*names: str) -> None:
    """Raises ValueError where one of these flags is not given."""
    for name in names:
        if not flags.FLAGS[name].value:
            expected = f"; expected one of {', '.join(registry.TASKS)}" if name == "task" else ""
            raise ValueError(f"--{name} is missing{expected}")


def fail(message: str, status: Status) -> Status:
    """Prints an error in one line; returns `status`."""
    logging.debug("The error's origin:", exc_info=True)  # with --verbosity=1
    if stopping.ended_by() is not None:  # it is what has become of the signal's exception
        return status
    try:
        print(f"error: {terminal.line(message)}", file=sys.stderr, flush=True)
    except OSError:  # nobody can be told
        stopping.abandon(sys.stderr)
    return status


def out_of_memory(error: Exception) -> str:
    """Returns a line that says so, with the part of an error that says what needed it."""
    message = str(getattr(error, "message", error))
    found = re.search("OOM when allocating.*", message)  # below what a graph says
    what = (found[0] if found else message.split("\n", 1)[0])[:200]
    why = f" ({what})" if what else ""
    return f"memory has run out{why}; docs/trainers.md says what needs less"


@contextlib.contextmanager
def _output() -> Iterator[None]:
    """Raises OutputError where stdout cannot be written, at the end at the latest."""
    output = stopping.Output(sys.stdout)
    with contextlib.redirect_stdout(output):
        try:
            yield
        except BaseException:
            with contextlib.suppress(stopping.OutputError):
                output.flush()
            raise
        output.flush()


def _lost(error: stopping.OutputError) -> int:
    if error.errno == errno.EPIPE:  # whoever read it has read enough
        return stopping.status_of(signal.SIGPIPE)
    return fail(f"the output cannot be written ({error})", Status.NOT_KEPT)
