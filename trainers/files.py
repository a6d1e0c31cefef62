"""Files that are written whole or not at all."""

import contextlib
import errno
import json
import os
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
    _remove(part)  # a killed process's may be one that cannot be opened
    try:
        with part.open("wb") as file:
            write(file)
            file.flush()
            _sync(file)
        part.replace(path)
    except BaseException:
        _remove(part)
        raise
    _sync_name(path)


def write_json(path: epath.PathLike, value: Mapping[str, Any]) -> None:
    """Writes a JSON file whole or not at all; what JSON does not know becomes a list."""
    text = json.dumps(value, indent=2, default=list) + "\n"
    write_atomically(path, lambda file: file.write(text.encode()))


def _remove(path: epath.Path) -> None:
    with contextlib.suppress(Exception):
        path.unlink(missing_ok=True)


def _sync(file: IO[bytes]) -> None:
    """Has the disk hold what was written; a write that fails late is told here."""
    try:
        descriptor = file.fileno()
    except (AttributeError, OSError):  # an object store's stream has none
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # that of a file system that cannot
            raise


def _sync_name(path: epath.Path) -> None:
    """Has the disk hold the file's name too, where folders can be synced: it stands there now."""
    with contextlib.suppress(OSError):
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
