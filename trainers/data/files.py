"""Files: written whole or not at all, and read with clear errors."""

import contextlib
import errno
import hashlib
import itertools
import json
import math
import os
import stat
from collections.abc import Callable, Mapping
from typing import IO, Any

from etils import epath

from trainers.data.stores import as_path, is_store

# What the system says of a path where nothing is.
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP)
DEFAULT_CACHE_DIR = "~/.cache/keras_trellis"
CHECKSUM = "checksum"  # the field of a JSON file that `write_json` adds


def cache_folder(cache_dir: epath.PathLike | None) -> epath.Path:
    """Returns the folder of downloads and of files made from texts; None: the default."""
    folder = DEFAULT_CACHE_DIR if cache_dir is None else cache_dir
    return epath.Path(folder).expanduser()


def check_regular(path: epath.PathLike, flag: str | None = None) -> None:
    """Refuses a path that is no regular file: a pipe may block for ever or give its data only once.

    Args:
        path: the path.
        flag: the flag that names it, for the error; None for a file in a named folder.

    Raises:
        ValueError: it is a folder, a pipe, a socket or a device, or a link that leads nowhere.
        OSError: it does not exist or cannot be examined.
    """
    path = as_path(path)
    if (kind := _path_kind(path)) is None:
        return
    received = f"--{flag}={path}, which is {kind}" if flag else kind
    raise ValueError(
        f"{f'--{flag}' if flag else path} must be a file. Received: {received}"
    )


def _path_kind(path: epath.Path) -> str | None:
    """Returns the kind of thing at a path in words, or None for a file."""
    if is_store(path):
        return "a folder" if path.is_dir() else None
    try:
        mode = os.stat(path).st_mode
    except OSError:
        if os.path.islink(path):
            return "a link that leads nowhere"
        raise
    kinds = {
        stat.S_IFDIR: "a folder",
        stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket",
    }
    return None if stat.S_ISREG(mode) else kinds.get(stat.S_IFMT(mode), "a device")


def refuse_pipe(path: epath.PathLike) -> None:
    """Raises OSError for a pipe, a socket or a device, since reading one may block for ever."""
    kind = None
    with contextlib.suppress(OSError):  # reading will raise it again
        kind = _path_kind(as_path(path))
    if kind in ("a pipe", "a socket", "a device"):
        raise OSError(errno.EINVAL, f"it is {kind}, no file", os.fspath(path))


def check_folder(flag: str, path: epath.Path) -> None:
    """Refuses a path that is no folder and cannot become one, before any work can be lost.

    Args:
        flag: the flag that names the path, for the error.
        path: a folder, or a place for a new one.

    Raises:
        ValueError: the path leads to or through something that is no folder.
        OSError: an object store cannot be asked.
    """
    if is_store(path):
        if path.is_file():
            raise ValueError(
                f"--{flag} must be a folder, or the name of a new one. Received: "
                f"--{flag}={path}, which is an object"
            )
        return
    for part in (path, *path.parents):
        if part.is_dir():
            return
        if not os.path.lexists(part):
            continue
        is_dead = os.path.islink(part) and not part.exists()
        received = "a link that leads nowhere" if is_dead else "no folder"
        which = "which" if part == path else f"of which {part}"
        raise ValueError(
            f"--{flag} must be a folder, or the name of a new one. Received: --{flag}={path}, "
            f"{which} is {received}"
        )


def write_atomically(
    path: epath.PathLike,
    write: Callable[[IO[bytes]], Any],
    check: Callable[[], None] = lambda: None,
) -> None:
    """Writes a file whole or not at all.

    Args:
        path: the file's path; an existing file is replaced.
        write: writes the contents to an open file.
        check: called when the contents are written, just before the file gets its name; raises an
            error to leave everything as it was.

    Raises:
        OSError: the file could not be written; a former file at `path` stays.
    """
    path = as_path(path)
    if is_store(path):  # it has no rename, and shows no object before it is whole
        with path.open("wb") as file:
            write(file)
        return
    part = path.with_name(f".{path.name}.part")
    _remove(part)  # a killed process may have left one that cannot be opened
    try:
        with part.open("wb") as file:
            write(file)
            file.flush()
            _sync(file)
        check()
        part.replace(path)
    except BaseException as error:
        _remove(part)
        if isinstance(error, OSError) and error.errno and error.filename is None:
            # A write to an open file does not say which.
            raise OSError(error.errno, os.strerror(error.errno), str(path)) from error
        raise
    _sync_name(path)


def write_text(path: epath.PathLike, text: str) -> None:
    """Writes a text in UTF-8, whole or not at all."""
    write_atomically(path, lambda file: file.write(text.encode()))


def write_json(path: epath.PathLike, value: Mapping[str, Any]) -> None:
    """Writes `json_value(value)` and a checksum of it as JSON, whole or not at all.

    Without the checksum, a digit that the disk changes would look like a change by the user.
    """
    fields = json_value(value)
    fields[CHECKSUM] = json_checksum(fields)
    write_text(path, json.dumps(fields, indent=2, allow_nan=False) + "\n")


def json_checksum(fields: Mapping[str, Any]) -> str:
    """Returns the checksum of a value of JSON."""
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def _remove(path: epath.Path) -> None:
    with contextlib.suppress(Exception):
        path.unlink(missing_ok=True)


