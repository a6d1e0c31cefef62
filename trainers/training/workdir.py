"""The folder of a run: its lock, its config, its result.

A folder holds one run. `config.json` says which, `lock` is held by the process at work,
`result.json` stands there once the run has finished.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TextIO

from etils import epath

from trainers.files import UnreadableError, json_value, read_json, set_aside, write_json
from trainers.names import flatten

CONFIG, RESULT, LOCK = "config.json", "result.json", "lock"
RESTORE = "Bring it back from a backup, or choose another --workdir"


class WorkdirError(Exception):
    """The folder cannot be used for this run; the message says why, and what to do."""


class NotKeptError(Exception):
    """What a run came to could not be written; the message says what, and what to do.

    The run has not finished: the same command goes on.
    """


class Workdir:
    """The folder of a run, held by this process.

    Attributes:
        path: the folder.
    """

    def __init__(self, path: epath.Path):
        self.path = path

    def result(self) -> dict | None:
        """Returns what `finish` was given, or None for a run that has not finished.

        A file that is damaged is set aside and told: what it held is computed from the weights.
        """
        try:
            return read_result(self.path, {"epochs": int, "summary": str, "scores": dict})
        except UnreadableError as error:
            aside = set_aside(self.path / RESULT)
            print(f"{error}, and the file is now {aside}", flush=True)
            return None

    def finish(self, result: Mapping[str, Any]) -> None:
        """Marks the run as finished, with its final result."""
        write_json(self.path / RESULT, result)


@contextlib.contextmanager
def open_workdir(
    path: epath.PathLike, config: Mapping[str, Any], *, may_change: Sequence[str] = ()
) -> Iterator[Workdir]:
    """Prepares a folder for a run, new or resumed, and holds it until the context is left.

    Args:
        path: the folder; made where it does not exist.
        config: the run's whole config, nested mappings of what JSON holds.
        may_change: the fields, dotted, which a resumed run may have changed, such as
            "training.epochs".

    Yields:
        The folder.

    Raises:
        WorkdirError: another process is at work in it, it belongs to another model or recipe, or
            it holds files that are none of a run's.
    """
    folder = epath.Path(path)
    if folder.exists() and not folder.is_dir():
        raise WorkdirError(f"{folder} is a file; expected a folder for the run")
    if not (folder / CONFIG).exists():
        _refuse_foreign(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder):
        if (folder / CONFIG).exists():
            _refuse_other_run(folder, config, may_change)
        write_json(folder / CONFIG, config)
        yield Workdir(folder)


def read_result(path: epath.PathLike, fields: Mapping[str, type] | None = None) -> dict | None:
    """Returns the result of the run in a folder, or None for one that has not finished.

    Args:
        path: the folder.
        fields: what it has to have, as for `files.read_json`.

    Raises:
        UnreadableError: the file is damaged.
        OSError: it cannot be read.
    """
    file = epath.Path(path) / RESULT
    try:
        return read_json(file, fields) if file.exists() else None
    except UnreadableError as error:
        raise UnreadableError(f"{error}; the training command scores the run again") from error


def read_config(path: epath.PathLike, fields: Mapping[str, type] | None = None) -> dict:
    """Returns the config of the run in a folder.

    Args:
        path: the folder.
        fields: what it has to have, as for `files.read_json`.

    Raises:
        WorkdirError: there is no run in it, or its config is damaged.
        OSError: it cannot be read.
    """
    config = read_kept(epath.Path(path) / CONFIG, fields)
    if config is None:
        raise WorkdirError(f"{path} holds no run: {CONFIG} is missing; train one there first")
    return config


def read_kept(file: epath.Path, fields: Mapping[str, type] | None = None) -> dict | None:
    """Returns what a run wrote at its beginning, and needs; None where there is no such file.

    Args:
        file: of JSON.
        fields: what it has to have, as for `files.read_json`.

    Raises:
        WorkdirError: it is damaged.
        OSError: it cannot be read.
    """
    try:
        return read_json(file, fields) if file.exists() else None
    except UnreadableError as error:
        raise WorkdirError(f"{error}. {RESTORE}") from error


def _refuse_foreign(folder: epath.Path) -> None:
    """A folder without a config must be empty, but for a lock whose run never began."""
    found = sorted(p.name for p in folder.iterdir()) if folder.exists() else []
    if foreign := [name for name in found if name not in (LOCK, f".{CONFIG}.part")]:
        raise WorkdirError(
            f"{folder} holds files but no run ({CONFIG} is missing): {', '.join(foreign[:5])}; "
            "choose an empty or a new folder"
        )


def _refuse_other_run(
    folder: epath.Path, config: Mapping[str, Any], may_change: Sequence[str]
) -> None:
    was = flatten(read_config(folder))
    now = flatten(json_value(config))
    differing = [
        f"  {field}: {was.get(field, 'nothing')} there, {now.get(field, 'nothing')} here"
        for field in {**was, **now}
        if field not in may_change and (field not in was or was[field] != now.get(field))
    ]
    if differing:
        raise WorkdirError(
            f"{folder} belongs to another run, whose config differs:\n"
            + "\n".join(differing)
            + "\ngo on with that run's values, or choose another folder"
        )


@contextlib.contextmanager
def _locked(folder: epath.Path) -> Iterator[None]:
    """Holds the folder's lock, which the system releases however the process ends."""
    file = _open_lock(folder)
    if file is None:
        yield
        return
    with file:
        _take(file, folder)
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def _open_lock(folder: epath.Path) -> TextIO | None:
    try:
        return open(os.fspath(folder / LOCK), "a+")
    except FileNotFoundError:  # an object store has no locks
        return None


def _take(file: TextIO, folder: epath.Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.seek(0)
        holder = file.read().strip() or "unknown"
        raise WorkdirError(
            f"another run (process {holder}) is at work in {folder}; "
            "wait for it, stop it, or choose another folder"
        ) from error
    except OSError as error:
        raise WorkdirError(
            f"{folder} cannot be locked ({error}); choose a folder on a file system that has locks"
        ) from error
