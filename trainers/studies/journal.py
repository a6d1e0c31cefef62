"""A journal: lines of JSON in a file that grows and never changes, each with a checksum.

A process that was killed while it wrote has left a last line without an end, which does not count.
"""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from trainers.data import files

Entry = Mapping[str, Any]


class DamagedError(ValueError):
    """A line is not as it was written; the message says which."""


def read(path: Path) -> list[dict[str, Any]]:
    """Returns the entries of a journal; none where the file does not exist.

    Raises:
        DamagedError: A whole line is not as it was written.
        OSError: The file cannot be read.
    """
    try:
        content = files.read_bytes(path)
    except FileNotFoundError:
        return []
    *lines, _ = content.split(b"\n")
    return [_entry(path, number, line) for number, line in enumerate(lines, 1)]


def _entry(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        entry = json.loads(line.decode())
        del entry[files.CHECKSUM]
        if _line(entry) == line + b"\n":
            return entry
    except (ValueError, RecursionError, TypeError, KeyError):
        pass  # damage can cause any of these
    raise DamagedError(f"{path} is damaged in line {number}")


def append(path: Path, entry: Entry) -> None:
    """Adds an entry; call it with a lock, since it removes what a killed process left.

    Raises:
        OSError: It could not be written; the journal is as it was.
    """
    with open(path, "ab+") as file:
        whole = _whole(file)
        try:
            file.truncate(whole)
            file.write(text([entry]))
            file.flush()
            os.fsync(file.fileno())
        except OSError as error:
            file.truncate(whole)
            raise OSError(error.errno, os.strerror(error.errno or 0), str(path)) from (
                error
            )


def _whole(file: Any) -> int:
    """Returns the size of the whole lines of a file."""
    size = file.seek(0, os.SEEK_END)
    if not size:
        return 0
    file.seek(size - 1)
    if file.read(1) == b"\n":
        return size
    file.seek(0)
    return file.read().rfind(b"\n") + 1


def text(entries: Iterable[Entry]) -> bytes:
    """Returns the lines of some entries."""
    return b"".join(_line(files.json_value(entry)) for entry in entries)


def _line(entry: Entry) -> bytes:
    value = {**entry, files.CHECKSUM: files.checksum_of(entry)}
    return json.dumps(value, allow_nan=False).encode() + b"\n"
