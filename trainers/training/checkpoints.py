"""Checkpoints: one file each, of named arrays, written whole or not at all.

The files are NumPy's `.npz`, uncompressed, and behind it a checksum of every byte before: those of
the `.npz` itself are of the arrays' values alone. Files of 0.1 have none, and are read as well.
"""

import contextlib
import dataclasses
import errno
import hashlib
import io
import re
from collections.abc import Callable, Mapping
from concurrent import futures
from typing import IO, Any

import keras
import numpy as np
import tensorflow as tf
from etils import epath

from trainers.data.files import refuse_pipe, set_aside, write_atomically
from trainers.training import variables
from trainers.training.workdir import NotKeptError, WorkdirError

BEST = "best.npz"
# What `Checkpoints._path` writes, for a file of another name is not ours to read or to remove.
_STEP = r"step-([0-9]{8}|[1-9][0-9]{8,})\.npz"
_NAME = re.compile(_STEP)
_SET_ASIDE = re.compile(_STEP + r"\.unreadable(-[0-9]+)?")
_HALF_WRITTEN = re.compile(rf"\.({_STEP}|{re.escape(BEST)})\.part")
_FAILURES = (OSError, tf.errors.OpError)  # of a file system, and of TensorFlow's for object stores
_SEAL = b"\nsha256 "
_SEAL_SIZE = len(_SEAL) + 2 * hashlib.sha256().digest_size
_END_OF_ZIP, _END_OF_ZIP_SIZE = b"PK\x05\x06", 22  # the size without a comment, as NumPy's are


class DamagedError(WorkdirError):
    """A file can be read, and is not what was written."""


class MissingError(WorkdirError):
    """There is no such file."""


