"""Files that are written whole or not at all."""

import contextlib
import json
import os
import stat
from collections.abc import Callable, Mapping
from typing import IO, Any

from etils import epath


def check_regular(path: epath.PathLike, flag: str | None = None) -> None:
    """Refuses what cannot be read as a file: reading a pipe may wait for ever, or succeed once.

    Args:
        path: what was given.
        flag: by which flag, for the error; None: a file in a folder that was.

    Raises:
        ValueError: it is a folder, a pipe, a socket or a device, or a link that leads nowhere.
        OSError: it is not there, or cannot be looked at.
    """
    path = epath.Path(path)
    if (kind := _kind_of(path)) is None:
        return
    received = f"--{flag}={path}, which is {kind}" if flag else kind
    raise ValueError(f"{f'--{flag}' if flag else path} must be a file. Received: {received}")


def _kind_of(path: epath.Path) -> str | None:
    """Returns what a path leads to in words, None where that is a file."""
    if "://" in os.fspath(path):
        return "a folder" if path.is_dir() else None
    try:
        mode = os.stat(path).st_mode
    except OSError:
        if os.path.islink(path):
            return "a link that leads nowhere"
        raise
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    return None if stat.S_ISREG(mode) else kinds.get(stat.S_IFMT(mode), "a device")


def check_folder(flag: str, path: epath.Path) -> None:
    """Refuses what cannot be a folder and cannot become one, before there is work to be lost.

    Args:
        flag: the flag that names it, for the error.
        path: a folder, or where it is to be made.

    Raises:
        ValueError: the path leads to another thing, or through one.
    """
    for part in (path, *path.parents):
        if part.is_dir():
            return
        if not os.path.lexists(part):
            continue
        received = (
            "a link that leads nowhere"
            if os.path.islink(part) and not part.exists()
            else "no folder"
        )
        which = "which" if part == path else f"of which {part}"
        raise ValueError(
            f"--{flag} must be a folder, or the name of a new one. Received: --{flag}={path}, "
            f"{which} is {received}"
        )


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


def write_json(path: epath.PathLike, value: Mapping[str, Any]) -> None:
    """Writes a JSON file whole or not at all; what JSON does not know becomes a list."""
    text = json.dumps(value, indent=2, default=list) + "\n"
    write_atomically(path, lambda file: file.write(text.encode()))
