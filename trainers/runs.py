"""A run from its config to its result, whatever it trains."""

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import keras
import ml_collections
import tensorflow as tf
from etils import epath
from matplotlib import figure

from trainers import config as configs
from trainers.files import UnreadableError
from trainers.measures import measure_of
from trainers.training import checkpoints, loop, optimizers, schedules
from trainers.training.progress import save_picture
from trainers.training.workdir import (
    RESULT,
    Workdir,
    WorkdirError,
    open_workdir,
    read_config,
    read_result,
)

# What a resumed run may change; none of it changes a step.
MAY_CHANGE = tuple(
    f"training.{field}" for field in ("epochs", "log_every_steps", "checkpoint_every_steps")
)
IMPORTED = "imported.json"  # in a folder of weights that were not trained there
NEED_GPU = ("paper", "released")  # and what is called after them


class Scores(NamedTuple):
    """What a finished run has come to.

    Attributes:
        summary: it in words.
        values: for each split and each protocol its numbers, by name.
        pictures: by the names of their files.
    """

    summary: str
    values: dict[str, dict[str, dict[str, Any]]]
    pictures: Mapping[str, figure.Figure] = MappingProxyType({})


class Experiment(Protocol):
    """What a run trains and measures: data and a model for them."""

    def build(self) -> keras.Model:
        """Returns the model, built; under the strategy's scope."""

    def task(self, model: keras.Model) -> loop.Task:
        """Returns what the loop trains; under the strategy's scope."""

    def keep(self, path: epath.Path) -> None:
        """Binds the folder of a run to its data; raises WorkdirError where it has others."""

    def introduction(self, model: keras.Model) -> str:
        """Returns a line on the data and the model."""

    def score(self, task: loop.Task, check: Callable[[], None]) -> Scores:
        """Scores the model on validation data and, the only time, on test data.

        Args:
            task: what was trained.
            check: to be called in between; raises where the run shall stop.
        """


def train(
    load: Callable[[], Experiment],
    config: ml_collections.ConfigDict,
    path: epath.Path,
    distribute: str | None = None,
) -> None:
    """Trains a run to its end or an interruption; goes on where an earlier call stopped.

    At the end the best model by validation loss is scored, and the test set is read, once. SIGTERM
    and Ctrl-C end it after the step or the second of steps, or the part of loading, building and
    scoring, that is under way.

    Args:
        load: Returns what to train; called after the generators are seeded.
        config: The run's config.
        path: The run's folder.
        distribute: "none", "mirrored"; None: "mirrored" where there is a GPU.

    Raises:
        ValueError, OSError, WorkdirError: The config, the data or the folder cannot be used.
        loop.NonFiniteLossError: The loss is NaN or infinite.
    """
    if (path / IMPORTED).exists():
        raise WorkdirError(
            f"{path} holds imported weights, which training would replace; choose another --workdir"
        )
    with loop.StopSignals() as signals:
        try:
            _train(load, config, path, distribute, signals)
        except loop.StoppedError as stopped:
            print(stopped, flush=True)


def _train(
    load: Callable[[], Experiment],
    config: ml_collections.ConfigDict,
    path: epath.Path,
    distribute: str | None,
    signals: loop.StopSignals,
) -> None:
    loop.make_deterministic(config.seed)
    gpus = tf.config.list_physical_devices("GPU")
    strategy = loop.get_strategy(distribute or ("mirrored" if gpus else "none"))
    experiment = load()
    signals.check()
    with strategy.scope():
        model = experiment.build()
        optimizer = optimizer_of(config)
        task = experiment.task(model)
    schedule = schedules.Schedule(**config.schedule.to_dict())
    with open_workdir(path, config.to_dict(), may_change=MAY_CHANGE) as folder:
        experiment.keep(path)
        if _tell_finished(folder, config):
            return
        print(f"{config.task}, preset {config.preset}, in {path}")
        print(experiment.introduction(model), flush=True)
        if not gpus:
            _advise(config)
        signals.check()
        result = loop.train(
            task,
            optimizer,
            schedule,
            folder,
            clip_norm=config.optimizer.clip_norm,
            strategy=strategy,
            signals=signals,
            **config.training.to_dict(),
        )
        if result.finished:
            with _best_weights(path, task, optimizer, result) as name:
                _finish(folder, name, experiment.score(task, signals.check), result, model)


def load_config(path: epath.Path) -> ml_collections.ConfigDict:
    """Returns the config of the run in a folder."""
    return configs.from_dict(read_config(path))


