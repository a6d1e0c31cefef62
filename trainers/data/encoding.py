"""Encoded corpora on disk: token ids as memory-mapped arrays, checked before they are trusted.

A corpus is encoded once, as a stream, into a folder of its own under `CACHE_DIR/encoded`, which
appears whole or not at all. The folder's name follows from the source's checksums, so that text
that has changed is encoded anew. Each file's checksum is verified on reading.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from absl import logging
from etils import epath

from trainers import files
from trainers.data.text import sha256
from trainers.data.vocabulary import EOS, UNKNOWN, Vocabulary

SPLITS = ("train", "validation", "test")
_FORMAT = 1


@dataclasses.dataclass(frozen=True)
class Source:
    """A corpus before encoding.

    Attributes:
        name: The corpus's name.
        labels: For each split what to call its text in errors.
        checksums: For each split the SHA-256 of its text.
        tokens: Takes a split's name and returns its tokens, in pieces; called again for each pass.
        minimum_count: Tokens rarer than that in the training text read `<unk>`.
    """

    name: str
    labels: Mapping[str, str]
    checksums: Mapping[str, str]
    tokens: Callable[[str], Iterable[list[str]]]
    minimum_count: int = 1

    @property
    def identity(self) -> dict[str, Any]:
        """What the encoded ids depend on."""
        return {"minimum_count": self.minimum_count, "sha256": dict(self.checksums)}


def encoded(source: Source, cache_dir: epath.PathLike) -> tuple[Vocabulary, dict[str, np.ndarray]]:
    """Returns a corpus's vocabulary and ids, from the cache or, the first time, encoded into it.

    Args:
        source: The corpus.
        cache_dir: A local folder, made where it is missing.

    Returns:
        The vocabulary of the training text, and for each split int32 ids [N], read-only and
        memory-mapped.

    Raises:
        ValueError: A split holds too little text.
        OSError: The cache cannot be written.
    """
    digest = hashlib.sha256(json.dumps(source.identity, sort_keys=True).encode()).hexdigest()
    folder = _local(cache_dir) / "encoded" / f"{source.name}-{digest[:16]}"
    if folder.exists():
        try:
            return _read(folder, source)
        except Exception as error:  # Whatever is wrong with it, it can be made again.
            logging.warning("Encoding %s again: %s cannot be used: %s", source.name, folder, error)
    with _replaced(folder, cache_dir) as temporary:
        _write(temporary, source)
    return _read(folder, source)


def _local(cache_dir: epath.PathLike) -> pathlib.Path:
    if "://" in os.fspath(cache_dir):
        raise ValueError(
            "`cache_dir` must be a local folder, since encoded ids are memory-mapped. "
            f"Received: cache_dir={os.fspath(cache_dir)!r}"
        )
    return pathlib.Path(cache_dir).expanduser()


@contextlib.contextmanager
def _replaced(folder: pathlib.Path, cache_dir: epath.PathLike) -> Iterator[pathlib.Path]:
    """Yields a new folder that takes the place of `folder` once it has been filled."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = pathlib.Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as error:
        raise OSError(
            f"cache_dir={os.fspath(cache_dir)!r} cannot be written ({error}); "
            "expected a folder that can, for the encoded corpus"
        ) from error
    try:
        new = temporary / "new"
        new.mkdir()
        yield new
        # Where another process is faster, its files will do.
        with contextlib.suppress(FileNotFoundError):
            folder.rename(temporary / "old")
        try:
            new.rename(folder)
        except OSError:
            if not folder.exists():
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _write(folder: pathlib.Path, source: Source) -> None:
    vocabulary = Vocabulary.from_chunks(source.tokens("train"), source.minimum_count)
    if set(vocabulary.tokens) == {UNKNOWN, EOS}:
        raise ValueError(f"{source.labels['train']} holds no words; expected the training text")
    vocabulary.save(folder / "vocabulary.txt")
    for split in SPLITS:
        count = _write_ids(_ids_path(folder, split), vocabulary, source.tokens(split))
        if count < 2:
            raise ValueError(
                f"{source.labels[split]} holds {count} tokens; expected at least 2, "
                "one to predict from another"
            )
    names = sorted(path.name for path in folder.iterdir())
    checksums = {name: sha256(epath.Path(folder / name)) for name in names}
    meta = {"format": _FORMAT, "source": source.identity, "files": checksums}
    files.write_json(folder / "meta.json", meta)


def _ids_path(folder: pathlib.Path, split: str) -> pathlib.Path:
    return folder / f"{split}.npy"


def _write_ids(path: pathlib.Path, vocabulary: Vocabulary, chunks: Iterable[list[str]]) -> int:
    """Streams ids into an .npy file, whose header is written again once the count is known."""
    count = 0
    with path.open("wb") as file:
        _write_header(file, count)
        for chunk in chunks:
            file.write(vocabulary.encode(chunk).tobytes())
            count += len(chunk)
        # NumPy pads the header so that it keeps its length while the first dimension grows.
        file.seek(0)
        _write_header(file, count)
    return count


def _write_header(file: Any, count: int) -> None:
    header = np.lib.format.header_data_from_array_1_0(np.empty(0, np.int32)) | {"shape": (count,)}
    np.lib.format.write_array_header_1_0(file, header)


def _read(folder: pathlib.Path, source: Source) -> tuple[Vocabulary, dict[str, np.ndarray]]:
    meta = json.loads((folder / "meta.json").read_text())
    if meta["format"] != _FORMAT or meta["source"] != source.identity:
        raise ValueError("it was written by another version")
    for name, checksum in meta["files"].items():
        if sha256(epath.Path(folder / name)) != checksum:
            raise ValueError(f"{name} is damaged")
    ids = {split: np.load(_ids_path(folder, split), mmap_mode="r") for split in SPLITS}
    return Vocabulary.load(folder / "vocabulary.txt"), ids
