"""The documents of text files, JSON Lines and TFRecord, each of which may be damaged."""

from __future__ import annotations

import contextlib
import gzip
import itertools
import json
import os
import re
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any, NamedTuple

import tensorflow as tf
from google.protobuf import message

Open = Callable[[str], IO[bytes]]
"""Opens a file for reading."""

LONGEST = 2**24  # bytes of a document; the memory for one grows with it
_FRAME = 16  # bytes of a TFRecord beside its content
_DAMAGED = (OSError, EOFError, zlib.error)
_PART = r"(-\d+-of-\d+)?"
_FORMATS = {
    "text": re.compile(r".*\.txt(\.gz)?", re.DOTALL),
    "json": re.compile(rf".*\.(jsonl|ndjson){_PART}(\.gz)?", re.DOTALL),
    "tfrecord": re.compile(rf".*\.tfrecords?{_PART}(\.gz)?", re.DOTALL),
}


class Document(NamedTuple):
    """A document, or the reason why there is none.

    Attributes:
        id: the file, and the number of the line or record in it.
        text: the text; None if it could not be read.
        record: what it is written with: the fields of its JSON object, or the text alone.
        reason: why there is no text.
    """

    id: str
    text: str | None = None
    record: dict[str, Any] = {}
    reason: str = ""


class _RefusedError(ValueError):
    """A record is no document; the message says why."""


def check_name(path: str) -> str:
    """Returns the format of a file by its name.

    Raises:
        ValueError: the name ends like that of no format.
    """
    for name, pattern in _FORMATS.items():
        if pattern.fullmatch(path):
            return name
    raise ValueError(
        "--input must match files whose names end with .txt, .jsonl, .ndjson or .tfrecord, and "
        f".gz after it if they are compressed. Received: {path}"
    )


def read(path: str, text_field: str, opened: Open) -> Iterator[Document]:
    """Yields the documents of a file, those that cannot be read with the reason.

    Args:
        path: the file; its name says the format, its first bytes whether it is compressed.
        text_field: the field of the text in JSON Lines and in `tf.train.Example`.
        opened: opens a file.
    """
    of_format = {"text": _text, "json": _lines, "tfrecord": _records}
    count = 0
    try:
        for document in of_format[check_name(path)](path, text_field, opened):
            count += 1
            yield document
    except (*_DAMAGED, tf.errors.OpError) as error:
        told = " ".join(str(error).split()) or type(error).__name__
        after = f" after {count:,} documents" if count else ""
        yield Document(path, reason=f"the file cannot be read{after}: {told}")


def in_batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    """Yields documents in lists that take bounded memory when all are as long as the longest."""
    batch: list[Document] = []
    longest = 0
    for document in documents:
        size = len(document.text or "")
        longest = max(longest, size)
        if len(batch) == 256 or (batch and (len(batch) + 1) * longest > 2**22):
            yield batch
            batch, longest = [], size
        batch.append(document)
    if batch:
        yield batch


def _text(path: str, text_field: str, opened: Open) -> Iterator[Document]:
    """Yields the one document of a text file."""
    with _uncompressed(path, opened) as file:
        content = file.read(LONGEST + 1)
    yield _document(path, text_field, _whole, content)


def _lines(path: str, text_field: str, opened: Open) -> Iterator[Document]:
    """Yields a document for each line of JSON Lines but blank ones."""
    with _uncompressed(path, opened) as file:
        for number in itertools.count(1):
            line = file.readline(LONGEST + 1)
            if not line:
                return
            if not line.endswith(b"\n"):
                _skip_line(file)
            if line.strip():
                yield _document(f"{path}:{number}", text_field, _json, line)


def _records(path: str, text_field: str, opened: Open) -> Iterator[Document]:
    """Yields a document for each record: a `tf.train.Example`, or else the text itself."""
    with opened(path) as file:
        kind = "GZIP" if _is_compressed(file) else ""
    size = 0
    with _local_copy(path, opened) as local:
        records = tf.data.TFRecordDataset(local, kind).as_numpy_iterator()
        for number, record in enumerate(records, 1):
            size += len(record) + _FRAME
            yield _document(f"{path}:{number}", text_field, _example, record)
    # TensorFlow takes a file that is cut off in the frame of a record for a whole one.
    if size != _size(path, opened):
        raise EOFError("it ends within a record")


@contextlib.contextmanager
def _local_copy(path: str, opened: Open) -> Iterator[str]:
    """Yields the name of a file, or of a copy of one in a store, since TensorFlow lacks most."""
    if "://" not in path:
        yield path
        return
    with opened(path) as file, tempfile.NamedTemporaryFile() as copy:
        shutil.copyfileobj(file, copy)
        copy.flush()
        yield copy.name


def _size(path: str, opened: Open) -> int:
    """Returns the bytes of a file, uncompressed; reads it again only if it is compressed."""
    with opened(path) as file:
        if not _is_compressed(file):
            return file.seek(0, os.SEEK_END)
    with _uncompressed(path, opened) as content:
        return sum(len(block) for block in iter(lambda: content.read(2**20), b""))


def _document(
    id: str,
    text_field: str,
    parse: Callable[[bytes, str], dict[str, Any]],
    content: bytes,
) -> Document:
    """Returns a document of the fields that its content has, or the reason why it is none."""
    try:
        record = parse(content, text_field)
        text = record.get(text_field)
        if not isinstance(text, str):
            raise _RefusedError(f"it has no text in the field {text_field!r}")
        text.encode()  # JSON may have half of a surrogate pair
        return Document(id, text, record)
    except _RefusedError as error:
        return Document(id, reason=str(error))
    except UnicodeEncodeError as error:
        return Document(id, reason=f"it is not UTF-8: {error}")


def _whole(content: bytes, text_field: str) -> dict[str, Any]:
    return {text_field: _decoded(content)}


def _json(line: bytes, _: str) -> dict[str, Any]:
    try:
        value = json.loads(_decoded(line))
    except (json.JSONDecodeError, RecursionError) as error:
        raise _RefusedError(f"it is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise _RefusedError("it is no JSON object")
    return value


def _example(record: bytes, text_field: str) -> dict[str, Any]:
    features = _features(record)
    if not features:
        return _whole(record, text_field)
    if text_field not in features or len(features[text_field].bytes_list.value) != 1:
        return {}
    return _whole(features[text_field].bytes_list.value[0], text_field)


def _features(record: bytes) -> Any:
    """Returns the features of a serialised `tf.train.Example`; none if it is none."""
    try:
        return tf.train.Example.FromString(record).features.feature
    except message.DecodeError:
        return {}


def _decoded(content: bytes) -> str:
    if len(content) > LONGEST:
        raise _RefusedError(f"it is longer than {LONGEST:,} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise _RefusedError(f"it is not UTF-8: {error}") from error


def _uncompressed(path: str, opened: Open) -> IO[bytes] | gzip.GzipFile:
    file = opened(path)
    # Beam's own decompression takes a file that is cut off for a whole one.
    return gzip.GzipFile(fileobj=file) if _is_compressed(file) else file


def _is_compressed(file: IO[bytes]) -> bool:
    """Returns whether a file is gzip by its first bytes, and goes back to them."""
    first = file.read(2)
    file.seek(0)
    return first == b"\x1f\x8b"


def _skip_line(file: IO[bytes] | gzip.GzipFile) -> None:
    """Reads to the end of a line that is too long."""
    while (part := file.readline(2**20)) and not part.endswith(b"\n"):
        pass
