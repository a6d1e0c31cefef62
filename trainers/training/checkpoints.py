"""Checkpoints: the newest of a run, and the weights of its best epoch; each is an array file.

An array file has named arrays, and is written whole or not at all. It is an uncompressed `.npz` of
NumPy and a checksum of all its bytes; the checksums in an `.npz` cover the arrays' values alone.
Files of 0.1 have no checksum and are still read, with a warning.
"""

import contextlib
import dataclasses
import errno
import hashlib
import io
import re
import warnings
from collections.abc import Callable, Mapping
from typing import IO, Any

import keras
import numpy as np
from etils import epath

from trainers.data import threads
from trainers.data.files import refuse_pipe, set_aside, write_atomically
from trainers.data.stores import is_store
from trainers.training import variables
from trainers.training.workdir import RUN_ID, NotKeptError, WorkdirError, read_run

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
BEST = "best.npz"
_NUM_RETAINED = 2  # of the newest checkpoints
# The names that `Checkpoints._path` makes: never read or remove a file of another name.
_STEP = r"step-([0-9]{8}|[1-9][0-9]{8,})\.npz"
_NAME = re.compile(_STEP)
_SET_ASIDE = re.compile(_STEP + r"\.unreadable(-[0-9]+)?")
_HALF_WRITTEN = re.compile(rf"\.({_STEP}|{re.escape(BEST)})\.part")


class DamagedError(WorkdirError):
    """A file can be read, but its contents are not those that were written."""


class MissingError(WorkdirError):
    """There is no such file."""


class OthersError(WorkdirError):
    """A file is whole, and of another run."""


