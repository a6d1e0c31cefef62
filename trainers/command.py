"""What the commands have in common: the flags that name a run, and errors in one line."""

import enum
import sys
from collections.abc import Callable

from absl import flags, logging

from trainers import config as configs
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

flags.DEFINE_string("task", None, f"One of {', '.join(configs.TASKS)}.")
flags.DEFINE_string("preset", None, "A preset of the task; its first one by default.")
flags.DEFINE_string("data_dir", None, "The folder of the corpus's text files.")
flags.DEFINE_string("workdir", None, "The folder of the run.")


def run(argv: list[str], command: Callable[[], int | None]) -> int:
    """Runs a command with what `parse_flags` left of its arguments; returns the exit status."""
    try:
        if len(argv) > 1:
            raise ValueError(
                f"arguments must be flags, --FLAG=VALUE. Received: {' '.join(argv[1:])}"
            )
        return command() or 0
    except ERRORS as error:
        return fail(str(error), Status.REFUSED)


def parse_flags(argv: list[str], check: Callable[[list[str]], None]) -> list[str]:
    """Parses a command line and checks it; exits with one line where it is not valid."""
    try:
        # Those of --flagfile among them, which decide on task and preset as any others do.
        argv = flags.FLAGS.read_flags_from_files(argv, force_gnu=False)
        rest = configs.parse(argv)
        check(argv)
    except ERRORS as error:
        sys.exit(fail(str(error), Status.REFUSED))
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
    print(f"error: {message}", file=sys.stderr)
    return status
