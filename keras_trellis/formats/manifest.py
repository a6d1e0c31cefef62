"""The manifest of an export: what its files are, and how to run them.

`manifest.json` stands beside the SavedModel, and has these entries:

- `format`: the version of this form, a number. Form 1, of releases before 0.3, has no `checksum`.
- `kind`: `language_model` or `classifier`, or another that TensorFlow alone runs.
- `written_by`: the versions of the packages that wrote the export.
- `fingerprint`: a number of 52 bits, equal in two exports only if their models compute the same. A
  cache carries it.
- `files`: the size in `bytes` and the `sha256` of each other file, by its path.
- `runtime`: what `keras_trellis.serving.runtime` needs to know: the `files` that it reads; of a
  language model the tensors of its `cache` and its `vocabulary_size`, of a classifier its `labels`.
  `{"refused": reason}` if the model has no form that it could run.
- `checksum`: the SHA-256 of the other entries as JSON without spaces, their names in order.

All of it is checked before anything is used.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from keras_trellis.formats.schema import (
    Check,
    anything,
    each,
    items,
    record,
    shown,
    text,
    whole,
)

NAME = "manifest.json"
NOT_STATED = "not stated"  # of a fact that a model card should have
FORMAT = 2
_WITHOUT_CHECKSUM = 1
Parsed = TypeVar("Parsed")

_BLOCK = 1 << 20  # bytes read at once
_DTYPES = ("bool", "float16", "float32", "float64", "int8", "int32", "int64", "uint8")
_MOST_NUMBERS = 1 << 30  # of a row of a cache
_RUNTIME = "manifest.runtime"
# What the runtime reads, by kind.
_READ = {
    "language_model": {"tokenizer.json", "step.onnx", "chunk.onnx"},
    "classifier": {"classify.onnx"},
}


class ManifestError(ValueError):
    """An export has no manifest, or one that does not fit its files."""


class File(NamedTuple):
    """What a file must be.

    Attributes:
        bytes: its size.
        sha256: its SHA-256, in hexadecimal digits.
    """

    bytes: int
    sha256: str


class Tensor(NamedTuple):
    """A tensor of a cache.

    Attributes:
        dtype: NumPy's name of its dtype.
        sizes: those of a row.
        first: the values of a row before the first step, of these sizes; or a number for all.
    """

    dtype: str
    sizes: Sequence[int]
    first: Any = 0


class Runtime(NamedTuple):
    """What the runtime needs to know.

    Attributes:
        files: the paths of the files that it reads.
        cache: the tensors of a language model's cache, by name.
        vocabulary_size: how many tokens a language model has; 0 for another kind.
        labels: a classifier's.
        refused: why it cannot run the model; empty: it can.
    """

    files: Sequence[str] = ()
    cache: Mapping[str, Tensor] = {}
    vocabulary_size: int = 0
    labels: Sequence[str] = ()
    refused: str = ""


class Manifest(NamedTuple):
    """What a manifest says; see the module."""

    kind: str
    written_by: str
    fingerprint: int
    files: Mapping[str, File]
    runtime: Runtime


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
            files[name] = _measured(path)._asdict()
    entries = {
        "format": FORMAT,
        "kind": kind,
        "written_by": written_by,
        "fingerprint": fingerprint,
        "files": files,
        "runtime": dict(runtime),
    }
    entries["checksum"] = checksum(entries)
    written = json.dumps(entries, indent=1, ensure_ascii=False)
    (folder / NAME).write_text(f"{written}\n", encoding="utf-8")


def read(folder: Path) -> Manifest:
    """Reads the manifest of a version.

    Raises:
        ManifestError: there is none, or one of another form.
    """
    path = folder / NAME
    if not path.exists():
        raise ManifestError(
            f"{folder} has no {NAME}: it is no version of an export, or one of an earlier release; "
            "export the model again"
        )
    return parsed(path, lambda entries: _parsed(entries, path))


def parsed(path: Path, parse: Callable[[Any], Parsed]) -> Parsed:
    """Returns what a function makes of the entries of a JSON file.

    Raises:
        ManifestError: the file is no JSON, or the function raises a ValueError.
    """
    try:
        return parse(json.loads(path.read_text(encoding="utf-8")))
    except ManifestError:
        raise
    except RecursionError:
        raise ManifestError(f"{path} is damaged: it is nested too deeply") from None
    except (ValueError, OSError) as error:
        raise ManifestError(f"{path} is damaged: {error}") from None


def checksum(entries: Mapping[str, Any]) -> str:
    """Returns the checksum of a manifest's entries; its own is none of them."""
    others = {name: value for name, value in entries.items() if name != "checksum"}
    plain = json.dumps(others, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(plain.encode()).hexdigest()


def check(
    folder: Path,
    manifest: Manifest,
    names: Iterable[str] | None = None,
    sizes_alone: bool = False,
) -> None:
    """Compares files with their sizes and checksums.

    Args:
        folder: the version's.
        manifest: its manifest.
        names: the files to compare; None: all of them.
        sizes_alone: whether to leave the checksums out, which need all of a file.

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
        # A file of an object store, which is always read whole, has no `st_size`.
        found = (
            expected._replace(bytes=path.stat().st_size)
            if sizes_alone
            else _measured(path)
        )
        if found.bytes != expected.bytes:
            sizes = f"{expected.bytes:,} bytes. Received: {found.bytes:,}"
            raise ManifestError(f"{path} must have {sizes}: it is not the file written")
        if found.sha256 != expected.sha256:
            raise ManifestError(
                f"{path} must have the SHA-256 that {NAME} lists, {expected.sha256[:12]}...: "
                "it has been changed or damaged"
            )


def newest(path: str | os.PathLike[str]) -> Path:
    """Returns the folder of a version: the one given, or the newest of the model's folder given.

    Raises:
        ManifestError: it is neither.
    """
    return versions(path)[0]


def versions(path: str | os.PathLike[str]) -> list[Path]:
    """Returns the folders of versions, the newest first: the one given, or the model's.

    Raises:
        ManifestError: it is neither a version nor a model.
    """
    folder = Path(path)
    if (folder / NAME).is_file():
        return [folder]
    found = {}
    if folder.is_dir():
        for entry in folder.iterdir():
            if entry.name.isascii() and entry.name.isdecimal() and entry.is_dir():
                found[int(entry.name)] = entry
    if not found:
        raise ManifestError(
            "`path` must be the folder of an export, or of one of its versions, with a file "
            f"{NAME}. Received: path={os.fspath(path)!r}"
        )
    return [found[number] for number in sorted(found, reverse=True)]


def _measured(path: Path) -> File:
    size, digest = 0, hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            size += len(block)
            digest.update(block)
    return File(size, digest.hexdigest())


def _parsed(entries: Any, path: Path) -> Manifest:
    """Returns what entries say.

    Raises:
        ValueError: they are not those of a manifest.
        ManifestError: they are of another form, or not those that were written.
    """
    number = entries.get("format") if isinstance(entries, dict) else entries
    if type(number) is not int or number not in (FORMAT, _WITHOUT_CHECKSUM):
        raise ManifestError(
            f"{path} must have the format {FORMAT} or {_WITHOUT_CHECKSUM}, which this release "
            f"reads. Received: {shown(number)}"
        )
    fields: dict[str, Check] = {
        "format": whole(),
        "kind": text,
        "written_by": text,
        "fingerprint": whole(),
        "files": each(_file, _path),
        "runtime": anything,
    }
    if number == FORMAT:
        fields["checksum"] = _digest
    checked = record(entries, "manifest", fields)
    if number == _WITHOUT_CHECKSUM:
        warnings.warn(
            f"{path} is of a release before 0.3: it has no checksum, and whether it was changed "
            "is not checked; export the model again",
            stacklevel=3,
        )
    elif checked["checksum"] != checksum(entries):
        raise ManifestError(
            f"{path} must have the SHA-256 that it says, {checked['checksum'][:12]}...: it has "
            "been changed or damaged"
        )
    kind, files = checked["kind"], checked["files"]
    runtime = _runtime(checked["runtime"], kind, files)
    return Manifest(kind, checked["written_by"], checked["fingerprint"], files, runtime)


def _runtime(value: Any, kind: str, files: Mapping[str, File]) -> Runtime:
    if isinstance(value, dict) and "refused" in value:
        return Runtime(**record(value, _RUNTIME, {"refused": text}))
    fields: dict[str, Check] = {"files": items(text)}
    if kind == "language_model":
        fields |= {"cache": each(_tensor, text), "vocabulary_size": whole(1)}
    elif kind == "classifier":
        fields |= {"labels": items(text)}
    else:
        raise ValueError(
            f"`manifest.kind` must be one of {', '.join(_READ)}, which the runtime runs. "
            f"Received: {shown(kind)}"
        )
    runtime = Runtime(**record(value, _RUNTIME, fields))
    unlisted = {*runtime.files} - {*files}
    missing = _READ[kind] - {*runtime.files}
    if unlisted or missing:
        raise ValueError(
            f"`{_RUNTIME}.files` must list {', '.join(sorted(_READ[kind]))}, and nothing that "
            f"`manifest.files` does not. Received: {shown(runtime.files)}"
        )
    return runtime


def _path(value: str, name: str) -> str:
    """Checks the path of a file, which must be in the version's folder."""
    parts = value.split("/")
    if "\\" in value or {"", ".", ".."} & {*parts}:
        raise ValueError(
            f"`{name}` must have paths within the folder. Received: {shown(value)}"
        )
    return value


def _digest(value: Any, name: str) -> str:
    if not (isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value)):
        raise ValueError(
            f"`{name}` must be 64 hexadecimal digits. Received: {shown(value)}"
        )
    return value


def _file(value: Any, name: str) -> File:
    return File(**record(value, name, {"bytes": whole(), "sha256": _digest}))


def _tensor(value: Any, name: str) -> Tensor:
    fields: dict[str, Check] = {"dtype": text, "sizes": items(whole())}
    if isinstance(value, dict) and "first" in value:
        fields["first"] = anything
    tensor = Tensor(**record(value, name, fields))
    if tensor.dtype not in _DTYPES:
        raise ValueError(
            f"`{name}.dtype` must be one of {', '.join(_DTYPES)}. Received: {shown(tensor.dtype)}"
        )
    if math.prod(tensor.sizes) > _MOST_NUMBERS:
        raise ValueError(
            f"`{name}.sizes` must be of at most {_MOST_NUMBERS:,} numbers. "
            f"Received: {shown(tensor.sizes)}"
        )
    first = np.asarray(tensor.first)
    if first.dtype.kind not in "biuf" or first.shape not in ((), (*tensor.sizes,)):
        raise ValueError(
            f"`{name}.first` must be numbers of the sizes {list(tensor.sizes)}. "
            f"Received: {shown(tensor.first)}"
        )
    return tensor
