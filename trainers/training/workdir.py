"""The folder of a run: its lock, its config, the config's changes, its result.

A folder holds one run. `config.json` has its values and its identity, `changes.json` former values
and steps. The process at work holds `lock`. `result.json` exists after the run has finished.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from etils import epath

from trainers.data.files import (
    UnreadableError,
    exists,
    json_value,
    read_json,
    set_aside,
    write_json,
)
from trainers.data.names import differences, flatten
from trainers.data.stores import as_path
from trainers.training import identity
from trainers.training.hold import LOCK, Hold, WorkdirError, held

CONFIG, CHANGES, RESULT = "config.json", "changes.json", "result.json"
RUN = "run"  # the group of `CONFIG` that says which run it is
RUN_ID = "run_id"  # of a result and a checkpoint
Upgrade = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Returns config values of any release, by their dotted names, in today's form."""
RESTORE = "Bring it back from a backup, or choose another --workdir"


Pending = dict[str, tuple[Any, Any]]
"""Dotted fields of a config whose values are new, each with its old and its new value."""


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
    def affects_steps(self) -> bool:
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
        run: which run it is.
        pending: the dotted fields whose values are new, each with its old and its new value.
            `record` applies them.
    """

    def __init__(
        self,
        path: epath.Path,
        config: Mapping[str, Any],
        pending: Pending,
        hold: Hold,
        run: identity.Identity,
    ):
        self.path = path
        self.run = run
        self._hold = hold
        self._config = config
        self._changes = read_changes(path)
        self.pending = pending

    def check_held(self) -> None:
        """Raises TakenError if the folder is no longer this run's; call it before each write."""
        self._hold.check()

    def record(self, step: int, epoch: float) -> tuple[Change, ...]:
        """Records the pending changes and the program at work, as of a step.

        Call this after all checks, since it writes. If the process is killed here or before its
        next checkpoint, the same command finds the same step and these changes.

        Args:
            step: the step that the run continues from. A recorded change of a later step moves to
                this one; its checkpoint was lost.
            epoch: that step in epochs.

        Returns:
            all changes of the run, the new ones last.
        """
        self.check_held()
        former = tuple(
            change if change.step <= step else change._replace(step=step, epoch=epoch)
            for change in self._changes
        )
        changes = former + tuple(
            Change(step, epoch, field, was, now)
            for field, (was, now) in self.pending.items()
        )
        if changes != self._changes:
            value = {"changes": [change._asdict() for change in changes]}
            write_json(self.path / CHANGES, value)
        self.run = self.run.by(identity.program(), step)
        # Write the config last, so that a folder with the new config also has the record.
        config = _with_run(self._config, self.run)
        if config != read_record(self.path / CONFIG):
            write_json(self.path / CONFIG, config)
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
        write_json(self.path / RESULT, {**result, RUN_ID: self.run.run_id})


@contextlib.contextmanager
def open_workdir(
    path: epath.PathLike,
    config: Mapping[str, Any],
    *,
    may_change: Sequence[str] = (),
    upgrade: Upgrade = dict,
) -> Iterator[Workdir]:
    """Prepares a folder for a new or resumed run, and locks it within the context.

    Args:
        path: the folder; created if it does not exist.
        config: the run's whole config, nested mappings of JSON values.
        may_change: the dotted fields that a resumed run may change, such as "training.epochs".
            The folder keeps their old values until `Workdir.record`.
        upgrade: as for `refuse_other_run`.

    Yields:
        the folder.

    Raises:
        WorkdirError: another process is at work in it, it belongs to another model or recipe, or
            it holds files that no run writes.
    """
    folder = epath.Path(path)
    if not exists(folder / CONFIG):
        refuse_foreign(folder, CONFIG)
    folder.mkdir(parents=True, exist_ok=True)
    with held(folder) as hold:
        run = read_run(folder) or identity.new()
        hold.sign(run.run_id)
        if not exists(folder / CONFIG):
            write_json(folder / CONFIG, _with_run(config, run))
        pending = refuse_other_run(folder, config, may_change, upgrade)
        yield Workdir(folder, config, pending, hold, run)


