"""Checkpoints: the newest of a run, and the weights of its best epoch; each is an array file."""

import contextlib
import dataclasses
import errno
import re
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
from etils import epath

from trainers.data import threads
from trainers.data.files import set_aside, write_atomically
from trainers.data.stores import is_store
from trainers.training import variables
from trainers.training.array_files import (
    FAILURES,
    DamagedError,
    MissingError,
    OthersError,
    load,
    refuse_others,
    write_sealed,
)
from trainers.training.workdir import RUN_ID, NotKeptError, WorkdirError, read_run

BEST = "best.npz"
_NUM_RETAINED = 2  # of the newest checkpoints
# The names that `Checkpoints._path` makes: never read or remove a file of another name.
_STEP = r"step-([0-9]{8}|[1-9][0-9]{8,})\.npz"
_NAME = re.compile(_STEP)
_SET_ASIDE = re.compile(_STEP + r"\.unreadable(-[0-9]+)?")
_HALF_WRITTEN = re.compile(rf"\.({_STEP}|{re.escape(BEST)})\.part")


class Checkpoints:
    """The newest checkpoints of a run, and the weights of its best epoch.

    A checkpoint promises that the best weights before it are on disk. No checkpoint is written
    until they are, and a resumed run computes them again.

    Attributes:
        folder: `step-00001200.npz` in it is the checkpoint of step 1200.
        announce: takes a line about each file that cannot be written or read.
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
        self._remove_half_written()

    def _remove_half_written(self) -> None:
        """Removes what a process left that was killed while it wrote."""
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
        try:
            self._put(path, arrays)
        except FAILURES as error:
            raise WorkdirError(
                f"the run has not begun: {path} cannot be written ({error}); make room, or choose "
                "another --workdir"
            ) from error
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

    def close(self) -> None:
        """Waits for the thread."""
        self.wait()

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
        """Reads a file as `load`; raises OthersError if it is of another run."""
        arrays = load(path)
        refuse_others(path, arrays, self._run_id)
        return arrays

    def _put(self, path: epath.Path, arrays: Mapping[str, Any]) -> None:
        """Writes a file whole or not at all; it says of which run it is."""
        if self._run_id is not None:
            arrays = {**arrays, RUN_ID: np.array(self._run_id)}
        self._check_held()
        # Writing takes so long that another run may have begun before the file gets its name.
        write_atomically(
            path, lambda file: write_sealed(file, arrays), self._check_held
        )

    def _write(self, path: epath.Path, arrays: Mapping[str, Any]) -> bool:
        try:
            self._put(path, arrays)
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
        arrays = load(file)
        refuse_others(file, arrays, run and run.run_id)
    except MissingError as error:
        raise WorkdirError(f"{path} has no trained weights yet: {error}") from error
    try:
        variables.assign(variables.model_variables(model), arrays)
    except ValueError as error:
        raise WorkdirError(
            f"{file} does not hold the weights of this model: {error}"
        ) from error
