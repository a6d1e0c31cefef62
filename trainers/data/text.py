"""Text files as token streams of bounded memory, and their checksums."""

import codecs
import hashlib
from collections.abc import Iterator, Mapping

from etils import epath

from trainers.data.vocabulary import EOS, split_tokens

_BLOCK_BYTES = 1 << 20


def find_files(
    data_dir: epath.PathLike | None, files: Mapping[str, str], otherwise: str
) -> dict[str, epath.Path]:
    """Finds a corpus's files in a user's folder.

    Args:
        data_dir: The folder.
        files: The files' names, by split.
        otherwise: What a user without these files can do, for errors.

    Raises:
        ValueError: The folder or a file is missing.
    """
    expected = f"`data_dir` must be a folder of {', '.join(files.values())} (or {otherwise})."
    if data_dir is None:
        raise ValueError(f"{expected} Received: data_dir=None")
    folder = epath.Path(data_dir).expanduser()
    if not folder.is_dir():
        raise ValueError(f"{expected} Received: data_dir={str(data_dir)!r}, which is no folder")
    paths = {split: folder / name for split, name in files.items()}
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
    the released code's `line.split() + ["<eos>"]`. The last line need not end in a line break.

    Args:
        path: The file, in UTF-8.
        name: What to call the file in errors.

    Raises:
        ValueError: The file is not UTF-8.
    """
    consumed, rest = 0, b""
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            block = rest + block
            cut = max(block.rfind(b" "), block.rfind(b"\n")) + 1  # Never within a token.
            yield split_tokens(_decode(block[:cut], consumed, name))
            consumed, rest = consumed + cut, block[cut:]
            ended = block.endswith(b"\n")
    if consumed or rest:
        yield split_tokens(_decode(rest, consumed, name)) + ([] if ended else [EOS])


def _decode(block: bytes, start: int, name: str) -> str:
    try:
        return (block.removeprefix(codecs.BOM_UTF8) if start == 0 else block).decode()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{name} is not UTF-8 text: byte {block[error.start]:#04x} at offset "
            f"{start + error.start}; expected a text file in UTF-8"
        ) from error
