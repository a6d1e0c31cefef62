"""Files that are written whole or not at all."""

import contextlib
import json
import os
import stat
from collections.abc import Callable, Mapping
from typing import IO, Any

from etils import epath


def write_atomically(path: epath.PathLike, write: Callable[[IO[bytes]], Any]) -> None:
    """Writes a file whole or not at all.

    Args:
        path: where the file shall stand; one that stands there is replaced.
        write: writes the contents to the open file that it is given.

    Raises:
        OSError: it could not be written; what stood at `path` still does.
    """
    path = epath.Path(path)
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("wb") as file:
            write(file)
            file.flush()
            with contextlib.suppress(AttributeError, OSError):  # a stream may have no descriptor
                os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        with contextlib.suppress(Exception):
            part.unlink(missing_ok=True)
        raise


def check_regular(path: epath.PathLike, flag: str) -> None:
    """Refuses what cannot be read as a file: reading a pipe may wait for ever, or succeed once.

    Args:
        path: what was given.
        flag: by which flag, for the error.

    Raises:
        ValueError: it is a folder, a pipe, a socket or a device.
        OSError: it is not there, or cannot be looked at.
    """
    path = epath.Path(path)
    if "://" in os.fspath(path):
        mode = stat.S_IFDIR if path.is_dir() else stat.S_IFREG
    else:
        mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode):
        kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
        kind = kinds.get(stat.S_IFMT(mode), "a device")
        raise ValueError(f"--{flag} must be a file. Received: --{flag}={path}, which is {kind}")


def write_json(path: epath.PathLike, value: Mapping[str, Any]) -> None:
    """Writes a JSON file whole or not at all; what JSON does not know becomes a list."""
    text = json.dumps(value, indent=2, default=list) + "\n"
    write_atomically(path, lambda file: file.write(text.encode()))
