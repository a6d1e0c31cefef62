"""A study: trials of a task's settings, each an ordinary run, led by Optuna in a folder.

The folder has the trials in a journal, a run's folder for each trial, the record of what all trials
share, and the outcome.

A trial takes a number of processor seconds. So all trials cost the same, and their curves compare
at the same share of the cost. Trial 0 is the preset itself. Each other trial has the values of the
best one that has ended, but for one to three entries of the search space. The seed, the trial's
number and the trials before it decide which entries change, and to what. A trial's run is a
function of its config.
"""

import contextlib
import gc
import logging
import random
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import keras
import ml_collections
import tensorflow as tf
from etils import epath

import keras_trellis
from trainers.data import files
from trainers.data.names import differences, flatten
from trainers.studies import budget, experiments, outcome, search
from trainers.studies.places import Place
from trainers.studies.trials import (
    COMPLETE,
    FAILED,
    PRUNED,
    Trial,
    Trials,
    import_optuna,
)
from trainers.tasks import config as configs
from trainers.tasks import run_folders, schema
from trainers.training import resources, runs, stopping
from trainers.training.loop import NonFiniteLossError
from trainers.training.workdir import CONFIG, WorkdirError, read_result, read_run

TRIALS = 20  # unpruned, in the hours of a study that does not say how long a trial is
_CONFIG_PREFIX = "config."  # before the names of a config's fields in a study's record
# What a trial's values may cause.
_NO_MEMORY = (MemoryError, tf.errors.ResourceExhaustedError)
_ATTEMPTS = 2  # of a trial that runs out of memory


class Settings(NamedTuple):
    """What all trials of a study share.

    Attributes:
        config: the config in which drawn values replace others.
        data_dir: the folder of the task's data files.
        seconds: processor seconds of a trial's training steps; None: the study's own, at first a
            share of its hours, for `TRIALS` trials.
        parameters: the number of parameters of all models; None: that of `config`, or that of each
            trial's `model.units` where these are searched.
        threads: the number of threads that TensorFlow computes on.
        fixed: fields that are not searched.
    """

    config: ml_collections.ConfigDict
    data_dir: str | None
    seconds: float | None = None
    parameters: int | None = None
    threads: int = 1
    fixed: tuple[str, ...] = ()


class Limits(NamedTuple):
    """When a study ends; None: not by this.

    Attributes:
        hours: wall time of all processes that have worked on the study, added up.
        trials: the number of trials.
    """

    hours: float | None = None
    trials: int | None = None


class _Plan(NamedTuple):
    """What all trials share, nothing left open.

    Attributes:
        first: the config of trial 0, where this process has measured it to see that the seconds
            suffice.
    """

    config: ml_collections.ConfigDict
    data_dir: str | None
    seconds: float
    parameters: int | None
    space: search.Space
    first: ml_collections.ConfigDict | None = None


class _OutOfTimeError(Exception):
    """The study's time is up; the trial goes on when there is more."""


class _HopelessError(Exception):
    """The trial is worse than others were at this part of it."""


def tune(path: epath.PathLike, settings: Settings, limits: Limits) -> None:
    """Makes trials until a limit is reached; goes on with what an earlier process left.

    Several processes may do this in one folder. Each prints a line for each of its trials.

    Args:
        path: the study's folder.
        settings: what the trials share; the same in each call.
        limits: when to end.

    Raises:
        ValueError, OSError, ImportError: the settings or the data cannot be used.
        WorkdirError: the folder has a study with other settings, or something else.
        stopping.StoppedError: a signal came, and the trial is saved.
    """
    optuna, place = import_optuna(), Place(path)
    was = place.record()
    plan, record = _planned(settings, _seconds(settings, limits, was), place)
    _refuse_other(place, was, record)
    if was is None:
        plan = plan._replace(first=_measured(plan, plan.config, place.trial(0)))
    with place.locked():
        was = place.record()  # another process may have begun one
        _refuse_other(place, was, record)
        if was is None:
            place.begin(record)
        trials = Trials(optuna, place)
        trials.begin()
    # Each trial traces its own functions, and TensorFlow would warn that they are traced again.
    tf.get_logger().addFilter(_is_no_retracing_warning)
    _Process(place, trials, plan, limits).to_the_end()
    print(outcome.summary(place, trials.all(), plan.config.task), flush=True)


