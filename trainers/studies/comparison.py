"""A comparison: several models on several tasks, with equal parameters in equal processor time.

The folder has an ordinary run for each task, model and seed, in TASK/MODEL/SEED. TASK/plan.json
holds what all runs of a task share, so that each run is a function of the folder. Any number of
processes may work in one folder: each takes runs that no other has.
"""

import math
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import IO, Any, NamedTuple

import ml_collections
from etils import epath

from trainers.data import files
from trainers.data.names import flatten, nested, unknown
from trainers.models.layers import TRELLIS
from trainers.sequences.layer import LayerExperiment
from trainers.studies import budget, experiments, places, search, streaming, study
from trainers.tasks import config as configs
from trainers.tasks import registry, schema
from trainers.training import hold, schedules, stopping
from trainers.training.workdir import RESTORE, RESULT, WorkdirError, read_record

FIRST = "trellis"
MODELS = (FIRST, "lstm", "gru", "tcn", "transformer", "skip_lstm", "sru")
TOLERANCE = 0.01  # of the number of parameters
_PLAN = "plan.json"
# The settings that a plan was made from, beside a task's seconds and configs.
_OF_PLAN = (
    *("models", "preset", "parameters", "trials", "validations", "threads"),
    "patience",
)
_POLL = 1.0  # seconds between two looks at another process's lock
_FAILURES = (2, 3)  # exit statuses of a run: it is refused, or its loss is not finite


class Settings(NamedTuple):
    """What to compare.

    Attributes:
        tasks: names of tasks.
        models: names of layers; the others are compared with the first.
        seeds: how many runs each model has on each task.
        seconds: the processor seconds of a run's training steps, one for each task.
        preset: the preset of each task that settings begin with.
        parameters: the number of parameters; None: that of the first model's preset.
        trials: how many trials tune each model on each task; 0: none.
        validations: how many validations a run has, and a trial.
        threads: how many threads TensorFlow computes on.
        data_dir: the folder of the tasks' data files.
        given: configs that replace presets, by task and model.
        patience: after how many validations without a better loss a run ends, and `seconds` are
            the most it takes; None: runs take all of `seconds`.
    """

    tasks: Sequence[str]
    models: Sequence[str]
    seeds: int
    seconds: Sequence[float]
    preset: str
    parameters: int | None
    trials: int
    validations: int
    threads: int
    data_dir: str | None
    given: Mapping[tuple[str, str], ml_collections.ConfigDict]
    patience: int | None = None


class Model(NamedTuple):
    """What all runs of a model on a task share.

    Attributes:
        config: its config, but for the seed.
        parameters: its number of parameters.
        step_seconds: processor seconds of a training step in each stage of a run.
        token_seconds: processor seconds of a step when sequences are streamed.
    """

    config: ml_collections.ConfigDict
    parameters: int
    step_seconds: Sequence[float]
    token_seconds: float

    def seconds(self, step: int) -> float:
        """Returns the processor seconds of the first steps of a run."""
        return schedules.total_cost(self.step_seconds, step, self.config.training.steps)


Plan = dict[str, Model]
"""The models of a task by their names."""


def check_names(what: str, names: Sequence[str], known: Sequence[str]) -> None:
    """Raises ValueError if names are unknown, or one is there twice, or there is none."""
    for name in names:
        if name not in known:
            raise ValueError(unknown(what, name, known))
    if not names or len(set(names)) < len(names):
        raise ValueError(
            f"{what} must have names, each once. Received: {what}={','.join(names)}"
        )


def starting_config(
    settings: Settings, task: str, model: str
) -> ml_collections.ConfigDict:
    """Returns the config that a model begins with, before its size and its time are set.

    Raises:
        ValueError: the preset is unknown, or its layer is not in `TRELLIS`, or the task has no
            settings for the model; or a config that replaces the preset is not valid.
    """
    if given := settings.given.get((task, model)):
        schema.check(given)
        return given
    config = configs.load(task, settings.preset)
    if config.model.layer not in TRELLIS:
        raise ValueError(
            "--preset must have the layer 'trellis' or 'equilibrium'. "
            f"Received: --preset={settings.preset}, whose layer is {config.model.layer!r}"
        )
    return config if model == FIRST else beside(config, model)


def beside(config: ml_collections.ConfigDict, model: str) -> ml_collections.ConfigDict:
    """Returns the config of a layer beside a trellis network's, with its task's changes for it.

    Raises:
        ValueError: the task has no settings for the layer.
    """
    baselines = registry.get(config.task).baselines
    if model not in baselines:
        raise ValueError(
            f"--models={model} has no settings to begin with on --task={config.task}, which has "
            f"them for {', '.join(baselines) or 'none'}; give a config of its own by --config_files"
        )
    return search.apply(config, flatten(baselines[model]))


