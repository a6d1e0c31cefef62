"""The folder of a run: its lock, its config, the config's changes, its result.

A folder holds one run. `config.json` has its values, `changes.json` their former values and steps.
The process at work holds `lock`. `result.json` exists after the run has finished.

An object store has no locks. There the last process to come has the folder: it writes its name to
`lock`, and the one before it stops when it sees that.
"""

import contextlib
import fcntl
import os
import platform
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TextIO

from etils import epath

from trainers.data.files import (
    UnreadableError,
    exists,
    json_value,
    read_json,
    refuse_pipe,
    set_aside,
    write_json,
)
from trainers.data.stores import as_path, is_store
from trainers.tasks import config as configs
from trainers.tasks.names import flatten

CONFIG, CHANGES, RESULT, LOCK = "config.json", "changes.json", "result.json", "lock"
RESTORE = "Bring it back from a backup, or choose another --workdir"


class WorkdirError(Exception):
    """The folder cannot be used for this run; the message says why, and what to do."""


class NotKeptError(Exception):
    """A result could not be written; the message says which, and what to do.

    The run has not finished, and the same command continues it.
    """


class Change(NamedTuple):
    """A change of a config field at a step of a run.

    Attributes:
        step: steps done before the change.
        epoch: epochs done before the change, with the fraction of the current one.
        field: dotted, such as "optimizer.learning_rate".
        was: the former value, as in JSON.
        now: the new value.
    """

    step: int
    epoch: float
    field: str
    was: Any
    now: Any

    @property
    def of_the_steps(self) -> bool:
        """Whether the change affects training steps; more epochs do not."""
        return self.field.startswith(("optimizer.", "schedule."))

    def __str__(self) -> str:
        return (
            f"`config.{self.field}`: {self.was} -> {self.now} from step {self.step} on"
        )


class Workdir:
    """The folder of a run, held by this process.

    Attributes:
        path: the folder.
        pending: the dotted fields whose values are new, each with its old and its new value.
            `record` applies them.
        check_held: raises WorkdirError if another process has taken the folder over.
    """

    def __init__(
        self,
        path: epath.Path,
        config: Mapping[str, Any],
        may_change: Sequence[str],
        check_held: Callable[[], None],
    ):
        self.path = path
        self.check_held = check_held
        self._config = config
        self._changes = read_changes(path)
        self.pending = {
            field: values
            for field, values in _differing(path, config).items()
            if field in may_change
        }

    def record(self, step: int, epoch: float) -> tuple[Change, ...]:
        """Records the pending changes, as of a step.

        Call this after all checks, since it writes. If the process is killed here or before its
        next checkpoint, the same command finds the same step and these changes.

        Args:
            step: the step that the run continues from. A recorded change of a later step moves to
                this one; its checkpoint was lost.
            epoch: that step in epochs.

        Returns:
            All changes of the run, the new ones last.
        """
        former = tuple(
            each if each.step <= step else each._replace(step=step, epoch=epoch)
            for each in self._changes
        )
        changes = former + tuple(
            Change(step, epoch, field, was, now)
            for field, (was, now) in self.pending.items()
        )
        if changes != self._changes:
            value = {"changes": [change._asdict() for change in changes]}
            write_json(self.path / CHANGES, value)
        # Write the config last, so that a folder with the new config also has the record.
        if json_value(self._config) != read_config(self.path):
            write_json(self.path / CONFIG, self._config)
        self._changes, self.pending = changes, {}
        return changes

    def result(self) -> dict | None:
        """Returns what `finish` wrote, or None if the run has not finished.

        A damaged file is set aside, and a line says so: the weights give the result again.
        """
        try:
            return read_result(
                self.path, {"epochs": int, "summary": str, "scores": dict}
            )
        except UnreadableError as error:
            aside = set_aside(self.path / RESULT)
            print(f"{error}, and the file is now {aside}", flush=True)
            return None

    def finish(self, result: Mapping[str, Any]) -> None:
        """Marks the run as finished by writing its result."""
        self.check_held()
        write_json(self.path / RESULT, result)