def best(path: epath.PathLike) -> ml_collections.ConfigDict:
    """Returns the config of a study's best trial.

    Raises:
        WorkdirError: no trial of the study has ended.
    """
    file = Place(path).path / outcome.BEST
    if not file.exists():
        raise WorkdirError(f"{file} is missing: no trial of the study has ended")
    return configs.read(file)


def ended(path: epath.PathLike, trials: int) -> bool:
    """Returns whether so many trials of a study have ended."""
    place = Place(path)
    if place.record() is None:
        return False
    records = Trials(import_optuna(), place).all()
    return sum(trial.has_ended for trial in records) >= trials


def _seconds(
    settings: Settings, limits: Limits, was: Mapping[str, Any] | None
) -> float:
    """Returns the processor seconds of a trial."""
    if settings.seconds is not None:
        return settings.seconds
    if was is not None:
        return was["values"]["trial_seconds"]
    if limits.hours is None:
        raise ValueError(
            "--trial_seconds is missing; without --hours a trial has no length"
        )
    return 3600 * limits.hours / TRIALS * settings.threads


def _planned(
    settings: Settings, seconds: float, place: Place
) -> tuple[_Plan, dict[str, Any]]:
    """Checks settings; returns the plan and the record of the study."""
    schema.check(settings.config)
    fixed = (*settings.fixed, *(["model.units"] if settings.parameters else []))
    space = search.space(settings.config, fixed)
    search.check(settings.config, space)
    experiment = experiments.load(settings.config, settings.data_dir, place.trial(0))
    config, count = settings.config, experiment.parameters
    parameters = None
    if "model.units" not in space:
        parameters = settings.parameters or count(config)
        config = search.sized(config, parameters, count)
        _check_sizes(config, space, parameters, count)
    shared = {_CONFIG_PREFIX + name: value for name, value in flatten(config).items()}
    shared |= {
        "trial_seconds": seconds,
        "parameters": parameters,
        "threads": settings.threads,
    }
    shared |= {f"search of {name}": repr(entry) for name, entry in space.items()}
    record = {
        "task": config.task,
        "version": keras_trellis.__version__,
        "values": shared,
    }
    plan = _Plan(config, settings.data_dir, seconds, parameters, space)
    return plan, record | {"data": experiment.checksums()}


def _check_sizes(
    config: ml_collections.ConfigDict,
    space: search.Space,
    parameters: int,
    count: Callable[[ml_collections.ConfigDict], int],
) -> None:
    """Raises ValueError if a value of the space leads to a model that cannot be as large."""
    own = count(config)
    for values in search.single(space):
        try:
            changed = search.apply(config, values)
            if count(changed) != own:  # most values change no size
                search.sized(changed, parameters, count)
        except ValueError as error:
            raise ValueError(f"with {search.format_value(values)}, {error}") from error


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _measured(
    plan: _Plan, config: ml_collections.ConfigDict, path: epath.Path
) -> ml_collections.ConfigDict:
    """Returns a config with the steps that fit into a trial; measures them."""
    experiment = experiments.load(config, plan.data_dir, path)
    return budget.with_budget(experiment, config, plan.seconds)


