"""The folder of a served model: a version in it is whole, or is not there.

A server polls the folder and loads the subfolder whose name is the greatest number, of 64 bits, in
decimal digits of ASCII.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable

import tensorflow as tf

__all__ = ["check_folder", "newest", "publish"]

_LAST = 2**63 - 1  # what a server reads
_GRAPH = "saved_model.pb"  # without it no server takes a folder for a model


def check_folder(path: str) -> None:
    """Refuses what cannot be a model's folder.

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
    found = _versions(path)
    if not found:
        raise ValueError(
            "`path` must be a model's folder, with a version, a folder whose name is a number. "
            f"Received: path={path!r}, which has none"
        )
    return os.path.join(path, found[max(found)])


def publish(write: Callable[[str], None], path: str) -> str:
    """Writes a new version of a model, whose number is the greatest one so far plus one.

    In a file system the version is written to a folder beside the others whose name is no number,
    and is renamed. An object store cannot rename: there it is written to this machine's temporary
    folder and copied, the graph last; a server that polls meanwhile may say that the version does
    not load, and tries again.

    Args:
        write: writes a SavedModel to the folder that it is given.
        path: the model's folder.

    Returns:
        The version's folder.

    Raises:
        ValueError: the greatest version has no number after it.
    """
    _next(path)  # before anything is written
    if "://" in path:
        with tempfile.TemporaryDirectory() as folder:
            write(folder)
            version = os.path.join(path, str(_next(path)))
            _copy(folder, version)
            return version
    folder = os.path.join(path, f".exporting-{uuid.uuid4().hex}")
    os.makedirs(folder)
    try:
        write(folder)
        return _rename(folder, path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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
    names = tf.io.gfile.listdir(path) if tf.io.gfile.exists(path) else []
    numbered = {_number(name): name for name in (each.rstrip("/") for each in names)}
    return {number: name for number, name in numbered.items() if number is not None}


def _number(name: str) -> int | None:
    """Returns the version that a folder's name says, None where it is none."""
    if not (name.isascii() and name.isdecimal()) or int(name) > _LAST:
        return None
    return int(name)


def _rename(folder: str, path: str) -> str:
    while True:
        version = os.path.join(path, str(_next(path)))
        try:
            os.rename(folder, version)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # another export was faster
                raise
        else:
            return version


def _copy(folder: str, version: str) -> None:
    paths = [os.path.join(root, name) for root, _, names in os.walk(folder) for name in names]
    for path in sorted(paths, key=lambda each: (os.path.basename(each) == _GRAPH, each)):
        target = os.path.join(version, os.path.relpath(path, folder))
        tf.io.gfile.makedirs(os.path.dirname(target))
        tf.io.gfile.copy(path, target)
