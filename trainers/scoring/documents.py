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

from trainers.data.files import bad_byte
from trainers.data.stores import one_line

Open = Callable[[str], IO[bytes]]
"""Opens a file for reading."""

LONGEST = 2**24  # bytes of a document; the memory for one grows with it
# How deep the brackets of a line of JSON may stand in each other. Python's parser has a limit too,
# but one that depends on its caller, and so on the runner.
DEEPEST = 500
_MARK = re.compile(r'\\.|["\[\]{}]')  # an escape, a quote or a bracket
_FRAME = 16  # bytes of a TFRecord beside its content
# What is wrong with one file. Other errors are those of a disk or a store.
_DAMAGED = (
    EOFError,
    zlib.error,
    gzip.BadGzipFile,
    FileNotFoundError,
    PermissionError,
    IsADirectoryError,
    tf.errors.DataLossError,
    tf.errors.NotFoundError,
    tf.errors.PermissionDeniedError,
    tf.errors.FailedPreconditionError,
)
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
        record: what is written again, a JSON object: the line as it was read, or the text alone.
        reason: why there is no text.
    """

    id: str
    text: str | None = None
    record: str = ""
    reason: str = ""

    def with_field(self, name: str, value: Any) -> str:
        """Returns `record` with a field more; all else in it stays as it was written."""
        field = f"{_dumped(name)}: {_dumped(value)}"
        return f"{self.record[:-1]}, {field}}}"


class Fields(NamedTuple):
    """Names of fields of a document.

    Attributes:
        text: of the text in JSON Lines and in `tf.train.Example`.
        output: of the scores in what is written again; None if nothing is.
    """

    text: str
    output: str | None = None


class _RefusedError(ValueError):
    """A record is no document; the message says why."""


def check_name(path: str) -> str:
    """Returns the format of a file by its name.

    Raises:
        ValueError: the name ends like that of no format, or is not UTF-8, as ids are.
    """
    try:
        path.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"--input must match files whose names are UTF-8. Received: {path!r}"
        ) from None
    for name, pattern in _FORMATS.items():
        if pattern.fullmatch(path):
            return name
    raise ValueError(
        "--input must match files whose names end with .txt, .jsonl, .ndjson or .tfrecord, and "
        f".gz after it if they are compressed. Received: {path}"
    )


def read(path: str, fields: Fields, opened: Open) -> Iterator[Document]:
    """Yields the documents of a file, those that cannot be read with the reason.

    Args:
        path: the file; its name says the format, its first bytes whether it is compressed.
        fields: the names of fields.
        opened: opens a file.

    Raises:
        OSError: the disk or the store fails, which is no damage of the file.
        MemoryError, tf.errors.ResourceExhaustedError: there is too little memory.
    """
    readers = {"text": _text, "json": _lines, "tfrecord": _records}
    count = 0
    try:
        for document in readers[check_name(path)](path, fields, opened):
            count += 1
            yield document
    except _DAMAGED as error:
        after = f" after {count:,} documents" if count else ""
        yield Document(
            path, reason=f"the file cannot be read{after}: {one_line(error)}"
        )
    except tf.errors.ResourceExhaustedError:
        raise
    except (OSError, tf.errors.OpError) as error:
        raise OSError(f"{path} cannot be read: {one_line(error)}") from error


def in_batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    """Yields documents in lists that take bounded memory when all are as long as the longest."""
    batch: list[Document] = []
    longest = 0
    for document in documents:
        size = max(len(document.text or ""), len(document.record))
        longest = max(longest, size)
        if len(batch) == 256 or (batch and (len(batch) + 1) * longest > 2**22):
            yield batch
            batch, longest = [], size
        batch.append(document)
    if batch:
        yield batch


def _text(path: str, fields: Fields, opened: Open) -> Iterator[Document]:
    """Yields the one document of a text file."""
    with _uncompressed(path, opened) as file:
        content = file.read(LONGEST + 1)
    yield _document(path, fields, _whole, content)


def _lines(path: str, fields: Fields, opened: Open) -> Iterator[Document]:
    """Yields a document for each line of JSON Lines but blank ones."""
    with _uncompressed(path, opened) as file:
        for number in itertools.count(1):
            line = file.readline(LONGEST + 1)
            if not line:
                return
            if not line.endswith(b"\n"):
                _skip_line(file)
            if line.strip():
                yield _document(f"{path}:{number}", fields, _json, line)


def _records(path: str, fields: Fields, opened: Open) -> Iterator[Document]:
    """Yields a document for each record: a `tf.train.Example`, or else the text itself."""
    with opened(path) as file:
        kind = "GZIP" if _is_compressed(file) else ""
    size = 0
    with _local_copy(path, opened) as local:
        records = tf.data.TFRecordDataset(local, kind).as_numpy_iterator()
        for number, record in enumerate(records, 1):
            size += len(record) + _FRAME
            yield _document(f"{path}:{number}", fields, _example, record)
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
    fields: Fields,
    parse: Callable[[bytes, Fields], tuple[Any, str]],
    content: bytes,
) -> Document:
    """Returns a document of the text and the record of its content, or the reason for none."""
    try:
        text, record = parse(content, fields)
        if not isinstance(text, str):
            raise _RefusedError(f"it has no text in the field {fields.text!r}")
        text.encode()  # JSON may have half of a surrogate pair
        return Document(id, text, record)
    except _RefusedError as error:
        return Document(id, reason=str(error))
    except UnicodeEncodeError as error:
        return Document(id, reason=f"it is not UTF-8: {error}")
    except MemoryError:
        raise
    except Exception as error:
        # Whatever else the content of one document causes does not stop the others.
        return Document(id, reason=f"it cannot be read: {one_line(error)}")


def _whole(content: bytes, fields: Fields) -> tuple[str, str]:
    text = _decoded(content)
    return text, _dumped({fields.text: text})


def _json(content: bytes, fields: Fields) -> tuple[Any, str]:
    # A return is white space here, but many programs end a line there.
    line = _decoded(content).replace("\r", " ").strip(" \t\n")
    if _is_deep(line):
        raise _RefusedError(f"it is nested deeper than {DEEPEST}")
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        raise _RefusedError(f"it is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise _RefusedError("it is no JSON object")
    if fields.output in value:
        raise _RefusedError(
            f"it has a field {fields.output!r}, which the scores would replace: choose another "
            "--output_field"
        )
    return value.get(fields.text), line


def _is_deep(line: str) -> bool:
    """Returns whether brackets stand in each other too deep to parse; sees no other mistake."""
    if line.count("[") + line.count("{") <= DEEPEST:  # nearly always, and fast
        return False
    depth, quoted = 0, False
    for mark in _MARK.finditer(line):
        if mark[0] == '"':
            quoted = not quoted
        elif not quoted:
            depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(mark[0], 0)
        if depth > DEEPEST:
            return True
    return False


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _example(record: bytes, fields: Fields) -> tuple[str | None, str]:
    features = _features(record)
    if not features:
        return _whole(record, fields)
    if fields.text not in features or len(features[fields.text].bytes_list.value) != 1:
        return None, ""
    return _whole(features[fields.text].bytes_list.value[0], fields)


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
        byte = bad_byte(content, error.start)
        raise _RefusedError(f"it is not UTF-8: {byte} of it") from error


def _uncompressed(path: str, opened: Open) -> IO[bytes] | gzip.GzipFile:
    file = opened(path)
    # Beam's own decompression takes a file that is cut off for a whole one.
    return gzip.GzipFile(fileobj=file) if _is_compressed(file) else file


def _is_compressed(file: IO[bytes]) -> bool:
    """Returns whether a file is gzip by its first bytes, and goes back to them."""
    first = file.read(3)
    file.seek(0)
    # Two bytes are those of a TFRecord, too, whose first record has 35,615 bytes.
    return first == b"\x1f\x8b\x08"


def _skip_line(file: IO[bytes] | gzip.GzipFile) -> None:
    """Reads to the end of a line that is too long."""
    while (part := file.readline(2**20)) and not part.endswith(b"\n"):
        pass