def equal(
    starts: Mapping[str, ml_collections.ConfigDict],
    count: Any,
    parameters: int | None,
    given: Collection[str] = (),
) -> tuple[int, dict[str, ml_collections.ConfigDict]]:
    """Gives all models nearly one number of parameters.

    Without a number it is near that of the first model, which then stays as it is: the nearest one
    from which no model is further away than `TOLERANCE`.

    Args:
        starts: the models' configs by name.
        count: returns the number of parameters of a config's model.
        parameters: the number of parameters, or None.
        given: models whose settings are the user's own, such as those of trials: they come as near
            as their units allow, however far away that is.

    Returns:
        the number, and configs with other `model.units`.

    Raises:
        ValueError: a model cannot be made as large.
    """
    first = next(iter(starts))
    own, fixed = parameters or count(starts[first]), None if parameters else first
    sized = _all_sized(starts, own, count, fixed)
    numbers = [own]
    if not parameters:
        numbers += _bounds(own, map(count, sized.values()))
    for number in numbers:
        resized = _all_sized(starts, number, count, fixed)
        if all(
            name in given or abs(count(config) - number) <= TOLERANCE * number
            for name, config in resized.items()
        ):
            return number, resized
    worst = max(sized, key=lambda name: abs(count(sized[name]) - own))
    raise ValueError(
        f"{worst} of --task={sized[worst].task} cannot be made as large as {own:,} parameters: "
        f"config.model.units={sized[worst].model.units} comes nearest, with "
        f"{count(sized[worst]):,}; choose another number by --parameters, or other --models"
    )


def _bounds(own: int, sizes: Iterable[int]) -> list[int]:
    """Returns the numbers of which a size is just within the tolerance, those nearest to `own`."""
    numbers = set()
    for size in sizes:  # |size - number| <= TOLERANCE * number, solved for the number
        numbers |= {
            math.ceil(size / (1 + TOLERANCE)),
            math.floor(size / (1 - TOLERANCE)),
        }
    return sorted(numbers, key=lambda number: abs(number - own))


def _all_sized(
    starts: Mapping[str, ml_collections.ConfigDict],
    parameters: int,
    count: Any,
    fixed: str | None,
) -> dict[str, ml_collections.ConfigDict]:
    """Returns the configs of a size; that of the name `fixed` stays as it is."""
    sized = dict(starts)
    for name, config in starts.items():
        if name == fixed:
            continue
        try:
            sized[name] = search.sized(config, parameters, count)
        except ValueError as error:
            raise ValueError(f"{name} of --task={config.task}: {error}") from error
    return sized


def compare(path: epath.Path, settings: Settings) -> tuple[dict[str, Plan], int]:
    """Plans a comparison, and trains what no other process trains, until all is trained.

    Args:
        path: the folder.
        settings: what to compare.

    Returns:
        the plan of each task, and 0 or the exit status of a run that has not finished.

    Raises:
        ValueError, OSError, WorkdirError: something cannot be used; nothing has been trained.
        stopping.StoppedError: a signal came; the same command goes on.
    """
    budget.fix_threads(settings.threads)
    pairs = zip(settings.tasks, settings.seconds, strict=True)
    tasks = [_Task(path, settings, name, seconds) for name, seconds in pairs]
    # All sizes first: nothing is tuned where a model cannot be made as large.
    sized = [task.sized_models() for task in tasks]
    plans = {}
    for task, models in zip(tasks, sized, strict=True):
        plans[task.name] = task.plan(models)
    left = [
        (path / task / name, seed, model)
        for seed in range(settings.seeds)
        for task, plan in plans.items()
        for name, model in plan.items()
    ]
    return plans, _train_all(left, settings)


def _train_all(left: list[tuple[epath.Path, int, Model]], settings: Settings) -> int:
    """Trains runs, or waits while others do; returns 0 or the status of one that failed."""
    failed, waiting = 0, _Waiting()
    while left:
        elsewhere = []
        for folder, seed, model in left:
            status = _run(folder, seed, model, settings)
            if status is None:
                elsewhere.append((folder, seed, model))
            failed = max(failed, status or 0)
        if elsewhere == left:
            waiting.poll(f"other processes train {len(left)} runs; waiting")
        left = elsewhere
    return failed


def _data_dir(task: str, settings: Settings) -> str | None:
    return settings.data_dir if registry.get(task).reads_files else None


# The plan