class Checkpoints:
    """The newest checkpoints of a run, and the weights of its best epoch.

    A checkpoint promises that the best weights of its past are on disk: while they cannot be
    written none is, and a run that goes on computes them again.

    Attributes:
        folder: where they stand, `step-00001200.npz` the one of step 1200.
        saved: the step of the newest that was written or restored here, or None.
        unwritten_best: the arrays of the best weights where they are not on disk yet, or None.
        failure: why the last write failed, in words.
    """

    def __init__(
        self, folder: epath.PathLike, *, keep: int = 2, announce: Callable[[str], None] = print
    ):
        """Makes the folder where it does not exist.

        Args:
            folder: where the checkpoints stand.
            keep: how many of the newest to keep.
            announce: is told, in a line, what could not be written or read; by the thread of
                `start_saving` too.

        Raises:
            WorkdirError: there is no such folder, and it cannot be made.
        """
        self.folder = epath.Path(folder)
        self.keep = keep
        self.announce = announce
        self.saved: int | None = None
        self.unwritten_best: dict[str, np.ndarray] | None = None
        self.failure = ""
        self._writer = futures.ThreadPoolExecutor(max_workers=1)
        self._writing: futures.Future | None = None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except _FAILURES as error:
            raise WorkdirError(f"{self.folder} cannot hold checkpoints: {error}") from error
        for part in self.folder.iterdir():  # of a process that was killed while writing
            if _HALF_WRITTEN.fullmatch(part.name):
                with contextlib.suppress(*_FAILURES):
                    part.unlink()

    def steps(self) -> list[int]:
        """Returns the steps that have a checkpoint, in ascending order.

        Raises:
            OSError: the folder cannot be read.
        """
        # Not by `glob`, for which a folder that cannot be read is empty.
        found = ((path, _NAME.fullmatch(path.name)) for path in self.folder.iterdir())
        return sorted(int(match[1]) for path, match in found if match and not path.is_dir())

    def newest(self) -> int | None:
        """Returns the step of the newest checkpoint that is whole, None where there is none.

        Raises:
            WorkdirError: the file system does not give one.
            OSError: the folder cannot be read.
        """
        found, _ = self._read_newest()
        return None if found is None else found[0]

    def begin(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Writes the checkpoint of step 0.

        From then on a run's folder has a checkpoint; where there is none, they were lost.

        Raises:
            WorkdirError: it cannot be written.
        """
        path = self._path(0)
        try:
            _put(path, arrays)
        except _FAILURES as error:
            raise WorkdirError(
                f"the run has not begun: {path} cannot be written ({error}); make room, or choose "
                "another --workdir"
            ) from error
        self.saved = 0

    def save(self, step: int, arrays: Mapping[str, np.ndarray]) -> bool:
        """Writes a checkpoint and removes those that are no longer needed.

        Returns:
            Whether it was written; where not, the earlier ones are all still there.
        """
        self.wait()
        return self._best_is_written(step) and self._save(step, arrays)

    def start_saving(self, step: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Has a thread `save`, once the one begun before is written.

        Args:
            step: of the run.
            arrays: not to be changed any more.
        """
        self.wait()
        if self._best_is_written(step):
            self._writing = self._writer.submit(self._save, step, arrays)

    def wait(self) -> None:
        """Waits until what `start_saving` began is written, or has been announced as lost."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def close(self) -> None:
        """Waits, and ends the thread."""
        with self._writer:
            self.wait()

    def save_best(self, arrays: Mapping[str, np.ndarray], epoch: int | None = None) -> bool:
        """Writes the best epoch's weights in place of the former ones; whether that succeeded.

        Where it did not, they are kept in memory, for the next checkpoint to write.

        Args:
            arrays: the weights; not to be changed any more.
            epoch: whose they are, counted from 1; None: not known.
        """
        self.wait()
        self.unwritten_best = dict(arrays)
        if epoch is not None:
            self.unwritten_best["epoch"] = np.array(epoch)
        return self.write_best()

    def write_best(self) -> bool:
        """Writes the best weights where they are not on disk yet; whether they are now."""
        if self.unwritten_best and self._write(self.folder / BEST, self.unwritten_best):
            self.unwritten_best = None
        return self.unwritten_best is None

    def best_epoch(self, unsaid: int = 0) -> int:
        """Reads whose weights are on disk as the best; a damaged file is renamed and announced.

        Args:
            unsaid: what to take a file of 0.1 for, which does not say it.

        Returns:
            The epoch; 0 where there are none.

        Raises:
            WorkdirError: the file system does not give the file, or does not let it be renamed.
        """
        path = self.folder / BEST
        try:
            return int(load(path).get("epoch", unsaid))
        except MissingError:
            return 0
        except DamagedError as error:
            self._set_aside(path, str(error))
            return 0

    def restore(self) -> tuple[int, dict[str, np.ndarray]] | None:
        """Reads the newest checkpoint that is whole; damaged ones after it are renamed.

        Returns:
            Its step and arrays, or None where there never was one; what was lost has been
            announced.

        Raises:
            WorkdirError: there are checkpoints and none is whole, or the file system does not give
                one; nothing has been changed.
            OSError: the folder cannot be read.
        """
        found, damaged = self._read_newest()
        if found is None:
            self._refuse_unreadable(list(damaged.values()))
            return None
        step, _ = found
        for each, reason in damaged.items():
            self._set_aside(self._path(each), reason)
        if damaged:
            self.announce(f"going on from step {step}: {max(damaged) - step} steps are lost")
        self.saved = step
        return found

    def _read_newest(self) -> tuple[tuple[int, dict[str, np.ndarray]] | None, dict[int, str]]:
        """Reads the newest checkpoint that is whole; changes nothing.

        Returns:
            Its step and arrays, or None where there is none; and the later steps whose checkpoints
            are damaged, each with the reason.
        """
        damaged: dict[int, str] = {}
        for step in reversed(self.steps()):
            try:
                return (step, load(self._path(step))), damaged
            except DamagedError as error:
                damaged[step] = str(error)
        return None, damaged

    def _refuse_unreadable(self, reasons: list[str]) -> None:
        names = [path.name for path in self.folder.iterdir() if _SET_ASIDE.fullmatch(path.name)]
        if found := reasons + sorted(names):
            raise WorkdirError(
                f"no checkpoint in {self.folder} can be read: {'; '.join(found)}. "
                "Bring them back from a backup, or choose another --workdir"
            )

    def _set_aside(self, path: epath.Path, reason: str) -> None:
        """Renames a damaged file: what is left of it may be of use to someone."""
        try:
            renamed = set_aside(path)
        except _FAILURES as failure:
            raise WorkdirError(f"{reason}, and cannot be renamed ({failure})") from failure
        self.announce(f"{reason}; it is now {renamed.name}")

    def _path(self, step: int) -> epath.Path:
        return self.folder / f"step-{step:08d}.npz"

    def _best_is_written(self, step: int) -> bool:
        """Tries once more where it is not; announces that a checkpoint has to wait for it."""
        written = self.write_best()
        if not written:
            self.announce(
                f"the checkpoint of step {step} waits for the best weights; {self._last()}"
            )
        return written

    def _save(self, step: int, arrays: Mapping[str, np.ndarray]) -> bool:
        if not self._write(self._path(step), arrays):
            self.announce(f"the checkpoint of step {step} is lost; {self._last()}")
            return False
        self.saved = step
        with contextlib.suppress(*_FAILURES):
            older = [each for each in self.steps() if each < step]
            for each in older[: len(older) - self.keep + 1]:
                self._remove(self._path(each))
        return True

    def _remove(self, path: epath.Path) -> None:
        """Removes a checkpoint, unless it cannot be opened: then it is another owner's."""
        with contextlib.suppress(*_FAILURES):
            path.open("rb").close()
            path.unlink()

    def _last(self) -> str:
        if self.saved is None:
            return "there is none"
        return f"the last checkpoint is that of step {self.saved}"

    def _write(self, path: epath.Path, arrays: Mapping[str, Any]) -> bool:
        try:
            _put(path, arrays)
        except _FAILURES as error:
            full = getattr(error, "errno", None) == errno.ENOSPC
            self.failure = str(error)
            self.announce(f"{'the disk is full: ' if full else ''}{path} not written ({error})")
            return False
        return True


@dataclasses.dataclass(frozen=True)
class Unsaved:
    """What of a run that came to its end is in memory alone.

    Attributes:
        store: the run's checkpoints; its `unwritten_best` may be the best weights.
        step: the last one.
        arrays: of its checkpoint.
    """

    store: Checkpoints
    step: int
    arrays: Mapping[str, np.ndarray]

    def save(self) -> None:
        """Writes it.

        Raises:
            NotKeptError: it still cannot be written.
        """
        store = self.store
        if not store.save(self.step, self.arrays):
            best = [f"the best weights ({BEST})"] if store.unwritten_best else []
            missing = " and ".join([*best, f"the checkpoint of step {self.step}"])
            raise NotKeptError(
                f"the run has not finished: {missing} cannot be written to {store.folder} "
                f"({store.failure}); make room, and the same command goes on from step "
                f"{store.saved or 0}"
            )


class _Hashed(io.RawIOBase):
    """A stream that passes on what is written, and hashes it."""

    def __init__(self, file: IO[bytes]):
        self.file = file
        self.sha256 = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.sha256.update(data)
        return self.file.write(data)

    def flush(self) -> None:
        self.file.flush()


def _put(path: epath.Path, arrays: Mapping[str, Any]) -> None:
    def write(file: IO[bytes]) -> None:
        hashed = _Hashed(file)
        np.savez(hashed, **arrays)
        file.write(_SEAL + hashed.sha256.hexdigest().encode())

    write_atomically(path, write)


def load(path: epath.PathLike) -> dict[str, np.ndarray]:
    """Reads all arrays of a file.

    Raises:
        MissingError: there is none.
        DamagedError: it is not what was written.
        WorkdirError: the file system does not give it; what it holds is not known.
    """
    try:
        refuse_pipe(path)
        content = epath.Path(path).read_bytes()
    except (FileNotFoundError, tf.errors.NotFoundError) as error:
        raise MissingError(f"{path} is missing") from error
    except _FAILURES as error:
        raise WorkdirError(f"{path} cannot be read, its contents are unknown: {error}") from error
    sealed = _is_sealed(path, content)
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except Exception as error:  # whatever the damage makes of the archive
        if sealed:
            raise
        raise DamagedError(f"{path} cannot be read ({error!r})") from error


def _is_sealed(path: epath.PathLike, content: bytes) -> bool:
    """Returns whether a file has a checksum, which is then right; those of 0.1 have none."""
    end = len(content) - _SEAL_SIZE
    seal = content[max(end, 0) :]
    if seal.startswith(_SEAL):
        if hashlib.sha256(memoryview(content)[:end]).hexdigest().encode() != seal[len(_SEAL) :]:
            raise DamagedError(f"{path} cannot be read (it does not have its checksum)")
        return True
    if not content[-_END_OF_ZIP_SIZE:].startswith(_END_OF_ZIP):
        raise DamagedError(f"{path} cannot be read (its end is missing)")
    return False


def load_best(path: epath.PathLike, model: keras.Model) -> None:
    """Sets a model to the weights of the best epoch of the run in a folder.

    Raises:
        WorkdirError: the run there has no best epoch yet, or its file cannot be read, or holds
            another model's weights.
    """
    file = epath.Path(path) / "checkpoints" / BEST
    try:
        arrays = load(file)
    except MissingError as error:
        raise WorkdirError(f"{path} has no trained weights yet: {error}") from error
    try:
        variables.assign(variables.of_model(model), arrays)
    except ValueError as error:
        raise WorkdirError(f"{file} does not hold the weights of this model: {error}") from error
