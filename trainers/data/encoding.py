"""Encoded corpora on disk: token ids as memory-mapped arrays, checked before they are trusted.

A corpus is encoded once, block by block, into its own folder under `CACHE_DIR/encoded`. The folder
appears whole or not at all. Its name contains a digest of the source's checksums, so that changed
text is encoded again. Reading verifies each file's checksum.
"""

import collections
import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import pathlib
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any

import numpy as np
import tensorflow as tf
from absl import logging
from etils import epath

from keras_trellis.export.tokenizer import split_words
from trainers.data import files
from trainers.data.text import check, read_blocks, sha256
from trainers.data.tokens import Tokens
from trainers.data.vocabulary import EOS, UNKNOWN, UnknownTokenError, Vocabulary

SPLITS = ("train", "validation", "test")
_FORMAT = 2
_ID = np.dtype("<i4")
_VOCABULARY = "vocabulary.txt"
_SECONDS = 10.0  # between two lines that say how far a text is


@dataclasses.dataclass(frozen=True)
class Source:
    """A corpus before encoding.

    Attributes:
        name: The corpus's name.
        labels: What errors call the text of each split.
        checksums: The SHA-256 of each split's text.
        open: Takes a split's name and returns its text, which the caller closes.
        tokens: Returns the tokens of blocks of text, each of whole lines.
        settings: The arguments of `Vocabulary.from_counts`.
        form: A name for `tokens`, if a task has several.
        raw: Whether the text is any bytes. Else it is UTF-8, and its last line gets a line break.
    """

    name: str
    labels: Mapping[str, str]
    checksums: Mapping[str, str]
    open: Callable[[str], IO[bytes]]
    tokens: Tokens = split_words
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    form: str = ""
    raw: bool = False

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that the encoded ids depend on."""
        text = {"sha256": dict(self.checksums), "form": self.form}
        return {"format": _FORMAT, **text, "vocabulary": dict(self.settings)}


def of_files(
    name: str, paths: Mapping[str, epath.Path], tokens: Tokens, **settings: Any
) -> Source:
    """Returns the source of text files.

    Args:
        name: The corpus's name.
        paths: The file of each split.
        tokens: As in `Source`.
        **settings: Further fields of `Source`.

    Raises:
        ValueError: A file is not UTF-8, or ends its lines with CR alone.
        OSError: A file cannot be read.
    """
    for path in paths.values():
        check(path)
    return Source(
        name=name,
        labels={split: os.fspath(path) for split, path in paths.items()},
        checksums={split: sha256(path) for split, path in paths.items()},
        open=lambda split: paths[split].open("rb"),
        tokens=tokens,
        **settings,
    )


def encoded(
    source: Source, cache_dir: epath.PathLike
) -> tuple[Vocabulary, dict[str, np.ndarray]]:
    """Returns a corpus's vocabulary and ids; the first call encodes them into the cache.

    If another process encodes the corpus, this function waits for it.

    Args:
        source: The corpus.
        cache_dir: A local folder; it is created if it is missing.

    Returns:
        The vocabulary of the training text, and the int32 ids [N] of each split, read-only and
        memory-mapped.

    Raises:
        ValueError: A split has too little text or is not UTF-8, or the vocabulary lacks one of its
            tokens and has no `<unk>`.
        OSError: The cache cannot be written.
    """
    digest = hashlib.sha256(
        json.dumps(source.identity, sort_keys=True).encode()
    ).hexdigest()
    folder = _local(cache_dir) / "encoded" / f"{source.name}-{digest[:16]}"
    with contextlib.suppress(Exception):  # a damaged folder is encoded again
        return _read(folder, source)
    with _held(folder, cache_dir):
        if folder.exists():
            try:
                return _read(folder, source)
            except Exception as error:
                logging.warning("Encoding %s again: %s: %s", source.name, folder, error)
        _encode(folder, source)
    return _read(folder, source)


def _local(cache_dir: epath.PathLike) -> pathlib.Path:
    if "://" in os.fspath(cache_dir):
        raise ValueError(
            "`cache_dir` must be a local folder, since encoded ids are memory-mapped. "
            f"Received: cache_dir={os.fspath(cache_dir)!r}"
        )
    return pathlib.Path(cache_dir).expanduser()


@contextlib.contextmanager
def _held(folder: pathlib.Path, cache_dir: epath.PathLike) -> Iterator[None]:
    """Locks `folder` against other processes; waits for one that encodes into it."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = folder.with_name(f".{folder.name}.lock").open("w")
    except OSError as error:
        raise OSError(
            f"cache_dir={os.fspath(cache_dir)!r} cannot be written ({error}); "
            "expected a folder that can, for the encoded corpus"
        ) from error
    with lock:
        # Released by the system however the process ends.
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _encode(folder: pathlib.Path, source: Source) -> None:
    """Encodes into a folder next to `folder`, and renames it to `folder`."""
    part = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)  # of a process that was killed
    try:
        part.mkdir()
        _write(part, source)
        if folder.exists():
            shutil.rmtree(folder)
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _write(part: pathlib.Path, source: Source) -> None:
    """Writes vocabulary and ids."""
    vocabulary = Vocabulary.from_counts(_counts(source), **source.settings)
    if set(vocabulary.tokens) <= {UNKNOWN, EOS}:
        raise ValueError(
            f"{source.labels['train']} holds no words; expected the training text"
        )
    vocabulary.save(part / _VOCABULARY)
    for split in SPLITS:
        _write_ids(part, source, split, vocabulary)
    names = [_VOCABULARY, *(_ids_path(part, split).name for split in SPLITS)]
    checksums = {name: sha256(epath.Path(part / name)) for name in names}
    files.write_json(
        part / "meta.json", {"source": source.identity, "files": checksums}
    )


