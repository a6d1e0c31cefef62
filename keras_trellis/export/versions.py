"""The folder of a served model, in which a version appears whole or not at all.

A server polls the folder and loads the subfolder whose name is the greatest number: decimal digits
of ASCII, at most 64 bits.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import tensorflow as tf

_LAST = 2**63 - 1  # the greatest number that a server reads
_UNDER_WAY = re.compile(r"\.exporting-(?:.+-)?[0-9a-f]{32}")
_DAY = 24 * 60 * 60  # seconds; no export takes as long
_GRAPH = "saved_model.pb"  # a server ignores folders without it


class NotWrittenError(OSError):
    """A version could not be written, and left nothing."""


def check_folder(path: str) -> None:
    """Refuses a path that cannot be a model's folder.

    Raises:
        ValueError: `path` is a file, a SavedModel, or named like a version.
    """
    reason = None
    if tf.io.gfile.exists(path) and not tf.io.gfile.isdir(path):
        reason = "which is a file"
    elif tf.io.gfile.exists(os.path.join(path, _GRAPH)):
        reason = "which is a SavedModel itself"
    elif _number(os.path.basename(path.rstrip("/"))) is not None:
        reason = "whose name is that of a version"
    if reason:
        raise ValueError(
            "`path` must be a model's folder, in which each export is a new version. "
            f"Received: path={path!r}, {reason}"
        )


def newest(path: str) -> str:
    """Returns the folder of a model's newest version.

    Raises:
        ValueError: `path` is not the folder of a model, or has no version.
    """
    check_folder(path)
    names = _versions(path)
    if not names:
        raise ValueError(
            "`path` must be a model's folder, with a version, a folder whose name is a number. "
            f"Received: path={path!r}, which has none"
        )
    return os.path.join(path, names[max(names)])


def publish(write: Callable[[str], None], path: str) -> str:
    """Writes a new version of a model, whose number is the greatest one so far plus one.

    On a file system this writes to a folder beside the versions whose name is no number, and
    renames it when all of it is on disk. It removes such folders that killed processes left, after
    a day.

    An object store cannot rename: this writes to this machine's temporary folder and copies the
    version, its graph last. A server that polls meanwhile may report a version that does not load,
    and tries again.

    Args:
        write: writes a SavedModel to a folder.
        path: the model's folder.

    Returns:
        the version's folder.

    Raises:
        ValueError: the greatest version has no number after it.
        NotWrittenError: the version could not be written.
    """
    try:
        _next(path)  # before anything is written
        if "://" in path:
            return _publish_remotely(write, path)
        return _publish(write, path)
    except (OSError, tf.errors.OpError) as error:
        reason = str(getattr(error, "message", error)).split("\n", 1)[0]
        raise NotWrittenError(f"no version is written in {path}: {reason}") from error


def _publish(write: Callable[[str], None], path: str) -> str:
    os.makedirs(path, exist_ok=True)
    _clear(path)
    folder = os.path.join(path, f".exporting-{uuid.uuid4().hex}")
    os.mkdir(folder)
    try:
        write(folder)
        _sync(folder)
        version = _rename(folder, path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    # Only a loss of power could undo the version now.
    with contextlib.suppress(OSError):
        _sync_one(path)
    return version


def _publish_remotely(write: Callable[[str], None], path: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        write(folder)
        version = os.path.join(path, str(_next(path)))
        _copy(folder, version)
        return version


def _next(path: str) -> int:
    greatest = max(_versions(path), default=0)
    if greatest == _LAST:
        raise ValueError(
            "`path` must have versions below the greatest that a server reads. "
            f"Received: path={path!r}, with version {greatest}"
        )
    return greatest + 1


def _versions(path: str) -> dict[int, str]:
    """Returns the names of a model's versions by their numbers."""
    names: dict[int, str] = {}
    if not tf.io.gfile.exists(path):
        return names
    try:
        entries = tf.io.gfile.listdir(path)
    except tf.errors.OpError as error:
        raise OSError(f"{path} cannot be listed: {error.message}") from error
    for entry in entries:
        name = entry.rstrip("/")
        number = _number(name)
        if number is not None:
            names[number] = name
    return names


def _number(name: str) -> int | None:
    """Returns the version that a folder's name tells, or None."""
    if not (name.isascii() and name.isdecimal()) or int(name) > _LAST:
        return None
    return int(name)


def _rename(folder: str, path: str) -> str:
    while True:
        version = os.path.join(path, str(_next(path)))
        try:
            os.rename(folder, version)
        except OSError as error:
            another_was_faster = error.errno in (errno.ENOTEMPTY, errno.EEXIST)
            if not another_was_faster:
                raise
        else:
            return version


def _clear(path: str) -> None:
    """Removes the folders to which nothing has been written for a day: their processes are dead."""
    for name in os.listdir(path):
        folder = os.path.join(path, name)
        if not (_UNDER_WAY.fullmatch(name) and os.path.isdir(folder)):
            continue
        # Another export may rename its folder meanwhile.
        with contextlib.suppress(FileNotFoundError):
            written = [os.path.getmtime(root) for root, _, _ in os.walk(folder)]
            if written and time.time() - max(written) > _DAY:
                shutil.rmtree(folder, ignore_errors=True)


def _sync(folder: str) -> None:
    """Flushes all files of a folder to disk, or raises OSError."""
    for path in (*Path(folder).rglob("*"), Path(folder)):
        _sync_one(path)


def _sync_one(path: str | Path) -> None:
    if os.path.isdir(path) and os.name == "nt":  # Windows cannot open folders
        return
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    except OSError as error:
        cannot_flush = error.errno in (errno.EINVAL, errno.ENOTSUP)
        if not cannot_flush:
            raise
    finally:
        os.close(file)


def _copy(folder: str, version: str) -> None:
    files = [path for path in Path(folder).rglob("*") if path.is_file()]
    for file in sorted(files, key=lambda path: path.name == _GRAPH):
        target = os.path.join(version, file.relative_to(folder))
        tf.io.gfile.makedirs(os.path.dirname(target))
        tf.io.gfile.copy(str(file), target)