class _Task:
    """A task of a comparison, with the folder of its plan and its runs.

    Args:
        path: the folder of the comparison.
        settings: what to compare.
        name: the name of the task.
        seconds: the processor seconds of a run's training steps.
    """

    def __init__(
        self, path: epath.Path, settings: Settings, name: str, seconds: float
    ) -> None:
        self.name = name
        self._path = path / name
        self._settings, self._seconds = settings, seconds
        self._given = {
            model: config
            for (task, model), config in settings.given.items()
            if task == name and model in settings.models
        }
        self._record = self._made_from()

    def _made_from(self) -> dict[str, Any]:
        """Returns what the plan is made from."""
        shared = {name: getattr(self._settings, name) for name in _OF_PLAN}
        given = {
            name: _upgraded(config.to_dict()) for name, config in self._given.items()
        }
        record = {**shared, "seconds": self._seconds, "config_files": given}
        return files.json_value(record)

    def sized_models(self) -> tuple[int, dict[str, ml_collections.ConfigDict]] | None:
        """Returns the number of parameters and the models' configs; None where a plan has them."""
        if self._read() is not None:
            return None
        settings = self._settings
        starts = {
            name: starting_config(settings, self.name, name) for name in settings.models
        }
        loaded = [self.load(config) for config in starts.values()]
        return equal(starts, loaded[0].parameters, settings.parameters, self._given)

    def load(self, config: ml_collections.ConfigDict) -> LayerExperiment:
        """Returns what a config trains."""
        return experiments.load(
            config, _data_dir(self.name, self._settings), self._path
        )

    def _read(self) -> Plan | None:
        """Returns the plan in the folder, or None.

        Raises:
            WorkdirError: it is damaged, or was made from another record.
        """
        folder = self._path
        saved = read_record(folder / _PLAN, {"record": dict, "models": dict})
        if saved is None:
            return None
        former = _in_todays_form(saved["record"])
        for name, value in self._record.items():
            if (was := former.get(name)) != value:
                raise WorkdirError(
                    f"{folder} holds a comparison with another --{name}: {was} there, {value} "
                    "here; give that value, or choose another --output"
                )
        try:
            plan = {}
            for name, fields in saved["models"].items():
                config = configs.from_dict(fields["config"])
                plan[name] = Model(**{**fields, "config": config})
            return plan
        except (TypeError, KeyError, ValueError) as error:
            restore = RESTORE.replace("--workdir", "--output")
            raise WorkdirError(
                f"{folder / _PLAN} is damaged: {error}. {restore}"
            ) from error

    def plan(
        self, sized: tuple[int, dict[str, ml_collections.ConfigDict]] | None
    ) -> Plan:
        """Returns the plan; tunes and measures the models if there is none yet.

        Args:
            sized: from `sized_models`.
        """
        if sized is not None and self._settings.trials:
            sized = sized[0], self._tuned(*sized)
        with _waited_for(self._path / f".{_PLAN}.lock"):
            plan = self._read()
            if plan is None:
                assert sized is not None
                plan = self.measured(sized[1])
                models = {}
                for name, model in plan.items():
                    models[name] = {**model._asdict(), "config": model.config.to_dict()}
                content = {"record": self._record, "models": models}
                files.write_json(self._path / _PLAN, content)
        return plan

    def _tuned(
        self, parameters: int, starts: Mapping[str, ml_collections.ConfigDict]
    ) -> dict[str, ml_collections.ConfigDict]:
        """Returns the best config of each model's trials; makes those that are missing."""
        best: dict[str, ml_collections.ConfigDict] = {}
        studies = self._path / "studies"
        while len(best) < len(starts):
            for name in [name for name in starts if name not in best]:
                if lock := places.lock(studies / f".{name}.lock"):
                    with lock:
                        self._tune(studies / name, starts[name], parameters)
                        best[name] = study.best(studies / name)
            if len(best) < len(starts):  # another process has the others
                time.sleep(_POLL)
        return {name: best[name] for name in starts}

    def _tune(
        self, place: epath.Path, start: ml_collections.ConfigDict, parameters: int
    ) -> None:
        settings = self._settings
        if study.ended(place, settings.trials):
            return
        print(
            f"{self.name}, {start.model.layer}: {settings.trials} trials in {place}",
            flush=True,
        )
        shared = study.Settings(
            config=_in_parts(start, settings),
            data_dir=_data_dir(self.name, settings),
            seconds=self._seconds,
            parameters=parameters,
            threads=settings.threads,
        )
        study.tune(place, shared, study.Limits(trials=settings.trials))

    def measured(self, starts: Mapping[str, ml_collections.ConfigDict]) -> Plan:
        """Measures the models one after the other in this process."""
        plan, tokens = {}, {}
        for name, start in starts.items():
            experiment = self.load(start)
            parts = _in_parts(start, self._settings)
            took = budget.stage_seconds(experiment, parts)
            a_step = statistics.mean(took)
            config = budget.with_steps(parts, self._seconds, a_step)
            tokens[name] = experiment.streamed(streaming.STEPS)
            plan[name] = Model(config, experiment.parameters(config), took, 0.0)
            print(
                f"{self.name}, {name}: {plan[name].parameters:,} parameters, "
                f"{config.training.steps:,} steps of {1e3 * a_step:.3g} ms",
                flush=True,
            )
        costs = streaming.measure(tokens)
        return {
            name: model._replace(token_seconds=costs[name])
            for name, model in plan.items()
        }