@contextlib.contextmanager
def open_workdir(
    path: epath.PathLike, config: Mapping[str, Any], *, may_change: Sequence[str] = ()
) -> Iterator[Workdir]:
    """Prepares a folder for a new or resumed run, and locks it within the context.

    Args:
        path: the folder; created if it does not exist.
        config: the run's whole config, nested mappings of JSON values.
        may_change: the dotted fields that a resumed run may change, such as "training.epochs".
            The folder keeps their old values until `Workdir.record`.

    Yields:
        The folder.

    Raises:
        WorkdirError: another process is at work in it, it belongs to another model or recipe, or
            it holds files that no run writes.
    """
    folder = epath.Path(path)
    if exists(folder) and not folder.is_dir():
        raise WorkdirError(f"{folder} is a file; expected a folder for the run")
    if not exists(folder / CONFIG):
        _refuse_foreign(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder) as check_held:
        if not exists(folder / CONFIG):
            write_json(folder / CONFIG, config)
        refuse_other_run(folder, config, may_change)
        yield Workdir(folder, config, may_change, check_held)


def refuse_other_run(
    path: epath.PathLike, config: Mapping[str, Any], may_change: Sequence[str]
) -> None:
    """Raises WorkdirError if a folder has a run with another config, `may_change` aside."""
    differing = [
        f"{field}: {was} there, {now} here"
        for field, (was, now) in _differing(epath.Path(path), config).items()
        if field not in may_change
    ]
    if differing:
        raise WorkdirError(
            f"{path} belongs to another run, whose config differs ({'; '.join(differing)}); "
            "go on with that run's values, or choose another folder"
        )


def read_changes(path: epath.PathLike) -> tuple[Change, ...]:
    """Returns the config changes of the run in a folder, in the order of the steps.

    Raises:
        WorkdirError: the record cannot be read.
    """
    file = epath.Path(path) / CHANGES
    value = read_kept(file, {"changes": list})
    try:
        changes = tuple(
            Change(**each) for each in (value or {"changes": ()})["changes"]
        )
        if not all(type(c.step) is int and isinstance(c.field, str) for c in changes):
            raise TypeError
        return tuple(change._replace(epoch=float(change.epoch)) for change in changes)
    except (ValueError, TypeError) as error:
        raise WorkdirError(
            f"{file} is damaged: one of `changes` is none. {RESTORE}"
        ) from error


def check_epochs(path: epath.PathLike, done: int, epochs: int) -> None:
    """Raises WorkdirError if `epochs` is less than the run has done."""
    if epochs < done:
        raise WorkdirError(
            f"the run in {path} has done {done} epochs, which stay done: `config.training.epochs` "
            f"must be at least {done}. Received: config.training.epochs={epochs}"
        )


def read_result(
    path: epath.PathLike, fields: Mapping[str, type] | None = None
) -> dict | None:
    """Returns the result of the run in a folder, or None if it has not finished.

    Args:
        path: the folder.
        fields: required fields, as for `files.read_json`.

    Raises:
        UnreadableError: the file is damaged.
        OSError: it cannot be read.
    """
    file = epath.Path(path) / RESULT
    try:
        return read_json(file, fields) if exists(file) else None
    except UnreadableError as error:
        raise UnreadableError(
            f"{error}; the training command scores the run again"
        ) from error


def read_config(path: epath.PathLike, fields: Mapping[str, type] | None = None) -> dict:
    """Returns the config of the run in a folder.

    Args:
        path: the folder.
        fields: required fields, as for `files.read_json`.

    Raises:
        WorkdirError: the folder has no run, or its config is damaged.
        OSError: it cannot be read.
    """
    config = read_kept(epath.Path(path) / CONFIG, fields)
    if config is None:
        raise WorkdirError(
            f"{path} holds no run: {CONFIG} is missing; {_instead(epath.Path(path))}"
        )
    return config


