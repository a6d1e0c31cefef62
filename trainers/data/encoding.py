"""Encoded corpora on disk: token ids as memory-mapped arrays, checked before they are trusted.

A corpus is encoded once, block by block, into its own folder under `CACHE_DIR/encoded`. The folder
appears whole or not at all. Its name contains a digest of the source's checksums, so that changed
text is encoded again. Reading verifies each file's checksum.
"""

import collections
import contextlib
import dataclasses
import fcntl
import functools
import hashlib
import json
import os
import pathlib
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any

import numpy as np
from absl import logging
from etils import epath

from trainers.data import files, pieces
from trainers.data.pieces import PieceVocabulary
from trainers.data.text import check, read_blocks, sha256
from trainers.data.tokens import Tokens, split_words
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
        name: the corpus's name.
        labels: what errors call the text of each split.
        checksums: the SHA-256 of each split's text.
        open: takes a split's name and returns its text, which the caller closes.
        tokens: returns the tokens of blocks of text, each of whole lines.
        settings: the arguments of `Vocabulary.from_counts`.
        form: a name for `tokens`, if a task has several.
        raw: whether the text is any bytes. Else it is UTF-8, and its last line gets a line break.
        pieces: how many pieces of words to learn, which are the tokens then; None: they are words
            or characters.
        vocabulary: the pieces, where they are known already.
        plain: like `open`, of the text before it was made ready; None: it is the same.
    """

    name: str
    labels: Mapping[str, str]
    checksums: Mapping[str, str]
    open: Callable[[str], IO[bytes]]
    tokens: Tokens = split_words
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    form: str = ""
    raw: bool = False
    pieces: int | None = None
    vocabulary: PieceVocabulary | None = None
    plain: Callable[[str], IO[bytes]] | None = None

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that the encoded ids depend on."""
        text = {"sha256": dict(self.checksums), "form": self.form}
        return {"format": _FORMAT, **text, "vocabulary": self._rules()}

    def _rules(self) -> dict[str, Any]:
        """Returns what the vocabulary depends on beside the text."""
        if self.vocabulary is not None:
            names = "\n".join(self.vocabulary.tokens)
            return {"sha256": hashlib.sha256(names.encode()).hexdigest()}
        if self.pieces is not None:
            return {"pieces": self.pieces}
        return dict(self.settings)

    def read_plain(self, split: str, most: int | None = None) -> str:
        """Returns a split's text before it was made ready; of a long one about `most` bytes."""
        read, size = [], 0
        with (self.plain or self.open)(split) as file:
            for block in read_blocks(file, self.labels[split], raw=self.raw):
                read.append(block)
                size += len(block)
                if most is not None and size >= most:
                    break
        return b"".join(read).decode(errors="replace")


def source_from_files(
    name: str, paths: Mapping[str, epath.Path], tokens: Tokens, **settings: Any
) -> Source:
    """Returns the source of text files.

    Args:
        name: the corpus's name.
        paths: the file of each split.
        tokens: as in `Source`.
        **settings: further fields of `Source`.

    Raises:
        ValueError: a file is not UTF-8, or ends its lines with CR alone.
        OSError: a file cannot be read.
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
        source: the corpus.
        cache_dir: a local folder; it is created if it is missing.

    Returns:
        the vocabulary of the training text, and the int32 ids `[N]` of each split, read-only and
        memory-mapped.

    Raises:
        ValueError: a split has too little text or is not UTF-8, or the vocabulary lacks one of its
            tokens and has no `<unk>`.
        OSError: the cache cannot be written.
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
    vocabulary = source.vocabulary or _learned(source)
    vocabulary.save(part / _VOCABULARY)
    for split in SPLITS:
        _write_ids(part, source, split, vocabulary)
    names = [_VOCABULARY, *(_ids_path(part, split).name for split in SPLITS)]
    checksums = {name: sha256(epath.Path(part / name)) for name in names}
    files.write_json(
        part / "meta.json", {"source": source.identity, "files": checksums}
    )


def _learned(source: Source) -> Vocabulary:
    """Returns the vocabulary of the training text."""
    if source.pieces is not None:
        _check_words(source, any(map(str.strip, _decoded(source, "train", "checked"))))
        blocks = functools.partial(_decoded, source, "train", "learned from")
        return pieces.learn(blocks, source.pieces)
    vocabulary = Vocabulary.from_counts(_counts(source), **source.settings)
    _check_words(source, not {*vocabulary.tokens} <= {UNKNOWN, EOS})
    return vocabulary


def _check_words(source: Source, has_words: bool) -> None:
    if not has_words:
        raise ValueError(
            f"{source.labels['train']} holds no words; expected the training text"
        )


def _counts(source: Source) -> dict[str, int]:
    """Counts the words of the training text, in order of first appearance."""
    counts: collections.Counter[str] = collections.Counter()
    for words, places in _distinct(source, "train", "counted"):
        counts.update(dict(zip(words, np.bincount(places).tolist(), strict=True)))
    return counts


def _blocks(source: Source, split: str, doing: str) -> Iterator[bytes]:
    """Yields the blocks of a text; of a large one it prints from time to time how far it is."""
    size, printed = 0, time.monotonic()
    with source.open(split) as text:
        for block in read_blocks(text, source.labels[split], raw=source.raw):
            size += len(block)
            if time.monotonic() - printed > _SECONDS:
                printed = time.monotonic()
                print(
                    f"encoding {source.labels[split]}: {size / 2**20:,.0f} MiB {doing}",
                    flush=True,
                )
            yield block


def _decoded(source: Source, split: str, doing: str) -> Iterator[str]:
    # A byte of a raw text is the character of Latin-1 that has its number.
    form = "latin-1" if source.raw else "utf-8"
    return (block.decode(form) for block in _blocks(source, split, doing))


def _distinct(
    source: Source, split: str, doing: str
) -> Iterator[tuple[list[str], np.ndarray]]:
    """Yields the distinct words of each block of a text, and for each token its word's index."""
    for text in _decoded(source, split, doing):
        words: dict[str, int] = {}
        places = [words.setdefault(word, len(words)) for word in source.tokens(text)]
        yield list(words), np.array(places, np.int64)


def _ids(source: Source, split: str, vocabulary: Vocabulary) -> Iterator[np.ndarray]:
    """Yields the ids of each block of a text."""
    if isinstance(vocabulary, PieceVocabulary):
        cut = pieces.cutter(vocabulary)
        yield from map(cut, _decoded(source, split, "written"))
        return
    for words, places in _distinct(source, split, "written"):
        try:
            ids = vocabulary.encode(words)
        except UnknownTokenError as error:
            raise ValueError(
                f"{source.labels[split]} holds {error.token!r}, which the training text lacks; "
                f"expected its symbols alone, or a vocabulary with {UNKNOWN}: "
                "--config.corpus.unknown=True"
            ) from error
        yield ids[places]


def _write_ids(
    part: pathlib.Path, source: Source, split: str, vocabulary: Vocabulary
) -> None:
    count, has_words = 0, False
    with _ids_path(part, split).open("wb") as file:
        for ids in _ids(source, split, vocabulary):
            file.write(ids.astype(_ID).tobytes())
            count += len(ids)
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
    kind = Vocabulary if source.pieces is None else PieceVocabulary
    return kind.load(folder / _VOCABULARY), ids
