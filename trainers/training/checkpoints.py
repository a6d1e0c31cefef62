"""Checkpoints: one file each, of named arrays, written whole or not at all.

The files are NumPy's `.npz`, which holds a checksum for each array, uncompressed.
"""

import contextlib
import errno
import re
import zipfile
from collections.abc import Callable, Mapping
from concurrent import futures
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from etils import epath

from trainers.files import write_atomically
from trainers.training import workdir

BEST = "best.npz"
# What `Checkpoints._path` writes, for a file of another name is not ours to read or to remove.
_NAME = re.compile(r"step-([0-9]{8}|[1-9][0-9]{8,})\.npz")
# What reading a file that is cut short or damaged raises, and what a full or failing disk does.
_UNREADABLE = (ValueError, EOFError, KeyError, zipfile.BadZipFile, OSError, tf.errors.OpError)
_UNWRITABLE = (OSError, tf.errors.ResourceExhaustedError)


class Checkpoints:
    """The newest checkpoints of a run, and the weights of its best epoch.

    Attributes:
        folder: where they stand, `step-00001200.npz` the one of step 1200.
        saved: the step of the newest that was written or restored here, or None.
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
        """
        self.folder = epath.Path(folder)
        self.keep = keep
        self.announce = announce
        self.saved: int | None = None
        self._writer = futures.ThreadPoolExecutor(max_workers=1)
        self._writing: futures.Future | None = None
        self.folder.mkdir(parents=True, exist_ok=True)
        for part in self.folder.glob(".*.part"):  # of a process that was killed while writing
            part.unlink(missing_ok=True)

    def steps(self) -> list[int]:
        """Returns the steps that have a checkpoint, in ascending order."""
        found = (_NAME.fullmatch(path.name) for path in self.folder.glob("step-*.npz"))
        return sorted(int(match[1]) for match in found if match)

    def save(self, step: int, arrays: Mapping[str, np.ndarray]) -> bool:
        """Writes a checkpoint and removes those that are no longer needed.

        Returns:
            Whether it was written; where not, the earlier ones are all still there.
        """
        if not self._write(self._path(step), arrays):
            last = self.steps()
            kept = f"the last checkpoint is that of step {last[-1]}" if last else "there is none"
            self.announce(f"the checkpoint of step {step} is lost; {kept}")
            return False
        self.saved = step
        # Steps beyond this one are of a file that could not be read, and were computed again.
        kept_steps = [s for s in self.steps() if s <= step][-self.keep :]
        for old in set(self.steps()) - set(kept_steps):
            with contextlib.suppress(OSError):
                self._path(old).unlink(missing_ok=True)
        return True

    def start_saving(self, step: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Has a thread `save`, once the one begun before is written.

        Args:
            step: of the run.
            arrays: not to be changed any more.
        """
        self.wait()
        self._writing = self._writer.submit(self.save, step, arrays)

    def wait(self) -> None:
        """Waits until what `start_saving` began is written, or has been announced as lost."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def close(self) -> None:
        """Waits, and ends the thread."""
        with self._writer:
            self.wait()

    def save_best(self, arrays: Mapping[str, np.ndarray]) -> bool:
        """Writes the best epoch's weights in place of the former ones; whether that succeeded."""
        return self._write(self.folder / BEST, arrays)

    def restore(self) -> tuple[int, dict[str, np.ndarray]] | None:
        """Reads the newest checkpoint that is whole.

        Returns:
            Its step and arrays, or None where there is none; what was lost has been announced.
        """
        steps = self.steps()
        for step in reversed(steps):
            try:
                arrays = load(self._path(step))
            except _UNREADABLE as error:
                self.announce(f"{self._path(step)} cannot be read ({error}); trying the one before")
                continue
            if step != steps[-1]:
                self.announce(f"going on from step {step}: {steps[-1] - step} steps are lost")
            self.saved = step
            return step, arrays
        if steps:
            self.announce(f"beginning anew: no checkpoint can be read, {steps[-1]} steps are lost")
        return None

    def _path(self, step: int) -> epath.Path:
        return self.folder / f"step-{step:08d}.npz"

    def _write(self, path: epath.Path, arrays: Mapping[str, Any]) -> bool:
        try:
            write_atomically(path, lambda file: np.savez(file, **arrays))
        except _UNWRITABLE as error:
            full = getattr(error, "errno", None) == errno.ENOSPC
            self.announce(f"{'the disk is full: ' if full else ''}{path} not written ({error})")
            return False
        return True


def load(path: epath.PathLike) -> dict[str, np.ndarray]:
    """Reads all arrays of a file, or raises where it is not whole."""
    with epath.Path(path).open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def variable_arrays(prefix: str, variables: list[keras.Variable]) -> dict[str, np.ndarray]:
    """Returns the values of variables, under the names PREFIX/0, PREFIX/1, ..."""
    return {f"{prefix}/{i}": variable.numpy() for i, variable in enumerate(variables)}


def assign_variables(
    prefix: str, variables: list[keras.Variable], arrays: Mapping[str, np.ndarray]
) -> None:
    """Sets variables to what `variable_arrays` made of them.

    Raises:
        ValueError: the arrays are those of other variables.
    """
    count = sum(name.startswith(f"{prefix}/") for name in arrays)
    if count != len(variables):
        raise ValueError(f"{prefix}: {count} arrays in the checkpoint, {len(variables)} variables")
    for i, variable in enumerate(variables):
        array = arrays[f"{prefix}/{i}"]
        if tuple(array.shape) != tuple(variable.shape):
            raise ValueError(
                f"{prefix}/{i} has shape {array.shape} in the checkpoint; "
                f"expected {tuple(variable.shape)}, that of {variable.path}"
            )
        variable.assign(as_dtype(array, variable.dtype))


def as_dtype(array: np.ndarray, dtype: str | tf.DType) -> np.ndarray:
    """Returns an array as it was written: NumPy's format drops the name of bfloat16."""
    return array.view(tf.as_dtype(dtype).as_numpy_dtype) if array.dtype.kind == "V" else array


def load_best(path: epath.PathLike, model: keras.Model) -> None:
    """Sets a model to the weights of the best epoch of the run in a folder.

    Raises:
        workdir.WorkdirError: the run there has no best epoch yet, or its file cannot be read.
        ValueError: the weights are those of another model.
    """
    file = epath.Path(path) / "checkpoints" / BEST
    if not file.exists():
        raise workdir.WorkdirError(f"{path} has no trained weights yet: {file} is missing")
    try:
        arrays = load(file)
    except _UNREADABLE as error:
        raise workdir.WorkdirError(f"{file} cannot be read: {error}") from error
    assign_variables("model", model.variables, arrays)
