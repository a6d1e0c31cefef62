"""What the commands have in common: how flags are read, and errors in one line."""

import enum
import sys
from collections.abc import Callable

from absl import flags, logging

from trainers import config as configs
from trainers import flag_errors, terminal
from trainers.training.workdir import WorkdirError


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


ERRORS = (ValueError, OSError, WorkdirError, flags.Error)


def run(argv: list[str], command: Callable[[], int | None]) -> int:
    """Runs a command with what `parse_flags` left of its arguments; returns the exit status."""
    try:
        if len(argv) > 1:
            raise ValueError(
                f"arguments must be flags, --FLAG=VALUE. Received: {' '.join(argv[1:])}"
            )
        return command() or 0
    except ERRORS as error:
        return fail(flag_errors.told(error), Status.REFUSED)


def parse_flags(argv: list[str], check: Callable[[list[str]], None]) -> list[str]:
    """Parses a command line and checks it; exits with one line where it is not valid."""
    try:
        # Only what names a task has the fields of its config.
        rest = configs.parse(argv) if "task" in flags.FLAGS else flags.FLAGS(argv)
        flag_errors.check_paths()
        check(argv)
    except ERRORS as error:
        sys.exit(fail(flag_errors.told(error), Status.REFUSED))
    return rest


def require(*names: str) -> None:
    """Raises ValueError where one of these flags is not given."""
    for name in names:
        if not flags.FLAGS[name].value:
            expected = f"; expected one of {', '.join(configs.TASKS)}" if name == "task" else ""
            raise ValueError(f"--{name} is missing{expected}")


def fail(message: str, status: Status) -> Status:
    """Prints an error in one line; returns `status`."""
    logging.debug("The error's origin:", exc_info=True)  # with --verbosity=1
    print(f"error: {terminal.line(message)}", file=sys.stderr)
    return status
