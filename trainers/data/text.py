"""Text files as blocks and token streams of bounded memory, and their checksums."""

import codecs
import hashlib
import os
from collections.abc import Iterator, Mapping
from typing import IO

from etils import epath

from trainers.data.files import bad_byte, check_regular
from trainers.data.stores import to_path

NO_DOWNLOAD = (
    "text that needs no download: --task=pydoc, "
    "or --task=text with a --data_dir of your own"
)
_BLOCK_BYTES = 1 << 20
_LONGEST_WORD = 1 << 20  # bytes
# UTF-32 first: its little-endian mark begins with that of UTF-16.
_OTHERS = (
    ("UTF-32", codecs.BOM_UTF32_LE),
    ("UTF-32", codecs.BOM_UTF32_BE),
    ("UTF-16", codecs.BOM_UTF16_LE),
    ("UTF-16", codecs.BOM_UTF16_BE),
)


def find_files(
    data_dir: epath.PathLike | None,
    files: Mapping[str, str],
    otherwise: str = "no --data_dir, so that they are downloaded",
) -> dict[str, epath.Path]:
    """Finds a data set's files in a user's folder.

    Args:
        data_dir: the folder.
        files: the files' names, by what they hold.
        otherwise: what errors offer to a user without these files.

    Returns:
        the files' paths, by what they hold.

    Raises:
        ValueError: the folder or a file is missing, or is something else.
    """
    expected = (
        f"--data_dir must be a folder of {', '.join(files.values())} (or {otherwise})."
    )
    if data_dir is None:
        raise ValueError(f"{expected} Received: no --data_dir")
    folder = to_path(data_dir)
    if not folder.is_dir():
        raise ValueError(
            f"{expected} Received: --data_dir={data_dir}, which is no folder"
        )
    paths = {content: folder / name for content, name in files.items()}
    missing = [path.name for path in paths.values() if not is_there(path)]
    if missing:
        raise ValueError(
            f"{expected} Received: --data_dir={data_dir}, which lacks {', '.join(missing)}"
        )
    for path in paths.values():
        check_regular(path)
    return paths


def is_there(path: epath.Path) -> bool:
    """Returns whether a path exists, even as a broken link."""
    return path.exists() or os.path.lexists(path)


def sha256(path: epath.Path) -> str:
    """Computes the SHA-256 of a file's content, in hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def check(path: epath.Path) -> None:
    """Checks the first block of a text file, before any long work.

    Raises:
        ValueError: it is not UTF-8, or ends its lines with CR alone.
        OSError: it cannot be read.
    """
    name = os.fspath(path)
    try:
        with path.open("rb") as file:
            block = file.read(_BLOCK_BYTES)
    except OSError as error:
        raise OSError(f"{name} cannot be read: {error.strerror or error}") from error
    for encoding, mark in _OTHERS:
        if block.startswith(mark):
            raise ValueError(
                f"{name} is {encoding} text; expected UTF-8: "
                f"`iconv -f {encoding} -t UTF-8` converts it"
            )
    whole = block[: max(block.rfind(b" "), block.rfind(b"\n")) + 1]
    _checked(whole, name)
    if b"\r" in block and b"\n" not in block:
        raise ValueError(
            f"{name} has lines that end in CR alone; expected LF, or CR and LF: "
            "`tr '\\r' '\\n'` converts it"
        )


def read_blocks(file: IO[bytes], name: str, *, raw: bool = False) -> Iterator[bytes]:
    """Yields a text in blocks of about a megabyte.

    A block ends in a line break, or before a space if a megabyte has no line break. The last line
    gets a line break if the file lacks it.

    Args:
        file: UTF-8 text.
        name: what errors call the file.
        raw: whether the file is any bytes, which are neither checked nor completed.

    Raises:
        ValueError: the file is not UTF-8.
    """
    start, lines, rest, last = 0, 0, b"", b"\n"
    while block := file.read(_BLOCK_BYTES):
        last = block[-1:]
        block = rest + block
        # Do not cut within a token. The spaces before a word are of its pieces.
        cut = block.rfind(b"\n") + 1
        cut = cut or len(block[: block.rfind(b" ") + 1].rstrip(b" "))
        if cut:
            yield block[:cut] if raw else _checked(block[:cut], name, lines, start)
        elif len(block) > _LONGEST_WORD:  # each further read would copy it again
            raise ValueError(
                f"{name} has more than {_LONGEST_WORD:,} bytes without a space or a line break at "
                f"offset {start}; expected words"
            )
        lines += block.count(b"\n", 0, cut)
        start, rest = start + cut, block[cut:]
    if raw and rest:
        yield rest
    elif not raw and last != b"\n":
        yield _checked(rest, name, lines, start) + b"\n"


def _checked(block: bytes, name: str, lines: int = 0, start: int = 0) -> bytes:
    """Returns a block without a byte-order mark; raises ValueError if it is not UTF-8.

    Args:
        block: the block.
        name: the file's.
        lines: the line breaks before the block.
        start: the bytes before it.
    """
    if (nul := block.find(b"\0")) >= 0:
        raise ValueError(
            f"{name} is not UTF-8 text: {bad_byte(block, nul, lines, start)}, as text in UTF-16 "
            "has them; expected a text file in UTF-8"
        )
    try:
        block.decode()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{name} is not UTF-8 text: {bad_byte(block, error.start, lines, start)}; expected a "
            "text file in UTF-8"
        ) from error
    return block if start else block.removeprefix(codecs.BOM_UTF8)
