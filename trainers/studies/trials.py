"""The trials of a study in Optuna's database, and what Optuna draws for them.

The database is SQLite's: it is whole after a process was killed, and several processes may use it.
"""

import hashlib
from types import ModuleType
from typing import IO, Any

from trainers.studies.places import Place

DATABASE = "trials.db"
_NAME = "study"  # in the database
_WAIT = 60  # seconds for another process's access to the database
_BEFORE_PRUNING = 4  # trials that have to end first
_RANDOM = 8  # trials that are drawn by chance, before the others' losses are used


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


class Draws:
    """Draws the values of a trial by Optuna.

    Each value has a seed of its own. So a process that goes on with a trial draws what the killed
    one would have drawn, and two trials do not draw alike.
    """

    def __init__(self, optuna: ModuleType, trial: Any, seed: int) -> None:
        self._samplers, self._trial, self._seed = optuna.samplers, trial, seed

    def suggest_float(self, name: str, low: float, high: float, *, log: bool) -> float:
        """Draws a number."""
        return self._seeded(name).suggest_float(name, low, high, log=log)

    def suggest_int(self, name: str, low: int, high: int, *, log: bool) -> int:
        """Draws an integer."""
        return self._seeded(name).suggest_int(name, low, high, log=log)

    def suggest_categorical(self, name: str, choices: list[str]) -> str:
        """Draws one of some strings."""
        return self._seeded(name).suggest_categorical(name, choices)

    def _seeded(self, name: str) -> Any:
        text = f"{self._seed} {self._trial.number} {name}"
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")
        self._trial.study.sampler = self._samplers.TPESampler(
            seed=seed, n_startup_trials=_RANDOM
        )
        return self._trial


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

    def claim(self, most: int | None) -> tuple[Any, IO[str]] | None:
        """Returns a trial that no process has, and its lock; call this with the study's lock.

        It is one that a process left unfinished or, if there is none, a new one; None if there are
        `most` trials.
        """
        trials = self.all()
        for frozen in trials:
            if not frozen.state.is_finished() and (
                lock := self._place.hold(frozen.number)
            ):
                return self._again(frozen.number), lock
        if most is not None and len(trials) >= most:
            return None
        trial = self.study.ask()
        lock = self._place.hold(trial.number)
        assert lock, "only a process with the study's lock makes trials"
        return trial, lock

    def _again(self, number: int) -> Any:
        storage = self._storage
        study = storage.get_study_id_from_name(_NAME)
        trial = storage.get_trial_id_from_study_id_trial_number(study, number)
        return self._optuna.trial.Trial(self.study, trial)