def _counts(source: Source) -> dict[str, int]:
    """Counts the words of the training text, in order of first appearance."""
    counts: collections.Counter[str] = collections.Counter()
    for words, places in _blocks(source, "train", "counted"):
        counts.update(dict(zip(words, np.bincount(places).tolist(), strict=True)))
    return counts


def _blocks(
    source: Source, split: str, doing: str
) -> Iterator[tuple[list[str], np.ndarray]]:
    """Yields the distinct words of each block of a text, and for each token its word's index.

    Of a large text it prints from time to time how far it has come.
    """
    size, told = 0, time.monotonic()
    with source.open(split) as text:
        for block in read_blocks(text, source.labels[split], raw=source.raw):
            size += len(block)
            if time.monotonic() - told > _SECONDS:
                told = time.monotonic()
                print(
                    f"encoding {source.labels[split]}: {size / 2**20:,.0f} MiB {doing}",
                    flush=True,
                )
            words, places = tf.unique(source.tokens(tf.constant([block])).flat_values)
            yield [word.decode() for word in words.numpy().tolist()], places.numpy()


def _write_ids(
    part: pathlib.Path, source: Source, split: str, vocabulary: Vocabulary
) -> None:
    count, has_words = 0, False
    with _ids_path(part, split).open("wb") as file:
        for words, places in _blocks(source, split, "written"):
            try:
                ids = vocabulary.encode(words)
            except UnknownTokenError as error:
                raise ValueError(
                    f"{source.labels[split]} holds {error.token!r}, which the training text lacks; "
                    f"expected its symbols alone, or a vocabulary with {UNKNOWN}: "
                    "--config.corpus.unknown=True"
                ) from error
            file.write(ids[places].astype(_ID).tobytes())
            count += len(places)
            has_words = has_words or bool((ids != vocabulary.eos_id).any())
    if count < 2:
        raise ValueError(
            f"{source.labels[split]} holds {count} tokens; expected at least 2, "
            "one to predict from another"
        )
    if not has_words:
        raise ValueError(f"{source.labels[split]} holds no words, only ends of lines")


def _ids_path(folder: pathlib.Path, split: str) -> pathlib.Path:
    return folder / f"{split}.ids"


def _read(
    folder: pathlib.Path, source: Source
) -> tuple[Vocabulary, dict[str, np.ndarray]]:
    meta = json.loads((folder / "meta.json").read_text())
    if meta["source"] != source.identity:
        raise ValueError("it is of another source")
    for name, checksum in meta["files"].items():
        if sha256(epath.Path(folder / name)) != checksum:
            raise ValueError(f"{name} is damaged")
    ids: dict[str, np.ndarray] = {
        split: np.memmap(_ids_path(folder, split), _ID, "r") for split in SPLITS
    }
    return Vocabulary.load(folder / _VOCABULARY), ids
