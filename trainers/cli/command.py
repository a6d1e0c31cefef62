"""What all commands share: exit statuses and errors of one line."""

import contextlib
import enum
import errno
import functools
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

from absl import app, flags, logging

from trainers.cli import flag_errors
from trainers.data import terminal
from trainers.data.files import refuse_pipe
from trainers.training import resources, stopping, watcher
from trainers.training.hold import TakenError
from trainers.training.workdir import NotKeptError, WorkdirError


class Status(enum.IntEnum):
    """Exit statuses of commands. After a signal it is 128 plus the signal's number.

    Attributes:
        DONE: the command has done its work.
        DIFFERENT: a comparison found a difference. An unexpected error has the same status.
        REFUSED: a flag, a file or a folder cannot be used; the message says why.
        NOT_FINITE: the loss or the gradient is NaN or infinite, so training cannot continue.
        NOT_KEPT: a result could not be written, so the run has not finished.
        WORKER_LOST: another worker of the run has ended or has not come.
        TAKEN: the run's folder is gone, or another run has it.
    """

    DONE = 0
    DIFFERENT = 1
    REFUSED = 2
    NOT_FINITE = 3
    NOT_KEPT = 4
    WORKER_LOST = watcher.ENDED
    TAKEN = 6


ERRORS = (ValueError, OSError, ImportError, WorkdirError, flags.Error)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def start(
    main: Callable[[list[str]], int],
    parse_flags: Callable[[list[str]], list[str]],
    computes: bool = False,
) -> NoReturn:
    """Runs a command as this process.

    Args:
        main: takes the arguments that `parse_flags` returns, and returns the exit status.
        parse_flags: parses the command line; may be absl's `FLAGS`.
        computes: whether to print first, on stderr, the devices that the command computes on.
    """

    def begin(argv: list[str]) -> int:
        if computes:
            from trainers.cli import devices

            print(devices.described(), file=sys.stderr, flush=True)
        return main(argv)

    stopping.listen()
    try:
        stopping.end_with_parent()
    except (MemoryError, RuntimeError) as error:  # no thread
        sys.exit(fail(out_of_memory(error), Status.REFUSED))
    try:
        with _output():
            app.run(begin, flags_parser=parse_flags)
    except stopping.OutputError as error:
        sys.exit(_lost(error))
    except stopping.StoppedError as stopped:
        os._exit(int(stopped.code or 0))  # Python would wait for busy threads
    except BaseException:
        if (status := stopping.ended_by()) is None:
            raise
        os._exit(status)
    raise AssertionError("app.run has to end by SystemExit")


def exit_status(argv: list[str], work: Callable[[], int | None]) -> int:
    """Does a command's work; returns the exit status.

    Args:
        argv: from `parse`; must be the command's name alone.
        work: returns a status, or None for DONE.
    """
    try:
        if len(argv) > 1:
            raise ValueError(
                f"arguments must be flags, --FLAG=VALUE. Received: {' '.join(argv[1:])}"
            )
        with _output():
            return work() or Status.DONE
    except stopping.OutputError as error:
        return _lost(error)
    except NotKeptError as error:
        return fail(str(error), Status.NOT_KEPT)
    except TakenError as error:
        return fail(str(error), Status.TAKEN)
    except Exception as error:
        if lacking := lack_of_memory(error):
            return fail(out_of_memory(lacking), Status.REFUSED)
        if isinstance(error, ERRORS):
            full = getattr(error, "errno", None) in _FULL
            status = Status.NOT_KEPT if full else Status.REFUSED
            return fail(flag_errors.format_error(error), status)
        # Object stores raise this in place of OSError.
        if isinstance(error, _tensorflow_errors("OpError")) and "://" in error.message:
            return fail(" ".join(error.message.split()), Status.REFUSED)
        raise


def _tensorflow_errors(name: str) -> tuple[Any, ...]:
    """Returns a class of TensorFlow's errors, or none where TensorFlow is not imported."""
    tensorflow = sys.modules.get("tensorflow")
    return (getattr(tensorflow.errors, name),) if tensorflow else ()