def _refuse_other(
    place: Place, was: Mapping[str, Any] | None, record: Mapping[str, Any]
) -> None:
    """Raises WorkdirError if a study was begun with another task, other data or other values."""
    if was is None:
        return
    if was["task"] != record["task"]:
        raise WorkdirError(
            f"{place.path} holds a study of --task={was['task']}, not of {record['task']}; "
            "choose another --study"
        )
    data = record["data"]
    if splits := [split for split in data if was["data"].get(split) != data[split]]:
        raise WorkdirError(
            f"{place.path} holds a study on other data ({', '.join(splits)}); "
            "give that study's data by --data_dir, or choose another --study"
        )
    there, here = _in_todays_form(was["values"]), files.json_value(record["values"])
    others = differences(there, here)
    if others:
        lines = [
            f"{name}: {former} there, {value} here"
            for name, (former, value) in others.items()
        ]
        raise WorkdirError(
            f"{place.path} holds a study with other values ({'; '.join(lines)}); "
            "go on with that study's values, or choose another --study"
        )


def _in_todays_form(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values of a study with the defaults of fields that it is older than."""
    config = {
        name.removeprefix(_CONFIG_PREFIX): value
        for name, value in values.items()
        if name.startswith(_CONFIG_PREFIX)
    }
    completed = files.json_value(configs.upgrade(config))
    return {**values, **{_CONFIG_PREFIX + name: completed[name] for name in completed}}


class _Process:
    """What one process does for a study: one trial after another."""

    def __init__(
        self, place: Place, trials: Trials, plan: _Plan, limits: Limits
    ) -> None:
        self._place = place
        self._trials = trials
        self._plan = plan
        self._limits = limits

    def to_the_end(self) -> None:
        """Makes trials until a limit is reached."""
        # A killed process may have ended a trial, and done no more.
        with self._place.locked():
            self._write_outcome()
        for trial in self._trials.all():
            if trial.has_ended:
                self._remove_weights(trial)
        if line := self._reached_limit():
            print(line, flush=True)
            return
        while not self._is_late():
            with self._place.locked():
                claimed = self._trials.claim(self._limits.trials, self._values)
            if claimed is None:
                return
            trial, lock = claimed
            with lock:
                if not self._run_to_end(trial):
                    return
                self._end(trial)

    def _run_to_end(self, trial: Trial) -> bool:
        """Trains a trial; returns False if the study's time is up before its end."""
        try:
            self._run(trial)
        except _OutOfTimeError:
            self._trials.worked(trial)
            return False
        except stopping.StoppedError:
            self._trials.worked(trial)
            stopping.say(
                f"trial {trial.number} is saved; the same command goes on with it"
            )
            raise
        return True

    def _reached_limit(self) -> str | None:
        """Returns a line about a limit that earlier commands have reached, or None."""
        done = sum(trial.has_ended for trial in self._trials.all())
        hours, most = self._limits
        if most is not None and done >= most:
            spent = f"{done} trials, and --trials={most}"
        elif self._is_late():
            spent = f"{self._trials.hours():.3g} hours, and --hours={hours:g}"
        else:
            return None
        return f"the study in {self._place.path} has taken {spent}: more of them go on"

    def _is_late(self) -> bool:
        hours = self._limits.hours
        return hours is not None and self._trials.hours() >= hours

    def _run(self, trial: Trial) -> None:
        """Trains a trial to its end, and sets how it ended.

        One that runs out of memory is tried once more: it may be too large, or something else took
        the memory for a moment.

        Raises:
            MemoryError: the trial does not count as failed, since it is the preset itself, or since
                there is no memory without it, either.
        """
        for _ in range(_ATTEMPTS):
            lacking = self._try(trial)
            if lacking is None:
                return
            keras.backend.clear_session()
            gc.collect()
            if trial.number == 0 or resources.is_short():
                raise MemoryError(lacking)
        trial.state, trial.why = FAILED, lacking

    def _try(self, trial: Trial) -> str | None:
        """Trains a trial and sets how it ended; returns what it had no memory for, or None."""
        place, plan = self._place, self._plan
        path = place.trial(trial.number)
        with _log(place.log(trial.number)):
            try:
                config = self._config(trial, path)
                runs.train(
                    lambda: experiments.load(config, plan.data_dir, path),
                    config,
                    path,
                    "none",
                    rules=configs,
                    observe=lambda losses: self._observe(
                        trial, losses, config.training.epochs
                    ),
                    splits=("validation",),
                )
                trial.state, trial.loss = COMPLETE, _loss(path)
            except _HopelessError:
                trial.state = PRUNED
            except NonFiniteLossError as error:
                trial.state, trial.why = PRUNED, str(error)
            except _NO_MEMORY as error:
                return _first_line(error)
            except ValueError as error:
                if trial.number == 0:  # the preset itself
                    raise
                trial.state, trial.why = FAILED, _first_line(error)
        return None

    def _config(self, trial: Trial, path: epath.Path) -> ml_collections.ConfigDict:
        """Returns a trial's config: the one it was begun with, or a new one of its values."""
        if files.exists(path / CONFIG):
            return run_folders.load_config(path)
        plan = self._plan
        if not trial.number and plan.first is not None:
            return plan.first
        values = search.config_values(plan.space, trial.values)
        config = search.apply(plan.config, values)
        if plan.parameters:
            count = experiments.load(config, plan.data_dir, path).parameters
            config = search.sized(config, plan.parameters, count)
        return _measured(plan, config, path)

    def _values(self, trials: Sequence[Trial]) -> search.Values:
        """Returns the values of a new trial: the preset's, or some near those of the best."""
        plan, number = self._plan, len(trials)
        own = search.own(plan.config, plan.space)
        if not number:
            return own
        done = outcome.best_first(trials)
        # Trial 0 of a study that an earlier version began has no values.
        best = own | done[0].values if done else own
        earlier = [trial.values for trial in trials]
        generator = random.Random(f"{plan.config.seed} {number}")
        return search.near(plan.space, best, earlier, generator)

    def _observe(self, trial: Trial, losses: Sequence[float], epochs: int) -> None:
        """Records a trial's losses; raises an error if the trial has to stop."""
        self._trials.observe(trial, losses)
        if len(losses) == epochs:
            return
        if self._trials.is_hopeless(trial):
            raise _HopelessError
        if self._is_late():
            raise _OutOfTimeError

    def _end(self, trial: Trial) -> None:
        """Records how a trial ended, writes the outcome of the study, and prints a line."""
        path = self._place.trial(trial.number)
        run = None
        if files.exists(path / CONFIG):
            config, run = run_folders.load_config(path), read_run(path)
            trial.units, trial.steps = config.model.units, config.training.steps
        with self._place.locked():
            self._trials.end(trial, run and run.run_id)
            self._write_outcome()
        self._remove_weights(trial)
        keras.backend.clear_session()
        print(
            outcome.line(self._trials.all(), trial.number, self._plan.config.task),
            flush=True,
        )

    def _remove_weights(self, trial: Trial) -> None:
        # Weights of 40 trials are gigabytes; those of the best come again from its preset.
        path = self._place.trial(trial.number)
        shutil.rmtree(path / "checkpoints", ignore_errors=True)

    def _write_outcome(self) -> None:
        trials = self._trials.all()
        if any(trial.has_ended for trial in trials):
            outcome.write(
                self._place, self._trials, self._plan.config, self._plan.space
            )


@contextlib.contextmanager
def _log(path: Path) -> Iterator[None]:
    """Appends what is printed to a file, as far as the disk has room: a run needs none of it."""
    with open(path, "a") as log:
        try:
            with contextlib.redirect_stdout(log):
                yield
        finally:
            try:
                log.flush()
            except OSError:
                stopping.abandon(log)


def _is_no_retracing_warning(record: logging.LogRecord) -> bool:
    return "tf.function retracing" not in record.getMessage()


def _loss(path: epath.Path) -> float:
    """Returns the validation loss of a finished run, by the protocol that knows no windows."""
    result = read_result(path, {"scores.validation.exact": dict})
    score = (result or {})["scores"]["validation"]["exact"]
    return score["loss"] if "loss" in score else score["nll"] / score["tokens"]
