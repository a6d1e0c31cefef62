"""Encoded corpora on disk: token ids as memory-mapped arrays, checked before they are trusted.

A corpus is encoded once, block by block, into its own folder under `CACHE_DIR/encoded`. The folder
appears whole or not at all; an interrupted encoding goes on where it stopped. The folder's name
contains a digest of the source's checksums, so that changed text is encoded again. Reading verifies
each file's checksum.
"""

import collections
import contextlib
import dataclasses
import fcntl
import hashlib
import itertools
import json
import os
import pathlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any, NamedTuple

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
_IDS = 1 << 20  # ids in memory at once
# Bytes of text between two records of the progress: some seconds of work.
_SAVE_BYTES = 1 << 26
_FIRST, _PROGRESS = "train.first", "progress.json"
_VOCABULARY = "vocabulary.txt"


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


def of_files(name: str, paths: Mapping[str, epath.Path], tokens: Tokens, **settings: Any) -> Source:
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


def encoded(source: Source, cache_dir: epath.PathLike) -> tuple[Vocabulary, dict[str, np.ndarray]]:
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
    digest = hashlib.sha256(json.dumps(source.identity, sort_keys=True).encode()).hexdigest()
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
        fcntl.flock(lock, fcntl.LOCK_EX)  # released by the system however the process ends
        yield


def _encode(folder: pathlib.Path, source: Source) -> None:
    """Fills a folder next to `folder`, goes on with what it holds, and renames it to `folder`."""
    part = folder.with_name(f".{folder.name}.part")
    part.mkdir(exist_ok=True)
    try:
        _write(part, source, _encode_first(part, source))
    except ValueError:  # the text is not valid, so nothing can go on
        shutil.rmtree(part)
        raise
    if folder.exists():
        shutil.rmtree(folder)
    part.rename(folder)


class _Block(NamedTuple):
    """The tokens of a block of text: its distinct words, and for each token the word's index."""

    words: list[str]
    places: np.ndarray

    def ids(self, ids: np.ndarray) -> np.ndarray:
        """Returns the id of each token, from the id of each word."""
        return ids[self.places]


def _blocks(
    source: Source, split: str, text: IO[bytes], start: int = 0
) -> Iterator[tuple[_Block, int]]:
    """Yields a text's blocks and the byte where each ends; words in order of appearance."""
    for block, position in read_blocks(text, source.labels[split], start, raw=source.raw):
        words, places = tf.unique(source.tokens(tf.constant([block])).flat_values)
        yield _Block([word.decode() for word in words.numpy().tolist()], places.numpy()), position


def _encode_first(part: pathlib.Path, source: Source) -> list[str]:
    """Encodes the training text before its words are known.

    Appends its ids, in order of first appearance, to a file, and records the progress from time to
    time. A later call goes on from there.

    Returns:
        The words of the training text, in order of first appearance.
    """
    start, count, words, digest = _progress(part)
    if start:
        logging.info("Going on with encoding %s at byte %d", source.name, start)
    known = {word: index for index, word in enumerate(words)}
    ids_of = collections.defaultdict(itertools.count(len(words)).__next__, known)
    with source.open("train") as text, (part / _FIRST).open("ab") as file:
        file.truncate(count * _ID.itemsize)
        saved, position = start, start
        for block, position in _blocks(source, "train", text, start):
            ids = block.ids(np.fromiter(map(ids_of.__getitem__, block.words), _ID)).tobytes()
            file.write(ids)
            digest.update(ids)
            if position - saved >= _SAVE_BYTES:
                saved = position
                _record(part, file, position, list(ids_of), digest)
        _record(part, file, position, list(ids_of), digest)
    return list(ids_of)


def _record(
    part: pathlib.Path, file: IO[bytes], position: int, words: list[str], digest: Any
) -> None:
    """Records the progress of `_encode_first`, after its file is safely on disk.

    Args:
        part: The folder.
        file: The ids so far.
        position: The next byte of the text.
        words: The words so far.
        digest: The SHA-256 of the ids so far.
    """
    file.flush()
    os.fsync(file.fileno())
    count = os.path.getsize(part / _FIRST) // _ID.itemsize
    progress = {"position": position, "count": count, "words": words}
    files.write_json(part / _PROGRESS, {**progress, "sha256": _checksum(digest, progress)})


