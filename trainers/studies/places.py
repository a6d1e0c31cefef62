"""The folder of a study: its locks and its record.

A lock is the system's: it ends with its process, however that ends. So a trial whose lock is free,
and that has no end, was left by a process that is no more.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from etils import epath

from trainers.data import files
from trainers.training.workdir import LOCK, RESTORE, WorkdirError, refuse_foreign

RECORD, JOURNAL = "study.json", "journal.jsonl"
_SESSIONS, _TRIALS = "sessions", "trials"


def lock(path: epath.PathLike) -> IO[str] | None:
    """Returns an open file that holds a lock, or None if another process has it."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    file = open(path, "a")  # the caller closes it, which ends the lock
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file


class Place:
    """The folder of a study, on a disk of this machine.

    Attributes:
        path: the folder.
    """

    def __init__(self, path: epath.PathLike) -> None:
        self.path = Path(os.path.abspath(epath.Path(path).expanduser()))

    def record(self) -> dict[str, Any] | None:
        """Returns what the study was begun with, or None for a folder without a study.

        Raises:
            WorkdirError: the record is damaged, or the folder holds something else.
        """
        file = epath.Path(self.path / RECORD)
        try:
            return files.read_json(file, {"task": str, "values": dict, "data": dict})
        except files.UnreadableError as error:
            raise WorkdirError(
                f"{error}. {RESTORE.replace('--workdir', '--study')}"
            ) from error
        except FileNotFoundError:
            refuse_foreign(epath.Path(self.path), RECORD, "study")
            return None

    def begin(self, record: Mapping[str, Any]) -> None:
        """Makes the folder and writes its record; call it with the lock."""
        files.write_json(epath.Path(self.path / RECORD), record)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Makes the folder, and waits for its lock: one process at a time is in the context."""
        self.path.mkdir(parents=True, exist_ok=True)
        with open(self.path / LOCK, "a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def trial(self, number: int) -> epath.Path:
        """Returns the folder of a trial's run."""
        return epath.Path(self.path / _TRIALS / f"{number:04}")

    def log(self, number: int) -> Path:
        """Returns the file of what a trial's run prints."""
        return self.path / _TRIALS / f"{number:04}.log"

    def hold(self, number: int) -> IO[str] | None:
        """Returns an open file that holds a trial's lock, or None if another process has it."""
        return lock(self.path / _TRIALS / f"{number:04}.lock")

    def has_trials(self) -> bool:
        """Returns whether a trial was ever begun; its lock is taken before that is written."""
        folder = self.path / _TRIALS
        return folder.exists() and any(
            path.suffix != ".lock" for path in folder.iterdir()
        )

    def session_seconds(self) -> float:
        """Returns the wall time of a study of release 0.1, whose processes each had a file.

        The file's name says when the process began, its time of change when it was last at work.
        Processes that were at work together count once.
        """
        folder = self.path / _SESSIONS
        paths = sorted(folder.iterdir()) if folder.exists() else []
        intervals = []
        for path in paths:
            first, _, _ = path.name.partition("-")
            intervals.append((float(first), path.stat().st_mtime))
        total, end = 0.0, 0.0
        for began, last in sorted(intervals):
            total += max(0.0, last - max(began, end))
            end = max(end, last)
        return total