def parse(
    argv: list[str],
    check: Callable[[], None] = lambda: None,
    tasks: Sequence[str] = (),
) -> list[str]:
    """Parses a command line and checks it; exits with one line if it is not valid.

    Args:
        argv: the command line.
        check: raises an error if the flags do not go together.
        tasks: the values of `--task` that the command takes; (): all of them.
    """
    try:
        # Read flag files first, since `--task` and `--preset` may be in one.
        argv = _expand_flagfiles(argv)
        # Only commands with `--task` have `--config` fields.
        if "task" in flags.FLAGS:
            from trainers.cli import config_flags

            config_flags.offer(argv, tasks)
            rest = config_flags.parse(argv)
        else:
            rest = flags.FLAGS(argv)
        flag_errors.check_paths()
        check()
    except stopping.OutputError:  # from --help
        raise
    except ERRORS as error:
        sys.exit(fail(flag_errors.format_error(error), Status.REFUSED))
    return rest


def _expand_flagfiles(argv: list[str]) -> list[str]:
    paths = [
        argument.partition("=")[2]
        for argument in argv
        if argument.lstrip("-").startswith("flagfile=")
    ]
    for path in paths:
        refuse_pipe(path)
    try:
        return flags.FLAGS.read_flags_from_files(argv, force_gnu=False)
    except UnicodeDecodeError as error:
        raise ValueError(
            f"--flagfile must be a text file in UTF-8. Received: {', '.join(paths)} ({error})"
        ) from error


def program(
    work: Callable[[], int | None],
    check: Callable[[], None],
    tasks: Sequence[str] = (),
    parser: Callable[..., list[str]] = parse,
) -> tuple[Callable[[list[str]], int], Callable[[list[str]], list[str]]]:
    """Returns `main` and `parse_flags` of a command whose arguments are flags alone.

    Args:
        work: as for `exit_status`.
        check: as for `parse`.
        tasks: as for `parse`.
        parser: parses the command line as `parse` does.
    """
    main = functools.partial(exit_status, work=work)
    return main, functools.partial(parser, check=check, tasks=tasks)


def require(*names: str) -> None:
    """Raises ValueError if one of these flags is missing."""
    for name in names:
        if not flags.FLAGS[name].value:
            raise ValueError(f"--{name} is missing")


def fail(message: str, status: Status) -> Status:
    """Prints an error in one line; returns `status`."""
    logging.debug("The error's origin:", exc_info=True)  # with --verbosity=1
    if stopping.ended_by() is not None:  # The signal caused the error.
        return status
    try:
        print(f"error: {terminal.line(message)}", file=sys.stderr, flush=True)
    except OSError:  # Nobody can be told.
        stopping.abandon(sys.stderr)
    return status


def lack_of_memory(error: BaseException) -> BaseException | None:
    """Returns the error that says why memory has run out; None if it has not.

    Libraries hide it: TensorFlow raises a TypeError from a MemoryError, or an error of its own
    about an operation that cannot be made. So an error that nobody expects counts as one of memory
    if such an error led to it, or if the process gets no more memory.
    """
    kinds = (MemoryError, *_tensorflow_errors("ResourceExhaustedError"))
    if isinstance(error, (*ERRORS, NotKeptError)):
        return None
    behind: BaseException | None = error
    while behind is not None:
        if isinstance(behind, kinds):
            return behind
        behind = behind.__cause__ or behind.__context__
    return error if resources.is_short() else None


def out_of_memory(error: BaseException) -> str:
    """Returns a line about exhausted memory, with the part of the error that names the cause."""
    message = str(getattr(error, "message", error))
    match = re.search("OOM when allocating.*", message)  # follows the names of a graph
    what = (match[0] if match else message.split("\n", 1)[0])[:200]
    why = f" ({what})" if what else ""
    return resources.OUT_OF_MEMORY.format(why)


@contextlib.contextmanager
def _output() -> Iterator[None]:
    """Raises OutputError, at the end at the latest, if stdout cannot be written."""
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
    if error.errno == errno.EPIPE:  # The reader has read enough.
        return stopping.exit_status(signal.SIGPIPE)
    return fail(f"the output cannot be written ({error})", Status.NOT_KEPT)
