"""The trials of a study, which a journal holds; Optuna judges them.

Each line of the journal is what happened to a trial: it was begun with values, it came to a loss
after one of its parts, it ended. A line has the time since the process's line before.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import IO, Any

from etils import epath

from trainers.data import files
from trainers.kinds.search import Choice, Integers, Space
from trainers.studies import journal, search
from trainers.studies.places import JOURNAL, Place
from trainers.training import identity
from trainers.training.workdir import RESTORE, WorkdirError

RUNNING, COMPLETE, PRUNED, FAILED = "RUNNING", "COMPLETE", "PRUNED", "FAIL"
_DATABASE, _STUDY = "trials.db", "study"  # of releases up to 0.1
_END_FIELDS = ("state", "loss", "steps", "units", "why")  # of `Trial`
_BEFORE_PRUNING = 4  # trials that have to end first


def import_optuna() -> ModuleType:
    """Returns Optuna.

    Raises:
        ImportError: it is not installed; the message names the extra.
    """
    try:
        import optuna
    except ImportError as error:
        raise ImportError(
            f"a study needs Optuna, the extra `tune`: pip install '.[tune]' ({error})"
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


@dataclasses.dataclass
class Trial:
    """A trial of a study.

    Attributes:
        number: counted from 0.
        values: of each entry of the search space, as `search.own` returns them.
        state: `RUNNING` until it has ended, whether or not a process is at work on it.
        losses: the validation loss after each part, counted from 1.
        loss: that of the best weights of a complete trial; else NaN.
        steps: the training steps of its run.
        units: the units of its model.
        why: why it failed, or was pruned for another reason than its losses.
        processor_seconds: what all processes have taken for it.
    """

    number: int
    values: dict[str, Any]
    state: str = RUNNING
    losses: dict[int, float] = dataclasses.field(default_factory=dict)
    loss: float = math.nan
    steps: int | None = None
    units: int | None = None
    why: str | None = None
    processor_seconds: float = 0.0

    @property
    def has_ended(self) -> bool:
        """Whether no process goes on with it."""
        return self.state != RUNNING


class Trials:
    """The trials of a study, as its journal has them.

    Args:
        optuna: the module.
        place: the study's folder.
    """

    def __init__(self, optuna: ModuleType, place: Place) -> None:
        self._optuna = optuna
        self._place = place
        self._path = place.path / JOURNAL
        self._laps = (time.monotonic(), time.process_time())

    def begin(self) -> None:
        """Takes over the trials of an earlier release; call it with the study's lock.

        Raises:
            WorkdirError: the journal is damaged, or missing where the study has trials.
        """
        database = self._place.path / _DATABASE
        if not self._path.exists() and database.exists():
            seconds = self._place.session_seconds()
            entries = _read_database(self._optuna, database, seconds)
            content = journal.text(entries)
            files.write_atomically(self._path, lambda file: file.write(content))
        if not self._path.exists() and self._place.has_trials():
            raise WorkdirError(
                f"{self._path} is missing, which holds the trials of the study. {_RESTORE}"
            )
        self.all()

    def all(self) -> list[Trial]:
        """Returns the trials, ended or not.

        Raises:
            WorkdirError: the journal is damaged.
        """
        trials: list[Trial] = []
        for entry in self._entries():
            _take(trials, entry)
        return trials

    def hours(self) -> float:
        """Returns the hours that processes have worked on the study, each counted alone."""
        recorded = sum(entry.get("seconds", 0.0) for entry in self._entries())
        return (recorded + time.monotonic() - self._laps[0]) / 3600

    def claim(
        self, most: int | None, values: Callable[[Sequence[Trial]], Mapping[str, Any]]
    ) -> tuple[Trial, IO[str]] | None:
        """Returns a trial that no process has, and its lock; call this with the study's lock.

        It is one that a process left unfinished or, if there is none, a new one; None if there are
        `most` trials.

        Args:
            most: the most trials of the study; None: there is no limit.
            values: returns the values of a new trial, given all others.
        """
        trials = self.all()
        for trial in trials:
            if not trial.has_ended and (lock := self._place.hold(trial.number)):
                return trial, lock
        if most is not None and len(trials) >= most:
            return None
        new = Trial(len(trials), dict(values(trials)))
        lock = self._place.hold(new.number)
        assert lock, "only a process with the study's lock makes trials"
        self._append("begun", new, values=new.values, **identity.program()._asdict())
        return new, lock

    def observe(self, trial: Trial, losses: Sequence[float]) -> None:
        """Records the losses that a trial has come to, one for each part."""
        for part, loss in enumerate(losses, 1):
            if part not in trial.losses:
                trial.losses[part] = loss
                with self._place.locked():
                    self._append("loss", trial, part=part, loss=loss)

    def worked(self, trial: Trial) -> None:
        """Records the time since the last line, for a trial that goes on later."""
        with self._place.locked():
            self._append("worked", trial)

    def end(self, trial: Trial, run_id: str | None) -> None:
        """Records how a trial ended; call this with the study's lock.

        Args:
            trial: has a state, and what the run had.
            run_id: of the trial's run.
        """
        ended = {name: getattr(trial, name) for name in _END_FIELDS}
        self._append("ended", trial, **ended, run_id=run_id)

    def is_hopeless(self, trial: Trial) -> bool:
        """Returns whether a trial's last loss is above the median of others at that part."""
        # In memory: Optuna judges, and the journal alone holds the trials.
        study = self._optuna.create_study()
        for other in self.all():
            if other.state == COMPLETE:
                study.add_trial(
                    self._frozen(other, state=other.state, value=other.loss)
                )
        pruner = self._optuna.pruners.MedianPruner(n_startup_trials=_BEFORE_PRUNING)
        return pruner.prune(study, self._frozen(trial, state=RUNNING))

    def importances(self, trials: Sequence[Trial], space: Space) -> dict[str, float]:
        """Returns the share of each entry in what separates good trials from the others."""
        from optuna import importance

        study = self._optuna.create_study()
        distributions = {
            name: self._distribution(entry) for name, entry in space.items()
        }
        for trial in trials:
            own = dict(params=trial.values, distributions=distributions)
            study.add_trial(
                self._frozen(trial, state=trial.state, value=trial.loss, **own)
            )
        return importance.get_param_importances(
            study,
            evaluator=importance.PedAnovaImportanceEvaluator(),
            params=list(space),
        )

    def _frozen(self, trial: Trial, state: str, **arguments: Any) -> Any:
        return self._optuna.create_trial(
            state=self._optuna.trial.TrialState[state],
            intermediate_values=trial.losses,
            **arguments,
        )

    def _distribution(self, entry: Any) -> Any:
        kinds = self._optuna.distributions
        if isinstance(entry, Choice):
            return kinds.CategoricalDistribution(
                [*map(search.format_value, entry.values)]
            )
        if isinstance(entry, Integers):
            return kinds.IntDistribution(entry.low, entry.high, log=entry.log)
        return kinds.FloatDistribution(entry.low, entry.high, log=entry.log)

    def _entries(self) -> list[dict[str, Any]]:
        try:
            return journal.read(self._path)
        except journal.DamagedError as error:
            raise WorkdirError(f"{error}. {_RESTORE}") from error

    def _append(self, event: str, trial: Trial, **fields: Any) -> None:
        now = (time.monotonic(), time.process_time())
        seconds, processor = (
            new - was for new, was in zip(now, self._laps, strict=True)
        )
        entry = {"event": event, "trial": trial.number, **fields}
        entry |= {"seconds": seconds, "processor_seconds": processor}
        journal.append(self._path, entry)
        self._laps = now