def refuse_other_run(
    path: epath.PathLike,
    config: Mapping[str, Any],
    may_change: Sequence[str],
    upgrade: Upgrade = dict,
) -> Pending:
    """Returns the fields that differ from the run's in a folder; it has none if it has no run.

    Args:
        path: the folder.
        config: as for `open_workdir`.
        may_change: the dotted fields that may differ.
        upgrade: brings what the folder has into the form of `config`. Default: they have one form.

    Raises:
        WorkdirError: other fields differ, or the folder's files are damaged.
    """
    pending = _differing(epath.Path(path), config, upgrade)
    differing = {
        field: pending.pop(field) for field in [*pending] if field not in may_change
    }
    if named := [name for name in ("task", "preset") if name in differing]:
        theirs = " and ".join(f"--{name}={differing[name][0]}" for name in named)
        raise WorkdirError(
            f"{path} belongs to another run, that of {theirs}; give that to go on with it, or "
            "choose another folder"
        )
    if differing:
        values = (
            f"{field}: {was} there, {now} here"
            for field, (was, now) in differing.items()
        )
        fields = ", ".join(f"--config.{field}" for field in differing)
        raise WorkdirError(
            f"{path} belongs to another run, whose config differs ({'; '.join(values)}); the "
            f"same command without {fields} goes on with that run, or choose another folder"
        )
    return pending


def read_changes(path: epath.PathLike) -> tuple[Change, ...]:
    """Returns the config changes of the run in a folder, in the order of the steps.

    Raises:
        WorkdirError: the record cannot be read.
    """
    file = epath.Path(path) / CHANGES
    value = read_record(file, {"changes": list})
    try:
        changes = tuple(
            Change(**entry) for entry in (value or {"changes": ()})["changes"]
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
        result = read_json(file, fields) if exists(file) else None
        if result is not None:
            run, run_id = read_run(path), result.pop(RUN_ID, None)
            if run and run_id and run.run_id != run_id:
                raise UnreadableError(f"{file} is the result of another run")
    except UnreadableError as error:
        raise UnreadableError(
            f"{error}; the training command scores the run again"
        ) from error
    return result


def read_run(path: epath.PathLike) -> identity.Identity | None:
    """Returns which run a folder has; None if it has none, or one that has no id yet.

    Raises:
        WorkdirError: the config is damaged.
        OSError: it cannot be read.
    """
    file = epath.Path(path) / CONFIG
    value = (read_record(file) or {}).get(RUN)
    try:
        return None if value is None else identity.from_value(value)
    except ValueError as error:
        raise WorkdirError(f"{file} is damaged: {error}. {RESTORE}") from error


def _with_run(config: Mapping[str, Any], run: identity.Identity) -> dict[str, Any]:
    return {**json_value(config), RUN: run.value()}


def read_config(path: epath.PathLike, fields: Mapping[str, type] | None = None) -> dict:
    """Returns the config of the run in a folder, without the run's identity.

    Args:
        path: the folder.
        fields: required fields, as for `files.read_json`.

    Raises:
        WorkdirError: the folder has no run, or its config is damaged.
        OSError: it cannot be read.
    """
    config = read_record(epath.Path(path) / CONFIG, fields)
    if config is None:
        raise WorkdirError(
            f"{path} holds no run: {CONFIG} is missing; {_instead(epath.Path(path))}"
        )
    config.pop(RUN, None)
    return config


def read_record(
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
        traces = (folder / LOCK, folder / "checkpoints")
        if exists(folder / CONFIG) and any(exists(trace) for trace in traces):
            raise WorkdirError(
                f"--output={path} is in the folder of a run, {folder}, which holds nothing else; "
                "choose another folder"
            )


def refuse_foreign(folder: epath.Path, record: str, what: str = "run") -> None:
    """Raises WorkdirError if a folder without a record has files, but for an unused lock.

    Args:
        folder: the folder, or a place for a new one.
        record: the name of the record's file.
        what: of what it is the record.
    """
    if not exists(folder):
        return
    if not folder.is_dir():
        raise WorkdirError(f"{folder} is a file; expected a folder for the {what}")
    names = sorted(path.name for path in folder.iterdir())
    if foreign := [name for name in names if name not in (LOCK, f".{record}.part")]:
        raise WorkdirError(
            f"{folder} holds files but no {what} ({record} is missing): {', '.join(foreign[:5])}; "
            "choose an empty or a new folder"
        )


def _differing(
    folder: epath.Path, config: Mapping[str, Any], upgrade: Upgrade
) -> Pending:
    """Returns the fields that differ from the run's in a folder, with old and new values."""
    if not exists(folder / CONFIG):
        return {}
    was = json_value(upgrade(flatten(read_config(folder))))
    # A process may have been killed after it recorded changes, before it wrote the config.
    was.update((change.field, change.now) for change in read_changes(folder))
    return differences(was, flatten(json_value(config)))
