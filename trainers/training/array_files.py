"""Array files: named arrays in one file, written whole or not at all.

A file is an uncompressed `.npz` of NumPy and a checksum of all its bytes; the checksums in an
`.npz` cover the arrays' values alone. Files of 0.1 have no checksum and are still read, with a
warning.
"""

import hashlib
import io
import warnings
from collections.abc import Mapping
from typing import IO, Any

import keras
import numpy as np
from etils import epath

from trainers.data.files import refuse_pipe
from trainers.training.workdir import RUN_ID, WorkdirError

# The errors of file systems, and of TensorFlow's object stores where TensorFlow is.
FAILURES: tuple[type[Exception], ...] = (OSError,)
_ABSENT: tuple[type[Exception], ...] = (FileNotFoundError,)
if keras.backend.backend() == "tensorflow":
    import tensorflow as tf

    FAILURES += (tf.errors.OpError,)
    _ABSENT += (tf.errors.NotFoundError,)
_SEAL = b"\nsha256 "
_SEAL_SIZE = len(_SEAL) + 2 * hashlib.sha256().digest_size
# The size without a comment; NumPy adds none.
_ZIP_END, _ZIP_END_SIZE = b"PK\x05\x06", 22


class DamagedError(WorkdirError):
    """A file can be read, but its contents are not those that were written."""


class MissingError(WorkdirError):
    """There is no such file."""


class OthersError(WorkdirError):
    """A file is whole, and of another run."""


def write_sealed(file: IO[bytes], arrays: Mapping[str, Any]) -> None:
    """Writes arrays, and behind them the checksum of all bytes before it."""
    # A stream that cannot seek: so the archive is written from front to back, and each byte is
    # hashed once, in order.
    hashed = _Hashed(file)
    np.savez(hashed, **arrays)
    file.write(_SEAL + hashed.sha256.hexdigest().encode())


class _Hashed(io.RawIOBase):
    """A stream that hashes what it passes on."""

    def __init__(self, file: IO[bytes]):
        self.file = file
        self.sha256 = hashlib.sha256()

    def write(self, data: Any) -> int:
        self.sha256.update(data)
        return self.file.write(data)

    def flush(self) -> None:
        self.file.flush()


def load(path: epath.PathLike) -> dict[str, np.ndarray]:
    """Reads all arrays of a file.

    Raises:
        MissingError: the file does not exist.
        DamagedError: its contents are not those that were written.
        WorkdirError: the file system does not let it be read; its contents are unknown.
    """
    try:
        refuse_pipe(path)
        content = epath.Path(path).read_bytes()
    except _ABSENT as error:
        raise MissingError(f"{path} is missing") from error
    except FAILURES as error:
        raise WorkdirError(
            f"{path} cannot be read, its contents are unknown: {error}"
        ) from error
    sealed = _is_sealed(path, content)
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except Exception as error:  # damage can cause any error
        # Its bytes are those that were written: the file is not what is wrong.
        if sealed:
            raise
        raise DamagedError(f"{path} cannot be read ({error!r})") from error


def _is_sealed(path: epath.PathLike, content: bytes) -> bool:
    """Returns whether a file has a checksum, and checks it; files of 0.1 have none."""
    end = len(content) - _SEAL_SIZE
    seal = content[max(end, 0) :]
    if seal.startswith(_SEAL):
        if (
            hashlib.sha256(memoryview(content)[:end]).hexdigest().encode()
            != seal[len(_SEAL) :]
        ):
            raise DamagedError(f"{path} cannot be read (it does not have its checksum)")
        return True
    if not content[-_ZIP_END_SIZE:].startswith(_ZIP_END):
        raise DamagedError(f"{path} cannot be read (its end is missing)")
    warnings.warn(
        f"{path} is of release 0.1: it has no checksum, and whether it was changed is not checked",
        stacklevel=2,
    )
    return False


def refuse_others(
    path: epath.PathLike, arrays: Mapping[str, np.ndarray], run_id: str | None
) -> None:
    """Raises OthersError if the arrays of a file are of another run than `run_id`."""
    owner = str(arrays.get(RUN_ID, run_id))
    if run_id is not None and owner != run_id:
        raise OthersError(f"{path} is of another run than its folder's")
