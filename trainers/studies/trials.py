"""The trials of a study in Optuna's database.

The database is SQLite's: it is whole after a process was killed, and several processes may use it.
"""

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import IO, Any

from trainers.studies.places import Place

DATABASE = "trials.db"
_NAME = "study"  # in the database
_WAIT = 60  # seconds for another process's access to the database
_BEFORE_PRUNING = 4  # trials that have to end first


def import_optuna() -> ModuleType:
    """Returns Optuna.

    Raises:
        ImportError: It is not installed; the message names the extra.
    """
    try:
        import optuna
    except ImportError as error:
        raise ImportError(
            f"a study needs Optuna, the extra `tune`: pip install '.[tune]' ({error})"
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


class Trials:
    """The trials of a study, in Optuna's database."""

    def __init__(self, optuna: ModuleType, place: Place) -> None:
        self._optuna = optuna
        self._place = place
        self._storage = optuna.storages.RDBStorage(
            f"sqlite:///{place.path / DATABASE}",
            engine_kwargs={"connect_args": {"timeout": _WAIT}},
        )
        self.study = optuna.create_study(
            storage=self._storage,
            study_name=_NAME,
            pruner=optuna.pruners.MedianPruner(n_startup_trials=_BEFORE_PRUNING),
            load_if_exists=True,
        )

    def all(self) -> list[Any]:
        """Returns the trials, ended or not."""
        return self.study.get_trials(deepcopy=False)

    def claim(
        self, most: int | None, values: Callable[[Sequence[Any]], Mapping[str, Any]]
    ) -> tuple[Any, IO[str]] | None:
        """Returns a trial that no process has, and its lock; call this with the study's lock.

        It is one that a process left unfinished or, if there is none, a new one; None if there are
        `most` trials.

        Args:
            most: The most trials of the study; None: there is no limit.
            values: Returns the values of a new trial, given all others.
        """
        trials = self.all()
        for frozen in trials:
            if frozen.state.name == "RUNNING" and (
                lock := self._place.hold(frozen.number)
            ):
                return self._again(frozen.number), lock
        # A process that was killed between `enqueue_trial` and `ask` has left a waiting trial.
        if not any(frozen.state.name == "WAITING" for frozen in trials):
            if most is not None and len(trials) >= most:
                return None
            self.study.enqueue_trial(dict(values(trials)))
        trial = self.study.ask()
        lock = self._place.hold(trial.number)
        assert lock, "only a process with the study's lock makes trials"
        return trial, lock

    def _again(self, number: int) -> Any:
        storage = self._storage
        study = storage.get_study_id_from_name(_NAME)
        trial = storage.get_trial_id_from_study_id_trial_number(study, number)
        return self._optuna.trial.Trial(self.study, trial)
