"""Files that are written whole or not at all."""

import contextlib
import json
import os
import stat
from collections.abc import Callable, Mapping
from typing import IO, Any

from etils import epath

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def check_regular(path: epath.Path) -> None:
    """Refuses what cannot be read as a file, a pipe that would be waited for above all.

    Raises:
        ValueError: there is no such file, or it is of another kind.
    """
    try:
        kind = stat.S_IFMT(os.stat(path).st_mode)
    except OSError as error:
        if path.exists():  # in an object store
            return
        received = "a link that leads nowhere" if os.path.islink(path) else "nothing of that name"
        raise ValueError(f"{path} must be a file. Received: {received}") from error
    if kind != stat.S_IFREG:
        raise ValueError(f"{path} must be a file. Received: {_KINDS.get(kind, 'something else')}")


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