def facts(path: epath.Path, config: ml_collections.ConfigDict) -> dict[str, str]:
    """Returns what a model card tells of a run: its task, and what it has been measured by.

    Raises:
        UnreadableError: The run's result is damaged.
    """
    told = {"Task": config.task, "Preset": config.preset}
    result, measure = read_result(path, {"scores": dict}), measure_of(config.task)
    try:
        for split, scores in (result["scores"] if result else {}).items():
            score = scores["exact"]
            value = score[measure.name]
            if value is not None:  # it was finite
                text = measure.told(value, measure.count(score))
                told[f"{split.capitalize()} {measure.name}"] = text
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UnreadableError(
            f"{path / RESULT} is damaged: its scores are not those of a run ({error!r})"
        ) from error
    return told


def change(name: str, precision: str, before: str, after: str) -> dict[str, str]:
    """Returns what a model card tells of weights in less precision, after what they change."""
    return {f"{name.capitalize()} in {precision}": f"{after}, in float32 {before}"}


def parameters(model: keras.Model) -> int:
    """Returns the number of trainable parameters."""
    return sum(math.prod(variable.shape) for variable in model.trainable_variables)


def optimizer_of(config: ml_collections.ConfigDict) -> optimizers.Optimizer:
    """Returns the optimizer of a config.

    Raises:
        ValueError: Its name is unknown, a value is out of range, or it cannot average.
    """
    settings = config.optimizer
    if config.schedule.average and settings.name != "sgd":
        raise ValueError(
            "`config.schedule.average` must be False unless `config.optimizer.name` is 'sgd'. "
            f"Received: config.schedule.average=True, config.optimizer.name={settings.name!r}"
        )
    arguments = {"learning_rate": settings.learning_rate, "weight_decay": settings.weight_decay}
    if settings.name == "sgd":
        return optimizers.SGD(**arguments, averages=config.schedule.average)
    if settings.name == "adam":
        return optimizers.Adam(**arguments)
    raise ValueError(
        "`config.optimizer.name` must be 'sgd' or 'adam'. "
        f"Received: config.optimizer.name={settings.name!r}"
    )


def _tell_finished(folder: Workdir, config: ml_collections.ConfigDict) -> bool:
    """Prints the result of a run that has reached its last epoch; returns whether it has."""
    result = folder.result()
    if result is None or result["epochs"] < config.training.epochs:
        return False
    print(f"{folder.path} holds a finished run; more --config.training.epochs would go on")
    print(result["summary"])
    return True


def _advise(config: ml_collections.ConfigDict) -> None:
    if config.preset.startswith(NEED_GPU):
        print(
            f"there is no GPU here, and the preset {config.preset} is made for one; "
            "--preset=small is made for a CPU",
            flush=True,
        )


@contextlib.contextmanager
def _best_weights(
    path: epath.Path,
    task: loop.Task,
    optimizer: optimizers.Optimizer,
    result: loop.Result,
) -> Iterator[str]:
    """Sets the model to the best weights or, where they are lost, the last; yields their name."""
    try:
        checkpoints.load_best(path, task.model)
    except WorkdirError as error:
        print(f"{error}; scoring the weights of the last epoch instead", flush=True)
        with optimizer.evaluation_weights(task.model.trainable_variables):
            yield f"last of epoch {result.epochs}"
    else:
        yield f"best of epoch {result.best_epoch}"


def _finish(
    folder: Workdir, name: str, scores: Scores, result: loop.Result, model: keras.Model
) -> None:
    """Prints and keeps what the weights `name` have come to."""
    summary = f"{name}: {scores.summary}"
    print(summary, flush=True)  # first: it may be that nothing can be written
    for file, picture in scores.pictures.items():
        _keep_picture(picture, folder.path / file)
    kept = {
        "epochs": result.epochs,
        "best_epoch": result.best_epoch,
        "parameters": parameters(model),
        "cost": {name: None if math.isnan(v) else v for name, v in result.cost._asdict().items()},
        "summary": summary,
        "scores": scores.values,
    }
    try:
        folder.finish(kept)
    except OSError as error:
        raise OSError(
            f"the result is not kept in {folder.path} ({error}); the same command scores again"
        ) from error


def _keep_picture(picture: figure.Figure, path: epath.Path) -> None:
    """Writes a picture, or says that it cannot be: the result has its numbers."""
    try:
        save_picture(picture, path)
    except OSError as error:
        print(f"{path} cannot be written ({error}); going on without it", flush=True)
