"""Text files as blocks and token streams of bounded memory, and their checksums."""

import codecs
import hashlib
from collections.abc import Iterator, Mapping
from typing import IO

from etils import epath

from trainers.data.vocabulary import split_tokens

NO_DOWNLOAD = (
    "text that needs no download: task='pydoc', or task='text' with a data_dir of your own"
)
_BLOCK_BYTES = 1 << 20


def find_files(
    data_dir: epath.PathLike | None,
    files: Mapping[str, str],
    otherwise: str = "no data_dir, so that they are downloaded",
) -> dict[str, epath.Path]:
    """Finds a data set's files in a user's folder.

    Args:
        data_dir: The folder.
        files: The files' names, by what they hold.
        otherwise: What a user without these files can do, for errors.

    Returns:
        The files' paths, by what they hold.

    Raises:
        ValueError: The folder or a file is missing.
    """
    expected = f"`data_dir` must be a folder of {', '.join(files.values())} (or {otherwise})."
    if data_dir is None:
        raise ValueError(f"{expected} Received: data_dir=None")
    folder = epath.Path(data_dir).expanduser()
    if not folder.is_dir():
        raise ValueError(f"{expected} Received: data_dir={str(data_dir)!r}, which is no folder")
    paths = {content: folder / name for content, name in files.items()}
    missing = [path.name for path in paths.values() if not path.is_file()]
    if missing:
        raise ValueError(
            f"{expected} Received: data_dir={str(data_dir)!r}, which lacks {', '.join(missing)}"
        )
    return paths


def sha256(path: epath.Path) -> str:
    """Computes the SHA-256 of a file's content, in hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def read_tokens(path: epath.Path, name: str) -> Iterator[list[str]]:
    """Yields a text file's tokens in order, about a megabyte of text at a time.

    Tokens are what white space separates; every line, blank ones included, ends in `<eos>`, as in
    the released code's `line.split() + ["<eos>"]`.

    Args:
        path: The file, in UTF-8.
        name: What to call the file in errors.

    Raises:
        ValueError: The file is not UTF-8.
    """
    with path.open("rb") as file:
        for block, _ in read_blocks(file, name):
            yield split_tokens(block)


def read_blocks(file: IO[bytes], name: str, start: int = 0) -> Iterator[tuple[str, int]]:
    """Yields a text in order, about a megabyte at a time, each block ending in a space or a line.

    The text's last line ends in a line break here even where it does not in the file: a byte more,
    which counts.

    Args:
        file: UTF-8 text.
        name: What to call the file in errors.
        start: The byte to begin at: 0, or where an earlier block ended.

    Yields:
        A block, and the byte where it ends.

    Raises:
        ValueError: The file is not UTF-8.
    """
    file.seek(max(start - 1, 0))
    last = file.read(min(start, 1))  # nothing where the missing line break has been read, too
    rest = b""
    while block := file.read(_BLOCK_BYTES):
        last = block[-1:]
        block = rest + block
        cut = max(block.rfind(b" "), block.rfind(b"\n")) + 1  # Never within a token.
        if cut:
            yield _decode(block[:cut], start, name), start + cut
        start, rest = start + cut, block[cut:]
    if last not in (b"", b"\n"):
        yield _decode(rest, start, name) + "\n", start + len(rest) + 1


def _decode(block: bytes, start: int, name: str) -> str:
    try:
        return (block.removeprefix(codecs.BOM_UTF8) if start == 0 else block).decode()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{name} is not UTF-8 text: byte {block[error.start]:#04x} at offset "
            f"{start + error.start}; expected a text file in UTF-8"
        ) from error