def _in_todays_form(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the record of any release's plan, without what its configs had for nobody."""
    given = record.get("config_files")
    if not isinstance(given, Mapping):
        return record
    given = {
        name: _upgraded(config) if isinstance(config, Mapping) else config
        for name, config in given.items()
    }
    return {**record, "config_files": files.json_value(given)}


def _upgraded(config: Mapping[str, Any]) -> dict[str, Any]:
    return nested(configs.upgrade(flatten(config)))


def _in_parts(
    config: ml_collections.ConfigDict, settings: Settings
) -> ml_collections.ConfigDict:
    """Returns a config with the comparison's number of validations, and its end."""
    parts, patience = settings.validations, settings.patience
    changes: dict[str, Any] = {"training.steps": parts, "training.epochs": parts}
    changes["evaluation.test"] = True
    if patience:
        changes["schedule.stop_after"] = patience
        # Where a run may end at any validation, no cosine fits: the rate halves at plateaus, which
        # come before the end.
        changes["schedule.patience"] = max(1, patience // 3)
        changes["schedule.factor"] = 0.5
        changes["schedule.epochs"] = ()
    return search.apply(config, changes)


# Runs


def _run(folder: epath.Path, seed: int, model: Model, settings: Settings) -> int | None:
    """Trains a run to its end in a process of its own.

    Returns:
        0, or the exit status of a run that cannot be finished; None if another process has it.

    Raises:
        WorkdirError: the command of the run failed in another way.
    """
    workdir, config = folder / f"{seed}", model.config
    lock = places.lock(folder / f".{seed}.lock")
    if lock is None:
        return None
    with lock:
        _wait_for(workdir)
        if files.exists(workdir / RESULT):
            return 0
        file, log = folder / "config.json", folder / f"{seed}.log"
        files.write_json(
            file, config.to_dict()
        )  # an earlier release may have left another
        title = f"{config.task}, {config.model.layer}, seed {seed}"
        print(f"{title}: in {workdir}", flush=True)
        line = training_command(config, file, seed, workdir, settings)
        status = _train(line, log, settings.threads)
    if status in _FAILURES:
        print(f"{title}: not finished; {log} says why", flush=True)
    elif status:
        raise WorkdirError(
            f"{shlex.join(line[2:])} ended with exit status {status}; "
            f"{log} says why, and the same command goes on"
        )
    return status


def _wait_for(workdir: epath.Path) -> None:
    """Waits for a run that an earlier process began, if it is still at work."""
    waiting = _Waiting()
    while process := hold.holder(workdir):
        waiting.poll(f"process {process} is at work in {workdir}; waiting for it")


def training_command(
    config: ml_collections.ConfigDict,
    file: epath.PathLike,
    seed: int,
    workdir: epath.PathLike,
    settings: Settings,
) -> list[str]:
    """Returns the command of a run, after `python`."""
    line = ["-m", registry.get(config.task).program, f"--config_file={file}"]
    line += [f"--config.seed={seed}", f"--workdir={workdir}"]
    data_dir = _data_dir(config.task, settings)
    return line if data_dir is None else [*line, f"--data_dir={data_dir}"]


def _train(line: Sequence[str], log: epath.Path, threads: int) -> int:
    """Runs a command with its output in a file; returns its exit status."""
    names = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS")
    with open(log, "a") as output, stopping.ending_with_this() as arguments:
        arguments["env"].update(dict.fromkeys(names, str(threads)))
        process = subprocess.Popen(
            [sys.executable, *line],
            stdout=output,
            stderr=subprocess.STDOUT,
            **arguments,
        )
        try:
            return process.wait()
        except BaseException:  # a signal; the run saves what it has
            process.terminate()
            process.wait()
            raise


def _waited_for(path: epath.Path) -> IO[str]:
    """Waits for a file's lock; returns the open file that holds it."""
    waiting = _Waiting()
    while (lock := places.lock(path)) is None:
        waiting.poll(f"another process plans in {path.parent}; waiting for it")
    return lock


class _Waiting:
    """Waits for other processes, and says so once."""

    _announced = False

    def poll(self, line: str) -> None:
        """Prints the line if it is the first one; waits a little."""
        if not self._announced:
            print(line, flush=True)
        self._announced = True
        time.sleep(_POLL)
