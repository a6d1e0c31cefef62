"""Who is at work in a run's folder: one process, which stops once the folder is no longer its own.

On a file system that process has locked the file `lock`, which names it and the run. A folder that
was removed and made again has another file of that name, or none.

An object store has no locks. There the last process to come has the folder: it writes its name to
`lock`, and the one before it stops when it sees that.
"""

import contextlib
import fcntl
import os
import platform
import uuid
from collections.abc import Iterator
from typing import TextIO

from etils import epath

from trainers.data import terminal
from trainers.data.files import refuse_pipe
from trainers.data.stores import is_store

LOCK = "lock"


class WorkdirError(Exception):
    """The folder cannot be used for this run; the message says why, and what to do."""


class TakenError(WorkdirError):
    """The folder was this run's and is no longer, so that nothing more of the run can be kept."""


@contextlib.contextmanager
def held(folder: epath.Path) -> Iterator["_Lock | _Claim"]:
    """Holds a folder within the context; the system ends that however the process ends.

    Raises:
        WorkdirError: another process is at work in it, or it cannot be locked.
        TakenError: a file is missing within the context because the folder is.
    """
    if is_store(folder):
        claim = _Claim(folder)
        try:
            yield claim
        finally:
            claim.release()
        return
    refuse_pipe(folder / LOCK)
    with contextlib.ExitStack() as files:
        try:
            # Not "w", which would empty the file of a process that holds the lock.
            file = files.enter_context(open(os.fspath(folder / LOCK), "a+"))
        except FileNotFoundError as error:
            raise _removed(folder) from error
        _take(file, folder)
        lock = _Lock(folder, file)
        lock.check()  # the folder may have been removed since the file was opened
        try:
            yield lock
        except FileNotFoundError:
            lock.check()
            raise


def holder(folder: epath.Path) -> str | None:
    """Returns the number of the process at work in a folder of this machine, or None."""
    try:
        # A lock that it gets here goes with the file, at the end of the block.
        with open(os.fspath(folder / LOCK), "r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return _first((folder / LOCK).read_bytes()) or "unknown"
    except FileNotFoundError:
        pass
    return None


class _Lock:
    """A folder that this process holds by a locked file in it."""

    def __init__(self, folder: epath.Path, file: TextIO):
        self._folder = folder
        self._file = file
        self._stat = os.fstat(file.fileno())
        self._content = b""
        self._write(f"{os.getpid()}\n")

    def sign(self, run_id: str) -> None:
        """Writes which run is at work, where others may read it."""
        self._write(f"{os.getpid()}\n{run_id}\n")

    def check(self) -> None:
        """Raises TakenError if the folder is gone or another's; call it before each write.

        Where that cannot be read, it does nothing: a write would fail there, too.
        """
        path = self._folder / LOCK
        try:
            same = os.path.samestat(os.stat(path), self._stat)
            if same and path.read_bytes() == self._content:
                return
        except (FileNotFoundError, NotADirectoryError) as error:
            raise _removed(path if self._folder.is_dir() else self._folder) from error
        except OSError:
            return
        raise TakenError(
            f"{self._folder} belongs to another run by now; this run stops, and keeps nothing more"
        )

    def _write(self, content: str) -> None:
        # Opened to append: what is written after the cut stands at the beginning.
        self._file.truncate(0)
        self._file.write(content)
        self._file.flush()
        self._content = content.encode()


class _Claim:
    """A folder of an object store, taken over from any other process."""

    def __init__(self, folder: epath.Path):
        self._folder = folder
        self._lock = folder / LOCK
        name = f"process {os.getpid()} on {platform.node()}"
        self._claim = f"{name}\n{uuid.uuid4().hex}\n".encode()
        if former := self._read():
            print(
                f"{folder} was last held by {_first(former)}; if it is still at work, it stops at "
                "its next checkpoint",
                flush=True,
            )
        self._lock.write_bytes(self._claim)

    def sign(self, run_id: str) -> None:
        """Does nothing: a second write could replace the claim of a later process."""

    def check(self) -> None:
        """Raises TakenError if another process has taken the folder over, as `_Lock`."""
        # Where the store does not answer, it does not take a checkpoint either.
        with contextlib.suppress(OSError):
            if (content := self._read()) not in (self._claim, b""):
                raise TakenError(
                    f"{_first(content)} has taken {self._folder} over; this process stops"
                )

    def release(self) -> None:
        """Removes the claim, unless it is another's."""
        with contextlib.suppress(OSError):
            if self._read() == self._claim:
                self._lock.unlink()

    def _read(self) -> bytes:
        """Returns what a process has written to `lock`, or nothing if none has."""
        try:
            return self._lock.read_bytes()
        except FileNotFoundError:
            return b""


def _removed(path: epath.Path) -> TakenError:
    return TakenError(
        f"{path} was removed while this run was at work; it stops, since another run may have its "
        "place, and keeps nothing more"
    )


def _first(content: bytes) -> str:
    """Returns the first line of a file that any process may have written."""
    return terminal.line(content.decode(errors="replace").partition("\n")[0])


def _take(file: TextIO, folder: epath.Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.seek(0)
        holder = file.readline().strip() or "unknown"
        raise WorkdirError(
            f"another run (process {holder}) is at work in {folder}; "
            "wait for it, stop it, or choose another folder"
        ) from error
    except OSError as error:
        raise WorkdirError(
            f"{folder} cannot be locked ({error}); choose a folder on a file system that has locks"
        ) from error


Hold = _Lock | _Claim
"""A folder that this process holds."""