def read_kept(
    file: epath.Path, fields: Mapping[str, type] | None = None
) -> dict | None:
    """Returns a JSON file that a run wrote at its beginning and needs; None if it is missing.

    Args:
        file: the JSON file.
        fields: required fields, as for `files.read_json`.

    Raises:
        WorkdirError: the file is damaged.
        OSError: the file cannot be read.
    """
    try:
        return read_json(file, fields) if exists(file) else None
    except UnreadableError as error:
        raise WorkdirError(f"{error}. {RESTORE}") from error


def _instead(folder: epath.Path) -> str:
    """Returns advice on a folder without a run; its subfolders may have runs."""
    runs = sorted(folder.glob(f"*/{CONFIG}"))
    if not runs:
        return "train one there first"
    return f"it has those of {', '.join(str(run.parent) for run in runs[:5])}"


def check_output(path: epath.PathLike) -> None:
    """Raises WorkdirError if `--output` is a run's folder or lies in one."""
    output = as_path(path)
    for folder in (output, *output.parents):
        of_a_run = (folder / LOCK, folder / "checkpoints")
        if exists(folder / CONFIG) and any(exists(each) for each in of_a_run):
            raise WorkdirError(
                f"--output={path} is in the folder of a run, {folder}, which holds nothing else; "
                "choose another folder"
            )


def _refuse_foreign(folder: epath.Path) -> None:
    """Raises WorkdirError if a folder without a config has files, but for an unused lock."""
    found = sorted(p.name for p in folder.iterdir()) if exists(folder) else []
    if foreign := [name for name in found if name not in (LOCK, f".{CONFIG}.part")]:
        raise WorkdirError(
            f"{folder} holds files but no run ({CONFIG} is missing): {', '.join(foreign[:5])}; "
            "choose an empty or a new folder"
        )


def _differing(
    folder: epath.Path, config: Mapping[str, Any]
) -> dict[str, tuple[Any, Any]]:
    """Returns the fields that differ from the run's in a folder, with old and new values."""
    if not exists(folder / CONFIG):
        return {}
    was = flatten(json_value(configs.of_a_run(read_config(folder))))
    # A process may have been killed after it recorded changes, before it wrote the config.
    was.update((change.field, change.now) for change in read_changes(folder))
    now = flatten(json_value(config))
    return {
        field: (was.get(field, "nothing"), now.get(field, "nothing"))
        for field in {**was, **now}
        if field not in was or field not in now or was[field] != now[field]
    }


@contextlib.contextmanager
def _locked(folder: epath.Path) -> Iterator[Callable[[], None]]:
    """Holds the folder's lock; the system releases it however the process ends.

    Yields:
        Raises WorkdirError if another process has taken the folder over.
    """
    if is_store(folder):
        with _claimed(folder) as check_held:
            yield check_held
        return
    refuse_pipe(folder / LOCK)
    with open(os.fspath(folder / LOCK), "a+") as file:
        _take(file, folder)
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield lambda: None


@contextlib.contextmanager
def _claimed(folder: epath.Path) -> Iterator[Callable[[], None]]:
    """Takes a folder of an object store over from any other process; yields as `_locked` does."""
    lock, name = folder / LOCK, f"process {os.getpid()} on {platform.node()}"
    claim = f"{name}\n{uuid.uuid4().hex}\n".encode()
    if former := _read_claim(lock):
        print(
            f"{folder} was last held by {_holder(former)}; if it is still at work, it stops at its "
            "next checkpoint",
            flush=True,
        )
    lock.write_bytes(claim)

    def check_held() -> None:
        # Where the store does not answer, it does not take a checkpoint either.
        with contextlib.suppress(OSError):
            if (found := _read_claim(lock)) not in (claim, b""):
                raise WorkdirError(
                    f"{_holder(found)} has taken {folder} over; this process stops"
                )

    try:
        yield check_held
    finally:
        with contextlib.suppress(OSError):
            if _read_claim(lock) == claim:
                lock.unlink()


def _read_claim(lock: epath.Path) -> bytes:
    """Returns what a process has written to `lock`, or nothing if none has."""
    try:
        return lock.read_bytes()
    except FileNotFoundError:
        return b""


def _holder(claim: bytes) -> str:
    return claim.decode(errors="replace").partition("\n")[0]


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