class Checkpoints:
    """The newest checkpoints of a run, and the weights of its best epoch.

    A checkpoint promises that the best weights before it are on disk. No checkpoint is written
    until they are, and a resumed run computes them again.

    Attributes:
        folder: `step-00001200.npz` in it is the checkpoint of step 1200.
        failure: why the last write failed, in words.
        saved: the step of the newest checkpoint written or restored here, or None.
        unwritten_best: the arrays of the best weights that are not on disk yet, or None.
    """

    def __init__(
        self,
        folder: epath.PathLike,
        *,
        run_id: str | None = None,
        check_held: Callable[[], None] = lambda: None,
        announce: Callable[[str], None] = print,
    ):
        """Creates the folder if it does not exist.

        Args:
            folder: holds the checkpoints.
            run_id: the run whose files these are. Files without an id count as its own, files of
                another run are set aside. None: all files count.
            check_held: as `Workdir.check_held`, which is called before each write.
            announce: takes a line about each file that cannot be written or read; the thread of
                `start_saving` calls it too.

        Raises:
            WorkdirError: the folder does not exist and cannot be created.
        """
        self.folder = epath.Path(folder)
        self.announce = announce
        self.failure = ""
        self._run_id = run_id
        self._check_held = check_held
        self.saved: int | None = None
        self.unwritten_best: dict[str, np.ndarray] | None = None
        self._writing: threads.Started | None = None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except FAILURES as error:
            raise WorkdirError(
                f"{self.folder} cannot hold checkpoints: {error}"
            ) from error
        # What a process left that was killed while it wrote.
        for path in self.folder.iterdir():
            if _HALF_WRITTEN.fullmatch(path.name):
                with contextlib.suppress(*FAILURES):
                    path.unlink()

    def steps(self) -> list[int]:
        """Returns the steps that have a checkpoint, in ascending order.

        Raises:
            OSError: the folder cannot be read.
        """
        # Not by `glob`, which finds nothing in a folder that cannot be read.
        matches = ((path, _NAME.fullmatch(path.name)) for path in self.folder.iterdir())
        return sorted(
            int(match[1]) for path, match in matches if match and not path.is_dir()
        )

    def newest(self) -> int | None:
        """Returns the step of the newest checkpoint that is whole, or None.

        Raises:
            WorkdirError: the file system does not let a checkpoint be read.
            OSError: the folder cannot be read.
        """
        checkpoint, _, _ = self._read_newest()
        return None if checkpoint is None else checkpoint[0]

    def begin(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Writes the checkpoint of step 0.

        From then on a run's folder always has a checkpoint, unless its checkpoints were lost.

        Raises:
            WorkdirError: the checkpoint cannot be written.
        """
        path = self._path(0)
        if not self._write(path, arrays):
            raise WorkdirError(
                f"the run has not begun: {path} cannot be written ({self.failure}); make room, or "
                "choose another --workdir"
            )
        self.saved = 0

    def save(self, step: int, arrays: Mapping[str, np.ndarray]) -> bool:
        """Writes a checkpoint and removes old ones.

        Returns:
            whether the checkpoint was written. If not, all earlier ones stay.
        """
        self.wait()
        # In this order: the class promises that weights come before the checkpoint that counts on
        # them.
        return self._best_is_written(step) and self._save(step, arrays)

    def start_saving(self, step: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Calls `save` in a thread, after the previous checkpoint is written.

        Args:
            step: the run's step.
            arrays: must not change any more.
        """
        self.wait()
        if self._best_is_written(step):
            self._writing = threads.Started(self._save, step, arrays)

    def wait(self) -> None:
        """Waits until the thread has written its checkpoint or announced its loss."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    close = wait

    def save_best(
        self, arrays: Mapping[str, np.ndarray], epoch: int | None = None
    ) -> bool:
        """Replaces the best weights on disk; returns whether that succeeded.

        If not, the weights stay in memory, and the next checkpoint writes them.

        Args:
            arrays: the weights; they must not change any more.
            epoch: their epoch, counted from 1; None if it is unknown.
        """
        self.wait()
        # Set before it is written: until it is on disk, no checkpoint is written.
        self.unwritten_best = dict(arrays)
        if epoch is not None:
            self.unwritten_best["epoch"] = np.array(epoch)
        return self.write_best()

    def write_best(self) -> bool:
        """Writes the best weights if they are not on disk yet; returns whether they are now."""
        if self.unwritten_best and self._write(self.folder / BEST, self.unwritten_best):
            self.unwritten_best = None
        return self.unwritten_best is None

    def best_epoch(self, unsaid: int = 0) -> int:
        """Returns the epoch of the best weights on disk, or 0; renames a damaged file.

        Args:
            unsaid: the epoch to assume for a file of 0.1, which names none.

        Raises:
            WorkdirError: the file system does not let the file be read or renamed.
        """
        path = self.folder / BEST
        try:
            return int(self._load(path).get("epoch", unsaid))
        except MissingError:
            return 0
        except (DamagedError, OthersError) as error:
            self._set_aside(path, str(error))
            return 0

    def restore(self) -> tuple[int, dict[str, np.ndarray]] | None:
        """Reads the newest checkpoint that is whole; renames and announces damaged later ones.

        Returns:
            its step and arrays, or None if there never was a checkpoint.

        Raises:
            WorkdirError: no checkpoint is whole, or the file system does not let one be read;
                nothing has changed.
            OSError: the folder cannot be read.
        """
        checkpoint, damaged, others = self._read_newest()
        reasons = {**damaged, **others}
        if checkpoint is None:
            self._refuse_unreadable(list(reasons.values()))
            return None
        step, _ = checkpoint
        # Out of the way: the run will write checkpoints of these steps again.
        for later, reason in reasons.items():
            self._set_aside(self._path(later), reason)
        if damaged:
            self.announce(
                f"going on from step {step}: {max(damaged) - step} steps are lost"
            )
        self.saved = step
        return checkpoint

    def _read_newest(
        self,
    ) -> tuple[
        tuple[int, dict[str, np.ndarray]] | None, dict[int, str], dict[int, str]
    ]:
        """Reads the newest checkpoint that is whole and the run's own; changes nothing.

        Returns:
            its step and arrays, or None; and what is wrong with later steps: which are damaged,
            and which are of another run.
        """
        damaged: dict[int, str] = {}
        others: dict[int, str] = {}
        # From the newest down, and no further than needed: each is read as a whole.
        for step in reversed(self.steps()):
            try:
                return (step, self._load(self._path(step))), damaged, others
            except DamagedError as error:
                damaged[step] = str(error)
            except OthersError as error:
                others[step] = str(error)
        return None, damaged, others

    def _refuse_unreadable(self, reasons: list[str]) -> None:
        names = [
            path.name
            for path in self.folder.iterdir()
            if _SET_ASIDE.fullmatch(path.name)
        ]
        # A folder whose checkpoints are all unreadable is no new run: to begin there would lose it.
        if problems := reasons + sorted(names):
            raise WorkdirError(
                f"no checkpoint in {self.folder} can be read: {'; '.join(problems)}. "
                "Bring them back from a backup, or choose another --workdir"
            )

    def _path(self, step: int) -> epath.Path:
        return self.folder / f"step-{step:08d}.npz"

    def _best_is_written(self, step: int) -> bool:
        """Writes the best weights if needed; announces that a checkpoint waits if that fails."""
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
        self.remove_old()
        return True

    def remove_old(self) -> None:
        """Removes all checkpoints but those to keep, as far as the file system lets it."""
        with contextlib.suppress(*FAILURES):
            older = [step for step in self.steps() if step < (self.saved or 0)]
            # The newest, `saved`, is one of those that are retained.
            for step in older[: len(older) - _NUM_RETAINED + 1]:
                self._remove(self._path(step))

    def _remove(self, path: epath.Path) -> None:
        """Removes a checkpoint, unless it cannot be opened and so belongs to another owner."""
        with contextlib.suppress(*FAILURES):
            if not is_store(path):  # each opening there is a request
                path.open("rb").close()
            path.unlink()

    def _load(self, path: epath.Path) -> dict[str, np.ndarray]:
        """Reads a file as `load_arrays`; raises OthersError if it is of another run."""
        arrays = load_arrays(path)
        refuse_others(path, arrays, self._run_id)
        return arrays

    def _write(self, path: epath.Path, arrays: Mapping[str, Any]) -> bool:
        """Writes a file of this run whole or not at all; returns whether it did."""
        if self._run_id is not None:
            arrays = {**arrays, RUN_ID: np.array(self._run_id)}
        try:
            self._check_held()
            # Writing takes so long that another run may have begun before the file gets its name.
            write_atomically(
                path, lambda file: _write_sealed(file, arrays), self._check_held
            )
        except FAILURES as error:
            full = getattr(error, "errno", None) == errno.ENOSPC
            self.failure = str(error)
            self.announce(
                f"{'the disk is full: ' if full else ''}{path} not written ({error})"
            )
            return False
        return True

    def _set_aside(self, path: epath.Path, reason: str) -> None:
        """Renames a file that the run cannot go on from, since it may still be useful."""
        try:
            renamed = set_aside(path)
        except FAILURES as failure:
            raise WorkdirError(
                f"{reason}, and cannot be renamed ({failure})"
            ) from failure
        self.announce(f"{reason}; it is now {renamed.name}")

    def _last(self) -> str:
        if self.saved is None:
            return "there is none"
        return f"the last checkpoint is that of step {self.saved}"


@dataclasses.dataclass(frozen=True)
class Unsaved:
    """What a finished run has in memory alone.

    Attributes:
        store: the run's checkpoints; its `unwritten_best` may hold the best weights.
        step: the last step.
        arrays: the checkpoint of that step.
    """

    store: Checkpoints
    step: int
    arrays: Mapping[str, np.ndarray]

    def save(self) -> None:
        """Writes everything.

        Raises:
            NotKeptError: something still cannot be written.
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


def load_best(path: epath.PathLike, model: keras.Model) -> None:
    """Sets a model to the weights of the best epoch of the run in a folder.

    Raises:
        WorkdirError: the run has no best epoch yet; or its file cannot be read, or holds another
            model's or another run's weights.
    """
    file = epath.Path(path) / "checkpoints" / BEST
    run = read_run(path)
    try:
        arrays = load_arrays(file)
        refuse_others(file, arrays, run and run.run_id)
    except MissingError as error:
        raise WorkdirError(f"{path} has no trained weights yet: {error}") from error
    try:
        variables.assign(variables.model_variables(model), arrays)
    except ValueError as error:
        raise WorkdirError(
            f"{file} does not hold the weights of this model: {error}"
        ) from error


# Array files


def _write_sealed(file: IO[bytes], arrays: Mapping[str, Any]) -> None:
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


def load_arrays(path: epath.PathLike) -> dict[str, np.ndarray]:
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