def _checksum(digest: Any, progress: Mapping[str, Any]) -> str:
    """Returns the SHA-256 of the ids, continued from their digest, and of their record."""
    whole = digest.copy()
    whole.update(json.dumps([progress[name] for name in ("position", "count", "words")]).encode())
    return whole.hexdigest()


def _progress(part: pathlib.Path) -> tuple[int, int, list[str], Any]:
    """Reads the progress of an earlier call; damaged files mean no progress.

    Returns:
        The next byte of the text, the number of ids written so far, their words, their digest.
    """
    if (part / _PROGRESS).exists():
        try:
            return _read_progress(part)
        except (ValueError, OSError) as error:
            logging.warning("Encoding from the beginning again: %s", error)
    return 0, 0, [], hashlib.sha256()


def _read_progress(part: pathlib.Path) -> tuple[int, int, list[str], Any]:
    fields = {"position": int, "count": int, "words": list, "sha256": str}
    progress = files.read_json(part / _PROGRESS, fields)
    digest, left = hashlib.sha256(), progress["count"] * _ID.itemsize
    with (part / _FIRST).open("rb") as file:
        while left > 0 and (block := file.read(min(left, _SAVE_BYTES))):
            digest.update(block)
            left -= len(block)
    if left or _checksum(digest, progress) != progress["sha256"]:
        raise ValueError(f"{part / _FIRST} or its {_PROGRESS} is damaged")
    return progress["position"], progress["count"], progress["words"], digest


def _write(part: pathlib.Path, source: Source, words: list[str]) -> None:
    """Writes vocabulary and ids, from the ids in order of first appearance."""
    counts = np.zeros(len(words), np.int64)
    for ids in _first_ids(part):
        counts += np.bincount(ids, minlength=len(words))
    vocabulary = Vocabulary.from_counts(
        dict(zip(words, counts.tolist(), strict=True)), **source.settings
    )
    if set(vocabulary.tokens) <= {UNKNOWN, EOS}:
        raise ValueError(f"{source.labels['train']} holds no words; expected the training text")
    vocabulary.save(part / _VOCABULARY)
    final = vocabulary.encode(words)
    eos = vocabulary.eos_id
    _write_ids(part, source, "train", eos, (final[ids] for ids in _first_ids(part)))
    for split in SPLITS[1:]:
        _write_ids(part, source, split, eos, _ids(source, split, vocabulary))
    names = [_VOCABULARY, *(_ids_path(part, split).name for split in SPLITS)]
    checksums = {name: sha256(epath.Path(part / name)) for name in names}
    files.write_json(part / "meta.json", {"source": source.identity, "files": checksums})
    for name in (_PROGRESS, _FIRST):  # the record first: without its ids it is of no use
        (part / name).unlink()


def _first_ids(part: pathlib.Path) -> Iterator[np.ndarray]:
    with (part / _FIRST).open("rb") as file:
        while (ids := np.fromfile(file, _ID, _IDS)).size:
            yield ids


def _ids(source: Source, split: str, vocabulary: Vocabulary) -> Iterator[np.ndarray]:
    with source.open(split) as text:
        for block, _ in _blocks(source, split, text):
            try:
                ids = vocabulary.encode(block.words)
            except UnknownTokenError as error:
                raise ValueError(
                    f"{source.labels[split]} holds {error.token!r}, which the training text lacks; "
                    f"expected its symbols alone, or a vocabulary with {UNKNOWN}: "
                    "--config.corpus.unknown=True"
                ) from error
            yield block.ids(ids)


def _write_ids(
    part: pathlib.Path, source: Source, split: str, eos: int, chunks: Iterator[np.ndarray]
) -> None:
    path, words = _ids_path(part, split), False
    with path.open("wb") as file:
        for ids in chunks:
            file.write(ids.astype(_ID).tobytes())
            words = words or bool((ids != eos).any())
    count = path.stat().st_size // _ID.itemsize
    if count < 2:
        raise ValueError(
            f"{source.labels[split]} holds {count} tokens; expected at least 2, "
            "one to predict from another"
        )
    if not words:
        raise ValueError(f"{source.labels[split]} holds no words, only ends of lines")


def _ids_path(folder: pathlib.Path, split: str) -> pathlib.Path:
    return folder / f"{split}.ids"


def _read(folder: pathlib.Path, source: Source) -> tuple[Vocabulary, dict[str, np.ndarray]]:
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