def _sync(file: IO[bytes]) -> None:
    """Flushes a file to the disk; a late write failure appears here."""
    try:
        os.fsync(file.fileno())
    except OSError as error:
        if error.errno != errno.EINVAL:  # the file system cannot sync
            raise


def _sync_name(path: epath.Path) -> None:
    """Flushes the file's name to the disk, if folders can be synced."""
    with contextlib.suppress(OSError):
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def json_value(value: Any) -> Any:
    """Returns a value as reading its JSON gives it.

    Other sequences become lists. NaN and infinity, which JSON lacks, become None.
    """
    if isinstance(value, Mapping):
        return {name: json_value(item) for name, item in value.items()}
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, (str, int)):
        return value
    return [json_value(item) for item in value]


class UnreadableError(ValueError):
    """A file's contents are not those that were written; the message says what is wrong."""


def read_json(
    path: epath.PathLike, fields: Mapping[str, type] | None = None
) -> dict[str, Any]:
    """Reads a JSON file of fields.

    Args:
        path: the file; a file of 0.1 or of an editor may lack the checksum.
        fields: required fields and their types; dots separate the names of nested groups.

    Returns:
        the fields without the checksum.

    Raises:
        UnreadableError: the file is empty, cut off, not UTF-8, not JSON, lacks a field, or does not
            fit its checksum.
        OSError: it cannot be read.
    """
    content = read_bytes(path)
    try:
        value = json.loads(content.decode())
        if not isinstance(value, dict):
            raise ValueError(f"it holds {_json_kind(value)}, not fields")
        for field, kind in (fields or {}).items():
            _check_field(value, field, kind)
        checksum = value.pop(CHECKSUM, None)
        if checksum is not None and checksum != json_checksum(value):
            raise ValueError(
                f"its values do not fit its `{CHECKSUM}` (take that line out if you have edited it)"
            )
    except (ValueError, RecursionError) as error:
        raise UnreadableError(
            f"{path} is damaged: {_json_problem(content, error)}"
        ) from error
    return value


def bad_byte(content: bytes, index: int, lines: int = 0, offset: int = 0) -> str:
    """Returns which byte of a file is no text, and where: its line from 1, its offset from 0.

    Args:
        content: a part of the file.
        index: the byte's place in it.
        lines: the line breaks before the part.
        offset: where in the file the part begins.
    """
    name = f"byte {content[index]:#04x}" if content[index] else "a NUL byte"
    line = lines + content.count(b"\n", 0, index) + 1
    return f"{name} in line {line:,}, at offset {offset + index}"


def exists(path: epath.PathLike) -> bool:
    """Returns whether a path exists; raises OSError if that cannot be known."""
    path = as_path(path)
    if is_store(path):
        return path.exists()
    try:
        os.stat(path)
    except OSError as error:
        if error.errno in _ABSENT:
            return False
        raise
    return True


def is_file(path: epath.PathLike) -> bool:
    """Returns whether a path is a regular file.

    A path that cannot be examined counts as one, so that reading it gives the error.
    """
    try:
        return _path_kind(as_path(path)) is None
    except OSError:
        return True


def read_bytes(path: epath.PathLike) -> bytes:
    """Reads a file, with a second attempt after a failure, which may have passed.

    Raises:
        OSError: the file cannot be read, or is a pipe, which may block for ever.
    """
    refuse_pipe(path)
    with contextlib.suppress(OSError):
        return as_path(path).read_bytes()
    return as_path(path).read_bytes()


def spare_path(path: epath.PathLike) -> epath.Path:
    """Returns `PATH.unreadable` or, if that exists, `PATH.unreadable-2` and so on."""
    path = as_path(path)
    taken = {entry.name for entry in path.parent.iterdir()}
    first = f"{path.name}.unreadable"
    names = itertools.chain([first], (f"{first}-{n}" for n in itertools.count(2)))
    return path.with_name(next(name for name in names if name not in taken))


def set_aside(path: epath.PathLike, name: str | None = None) -> epath.Path:
    """Renames a file or a folder to keep it; returns the new path.

    Args:
        path: the file or folder.
        name: the beginning of the new name. Default: the former name.

    Raises:
        OSError: it cannot be renamed, and stays where it is.
    """
    path = as_path(path)
    return path.rename(spare_path(path.with_name(name or path.name)))


def _check_field(value: Any, field: str, kind: type) -> None:
    for name in field.split("."):
        if not isinstance(value, dict) or name not in value:
            raise ValueError(f"it lacks `{field}`")
        value = value[name]
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"`{field}` is {_json_kind(value)}, not {_JSON_KINDS[kind]}")


_JSON_KINDS = {
    dict: "fields",
    list: "a list",
    str: "a text",
    int: "a whole number",
    float: "a fraction",
    bool: "true or false",
    type(None): "null",
}


def _json_kind(value: Any) -> str:
    return _JSON_KINDS[type(value)]


def _json_problem(content: bytes, error: Exception) -> str:
    """Returns what is wrong with the content of a JSON file."""
    if not content.strip():
        return "it is empty"
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8 ({bad_byte(content, error.start)})"
    if isinstance(error, RecursionError):
        return "it is not JSON (too many brackets)"
    if isinstance(error, json.JSONDecodeError):
        cut = error.pos >= len(error.doc.rstrip()) or error.msg.startswith(
            "Unterminated"
        )
        where = f"{error.msg}, line {error.lineno}"
        return "it is cut off" if cut else f"it is not JSON ({where})"
    return str(error)
