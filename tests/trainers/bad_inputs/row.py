"""A row of the table of bad inputs, and files that several rows have."""

import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from trainers.tasks import registry

NO_FLAGS = ""
# What messages list.
TASKS = ", ".join(registry.TASKS)
LANGUAGE = ", ".join(registry.trained_by("trainers.lm"))


class Row(NamedTuple):
    """A command line that is refused.

    Attributes:
        name: What is wrong, in a few words; no other row of any table has it. The test's id.
        command: The command's module in `trainers`.
        flags: Its flags as a shell reads them. `{dir}` is the row's folder, where the command runs.
        line: What the user reads after "error: ". `{dir}` as above; `{any}` is any text.
        files: What is in the row's folder: text, bytes, or what makes the file of a path.
        status: The exit status.
        environment: Variables of the environment.
        out: What is printed before.
        warning: How a line begins that comes before.
    """

    name: str
    command: str
    flags: str
    line: str
    files: Mapping[str, str | bytes | Callable[[Path], None]] = {}
    status: int = 2
    environment: Mapping[str, str] = {}
    out: str = ""
    warning: str = ""


def refused(
    name: str,
    command: str,
    flags: str,
    rule: str,
    files: Mapping = {},
    *,
    received: str = "",
) -> Row:
    """Returns the row of the last of the flags, which "must be RULE. Received: FLAG=VALUE".

    `received` is how the value is printed, where that is not how it is written.
    """
    flag, _, value = flags.rsplit(" ", 1)[-1].partition("=")
    line = f"{flag} must be {rule}. Received: {flag}={received or value}"
    return Row(name, command, flags, line, files)


def folder(path: Path) -> None:
    """Makes a folder where a file is expected."""
    path.mkdir()


def fifo(path: Path) -> None:
    """Makes a named pipe that nobody writes to."""
    os.mkfifo(path)


def unix_socket(path: Path) -> None:
    """Makes a socket."""
    here = os.getcwd()
    os.chdir(path.parent)  # its address may have 107 bytes
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def link(target: str) -> Callable[[Path], None]:
    """Returns what makes a symbolic link."""
    return lambda path: path.symlink_to(target)


def texts(**files: str | bytes | Callable[[Path], None]) -> dict:
    """Returns the three files of `--task=text` in the folder `text`, some of them replaced."""
    good = "a b c d\n" * 160
    return {
        f"text/{name}.txt": files.get(name, good) for name in ("train", "valid", "test")
    }