_RESTORE = RESTORE.replace("--workdir", "--study")


def _take(trials: list[Trial], entry: Mapping[str, Any]) -> None:
    """Adds what an entry of the journal says to the trials before it."""
    if entry["event"] == "begun":
        trials.append(Trial(entry["trial"], entry["values"]))
    if entry["trial"] is None:  # the time that an earlier release took
        return
    trial = trials[entry["trial"]]
    trial.processor_seconds += entry.get("processor_seconds", 0.0)
    if entry["event"] == "loss":
        trial.losses[entry["part"]] = entry["loss"]
    if entry["event"] == "ended":
        for name in _END_FIELDS:
            setattr(trial, name, entry[name])
        trial.loss = math.nan if trial.loss is None else trial.loss


def _read_database(
    optuna: ModuleType, database: Any, seconds: float
) -> list[dict[str, Any]]:
    """Returns the entries of a study whose trials are in a database of Optuna's.

    Raises:
        WorkdirError: the database is damaged.
    """
    entries: list[dict[str, Any]] = [
        {"event": "worked", "trial": None, "seconds": seconds}
    ]
    try:
        study = optuna.load_study(
            study_name=_STUDY, storage=f"sqlite:///{epath.Path(database)}"
        )
        for trial in study.get_trials(deepcopy=False):
            if trial.state.name == "WAITING":  # its values come again
                break
            entries.extend(_trial_entries(trial))
    except Exception as error:  # SQLAlchemy and Optuna raise what damage leads to
        raise WorkdirError(f"{database} is damaged ({error!r}). {_RESTORE}") from error
    return entries


def _trial_entries(trial: Any) -> Iterator[dict[str, Any]]:
    """Yields the entries of a trial of Optuna's."""
    own = {"trial": trial.number}
    yield {"event": "begun", **own, "values": trial.params}
    for part, loss in sorted(trial.intermediate_values.items()):
        yield {"event": "loss", **own, "part": part, "loss": loss}
    if trial.state.is_finished():
        ended = {name: trial.user_attrs.get(name) for name in ("steps", "units", "why")}
        state = trial.state.name
        loss = trial.value if state == COMPLETE else None
        yield {"event": "ended", **own, "state": state, "loss": loss, **ended}
