"""The manifest of an export: what its files are, and how to run them.

`manifest.json` stands beside the SavedModel, and has these entries:

- `format`: the version of this form, a number.
- `kind`: `language_model` or `classifier`.
- `written_by`: the versions of the packages that wrote the export.
- `fingerprint`: a number of 52 bits, equal in two exports only if their models compute the same. A
  cache carries it.
- `files`: the size in `bytes` and the `sha256` of each other file, by its path.
- `runtime`: what `keras_trellis.serving.runtime` needs to know; `{"refused": reason}` if the model
  has no form that it could run.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

NAME = "manifest.json"
FORMAT = 1
_BLOCK = 1 << 20  # bytes read at once


class ManifestError(ValueError):
    """An export has no manifest, or one that does not fit its files."""


class Manifest(NamedTuple):
    """What a manifest says; see the module."""

    kind: str
    written_by: str
    fingerprint: int
    files: Mapping[str, Mapping[str, Any]]
    runtime: Mapping[str, Any]


def write(
    folder: Path,
    kind: str,
    written_by: str,
    fingerprint: int,
    runtime: Mapping[str, Any],
) -> None:
    """Writes the manifest of all files that a folder has."""
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            name = path.relative_to(folder).as_posix()
            size, digest = _measured(path)
            files[name] = {"bytes": size, "sha256": digest}
    entries = {
        "format": FORMAT,
        "kind": kind,
        "written_by": written_by,
        "fingerprint": fingerprint,
        "files": files,
        "runtime": dict(runtime),
    }
    text = json.dumps(entries, indent=1, ensure_ascii=False)
    (folder / NAME).write_text(f"{text}\n", encoding="utf-8")


def read(folder: Path) -> Manifest:
    """Reads the manifest of a version.

    Raises:
        ManifestError: there is none, or one of another form.
    """
    path = folder / NAME
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ManifestError(
            f"{folder} has no {NAME}: it is no version of an export, or one of an earlier release; "
            "export the model again"
        ) from None
    except ValueError as error:
        raise ManifestError(f"{path} is damaged: {error}") from None
    if not isinstance(entries, dict) or entries.get("format") != FORMAT:
        received = entries.get("format") if isinstance(entries, dict) else entries
        raise ManifestError(
            f"{path} must have the format {FORMAT}, which this release reads. Received: "
            f"{received!r}"
        )
    try:
        manifest = Manifest(**{name: entries[name] for name in Manifest._fields})
        listed = {
            (type(f["bytes"]), type(f["sha256"])) for f in manifest.files.values()
        }
        if not (listed <= {(int, str)} and isinstance(manifest.runtime, dict)):
            raise TypeError("its entries are not those of a manifest")
    except (KeyError, TypeError, AttributeError) as error:
        raise ManifestError(f"{path} is damaged: {error}") from None
    return manifest


def check(folder: Path, manifest: Manifest, names: Iterable[str] | None = None) -> None:
    """Compares files with their sizes and checksums.

    Args:
        folder: the version's.
        manifest: its manifest.
        names: the files to compare; None: all of them.

    Raises:
        ManifestError: a file is missing, or is not the one that was written.
    """
    for name in manifest.files if names is None else names:
        path = folder / name
        if name not in manifest.files:
            raise ManifestError(f"{folder / NAME} does not list {name}")
        if not path.is_file():
            raise ManifestError(f"{path} is missing: {NAME} lists it")
        expected = manifest.files[name]
        size, digest = _measured(path)
        if size != expected["bytes"]:
            sizes = f"{expected['bytes']:,} bytes. Received: {size:,}"
            raise ManifestError(f"{path} must have {sizes}: it is not the file written")
        if digest != expected["sha256"]:
            raise ManifestError(
                f"{path} must have the SHA-256 that {NAME} lists, {expected['sha256'][:12]}...: "
                "it has been changed or damaged"
            )


def newest(path: str | os.PathLike[str]) -> Path:
    """Returns the folder of a version: the one given, or the newest of the model's folder given.

    Raises:
        ManifestError: it is neither.
    """
    folder = Path(path)
    if (folder / NAME).is_file():
        return folder
    versions = {}
    if folder.is_dir():
        for entry in folder.iterdir():
            if entry.name.isascii() and entry.name.isdecimal() and entry.is_dir():
                versions[int(entry.name)] = entry
    if not versions:
        raise ManifestError(
            "`path` must be the folder of an export, or of one of its versions, with a file "
            f"{NAME}. Received: path={os.fspath(path)!r}"
        )
    return versions[max(versions)]


def _measured(path: Path) -> tuple[int, str]:
    """Returns the size of a file, and its SHA-256."""
    size, digest = 0, hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            size += len(block)
            digest.update(block)
    return size, digest.hexdigest()
