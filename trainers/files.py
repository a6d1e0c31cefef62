"""Files that are written whole or not at all."""

import contextlib
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
