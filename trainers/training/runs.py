"""A run from its config to its result, whatever it trains."""

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import keras
import ml_collections
import tensorflow as tf
from etils import epath

from trainers import optimizers
from trainers.data.files import exists
from trainers.training import (
    announcing,
    checkpoints,
    followers,
    loop,
    schedules,
    stopping,
    strategies,
    variables,
    workers,
)
from trainers.training.experiment import Experiment, Scores
from trainers.training.progress import save_picture
from trainers.training.trainer import Task, Trainer
from trainers.training.workdir import (
    NotKeptError,
    Workdir,
    WorkdirError,
    check_epochs,
    open_workdir,
    refuse_other_run,
)

IMPORTED = "imported.json"  # is in a folder whose weights were not trained there


def train(
    load: Callable[[], Experiment],
    config: ml_collections.ConfigDict,
    path: epath.Path,
    distribute: str | None = None,
    *,
    rules: announcing.Rules,
    observe: loop.Observe | None = None,
    splits: Sequence[str] | None = None,
    team: workers.Alone = workers.ALONE,
    allow_replicas_change: bool = False,
) -> tuple[str, ...]:
    """Trains a run to its end or an interruption; continues where an earlier call stopped.

    At the end it scores the model with the best validation loss, and reads the test set once, if at
    all. A signal or a closed output ends it after the current call of steps, about a second.

    Args:
        load: returns what to train; called after the generators are seeded.
        config: the run's config.
        path: the run's folder.
        distribute: "none" or "mirrored". Default: "mirrored" if there is a GPU.
        rules: those of the config's fields, `trainers.tasks.config`.
        observe: as for `loop.fit`. Default: the experiment's own.
        splits: the splits to score, of those of the data. Default: all of them, without the test
            data if `config.evaluation.test` is False.
        team: the workers that train together; the chief alone prints and writes.
        allow_replicas_change: as for `Trainer`.

    Returns:
        `Scores.beside` of the run; () for other workers than the chief.

    Raises:
        workers.LostError: another worker has ended.
        ValueError, OSError, WorkdirError: the config, the data or the folder cannot be used.
        loop.NonFiniteLossError: the loss is NaN or infinite.
        NotKeptError: the result could not be written.
        stopping.StoppedError: a signal came, and everything is saved.
    """
    rules.check(config)
    opened = _opened(path, config, team, rules)
    signals = stopping.StopSignals(shared=team.count > 1)
    team.watch(signals)
    beside: tuple[str, ...] = ()
    with signals.output():
        experiment, trainer, advice = _prepare(
            load, config, distribute, signals.check, team, rules
        )
        trainer.allow_replicas_change = allow_replicas_change
        with opened as folder:
            if team.is_chief:
                experiment.keep(path)
            if not team.agree(team.is_chief and _has_finished(folder, config)):
                if team.is_chief:
                    announcing.introduce(
                        experiment, trainer, config, path, rules, advice
                    )
                signals.check()
                beside = _fit_and_score(
                    experiment, trainer, folder, config, signals, observe, splits
                )
            elif team.is_chief:
                # Earlier versions kept none.
                beside = tuple((folder.result() or {}).get("beside") or ())
    signals.check()  # the output may have closed at the last line
    return beside


def _opened(
    path: epath.Path,
    config: ml_collections.ConfigDict,
    team: workers.Alone,
    rules: announcing.Rules,
) -> contextlib.AbstractContextManager:
    """Returns the context of the run's folder, which the chief alone has.

    It refuses a folder of another run at once, before the data are loaded, and again when it has
    locked the folder.
    """
    if not team.is_chief:
        return contextlib.nullcontext(followers.NoWorkdir())
    if exists(path / IMPORTED):
        raise WorkdirError(
            f"{path} holds imported weights, which training would replace; choose another --workdir"
        )
    values, may_change = config.to_dict(), rules.may_change(config)
    refuse_other_run(path, values, may_change, rules.upgrade)
    return open_workdir(path, values, may_change=may_change, upgrade=rules.upgrade)


def _prepare(
    load: Callable[[], Experiment],
    config: ml_collections.ConfigDict,
    distribute: str | None,
    check: Callable[[], None],
    team: workers.Alone,
    rules: announcing.Rules,
) -> tuple[Experiment, Trainer, list[str]]:
    """Loads the data and builds the model; calls `check` in between.

    Returns:
        what the run measures, what trains it, and advice for the user.
    """
    strategies.make_deterministic(config.seed)
    has_gpu = bool(tf.config.list_physical_devices("GPU"))
    strategy = strategies.get_strategy(
        distribute or ("mirrored" if has_gpu else "none"), team.cluster
    )
    experiment = load()
    if team.count > 1:
        team.compare(experiment.checksums())
    experiment.check_replicas(strategy.num_replicas_in_sync)
    check()
    # With a GPU the model is in its memory, which TensorFlow does not report beforehand.
    advice = [] if has_gpu else announcing.advice(config, experiment, rules)
    with strategy.scope():
        model = experiment.build()
        optimizer = make_optimizer(config)
        task = experiment.task(model)
    return experiment, make_trainer(config, task, optimizer, strategy, team), advice


def make_trainer(
    config: ml_collections.ConfigDict,
    task: Task,
    optimizer: optimizers.Optimizer,
    strategy: tf.distribute.Strategy | None = None,
    team: workers.Alone = workers.ALONE,
) -> Trainer:
    """Returns the trainer of a config; call it before a graph of the model is built."""
    strategies.allow_rewrites(task.allows_rewrites)
    return Trainer(
        task,
        optimizer,
        clip_norm=config.optimizer.clip_norm,
        strategy=strategy,
        usual_steps=config.data.window if schedules.draws_lengths(config) else None,
        team=team,
        jit_compile=config.training.jit_compile,
    )


def _fit_and_score(
    experiment: Experiment,
    trainer: Trainer,
    folder: Workdir,
    config: ml_collections.ConfigDict,
    signals: stopping.StopSignals,
    observe: loop.Observe | None,
    splits: Sequence[str] | None,
) -> tuple[str, ...]:
    """Returns `Scores.beside`; () for other workers than the chief."""
    training = config.training
    result = loop.fit(
        trainer,
        schedules.make_schedule(config),
        folder,
        epochs=training.epochs,
        steps=schedules.length(training, trainer.task.steps_per_epoch),
        log_every_steps=training.log_every_steps,
        checkpoint_every_steps=training.checkpoint_every_steps,
        signals=signals,
        observe=observe or experiment.observe,
    )
    if not result.finished:
        raise signals.error()
    if not trainer.team.is_chief:
        return ()
    model = trainer.task.model
    validated = "validation" in experiment.splits
    name = _take_best(folder.path, model, result, "best" if validated else "last")
    if not validated:
        name += ", without validation data"
    # What has no sequence layer has no such field.
    reads_test = config.get("evaluation", {}).get("test", True)
    usual = [split for split in experiment.splits if reads_test or split != "test"]
    scores = experiment.score(trainer.task, signals.check, splits or usual)
    _finish(folder, name, scores, result, model)
    return scores.beside


def make_optimizer(config: ml_collections.ConfigDict) -> optimizers.Optimizer:
    """Returns the optimizer of a config."""
    return optimizers.OPTIMIZERS[config.optimizer.name].from_run_config(
        config,
        steps=schedules.cosine_steps(config),
        scales=schedules.draws_lengths(config),
    )


def _has_finished(folder: Workdir, config: ml_collections.ConfigDict) -> bool:
    """Returns whether a run has reached its last epoch, and has its result printed.

    Raises:
        WorkdirError: the run is finished, and the config asks for fewer epochs or other values.
    """
    result, epochs = folder.result(), config.training.epochs
    former, _ = folder.pending.get("training.epochs", (epochs, epochs))
    if result is None:
        return False
    stopped = schedules.stopped(result, config.schedule.stop_after)
    if result["epochs"] < max(former, epochs) and not stopped:
        return False
    _refuse_changes(folder, result["epochs"], epochs)
    announcing.finished(folder.path, config, result, _finished_store(folder))
    return True


def _finished_store(folder: Workdir) -> checkpoints.Checkpoints:
    """Returns the checkpoints of a finished run; raises WorkdirError without its best weights."""
    run_id = folder.run.run_id
    store = checkpoints.Checkpoints(folder.path / "checkpoints", run_id=run_id)
    best = store.folder / checkpoints.BEST
    try:
        checkpoints.refuse_others(best, checkpoints.load_arrays(best), run_id)
    except WorkdirError as error:
        raise WorkdirError(
            f"{folder.path} holds the result of a finished run, and not its trained weights: "
            f"{error}. Bring them back from a backup, or choose another --workdir"
        ) from error
    return store


def _refuse_changes(folder: Workdir, done: int, epochs: int) -> None:
    """Raises WorkdirError if a config changes what a finished run has done."""
    check_epochs(folder.path, done, epochs)
    if fields := [field for field in folder.pending if field != "training.epochs"]:
        names = ", ".join(f"`config.{field}`" for field in fields)
        raise WorkdirError(
            f"{folder.path} holds a finished run, in which {names} can change nothing any more; "
            f"give the value that it had, or more --config.training.epochs than {done}"
        )


def _take_best(
    path: epath.Path, model: keras.Model, result: loop.Result, chosen: str
) -> str:
    """Sets the model to the best weights there are; returns their name, `chosen` at best."""
    weights = result.unsaved and result.unsaved.store.unwritten_best
    if weights:
        announcing.line("scoring the best weights from memory: they are not on disk")
        variables.assign(variables.model_variables(model), weights)
    else:
        checkpoints.load_best(path, model)
    if not result.lost_epoch:
        return f"{chosen} of epoch {result.best_epoch}"
    name = "last" if result.best_epoch == result.epochs else "best that is left"
    return f"{name} of epoch {result.best_epoch}"


def _finish(
    folder: Workdir, name: str, scores: Scores, result: loop.Result, model: keras.Model
) -> None:
    """Prints and writes the scores of the weights `name`."""
    summary = f"{name}: {scores.summary}"
    announcing.scores(summary)  # first, since writing may fail
    if result.unsaved:
        result.unsaved.save()
    for file, picture in scores.pictures.items():
        path = folder.path / file
        folder.check_held()
        with announcing.going_on_without(path):
            save_picture(picture, path)
    record = _record(summary, scores, result, model)
    try:
        folder.finish(record)
    except (OSError, tf.errors.OpError) as error:
        raise NotKeptError(
            f"the run has not finished: the result is not kept in {folder.path} ({error}); "
            "make room, and the same command scores again"
        ) from error


def _record(
    summary: str, scores: Scores, result: loop.Result, model: keras.Model
) -> dict[str, Any]:
    """Returns what `result.json` holds; JSON has no NaN."""
    cost = result.cost._asdict()
    solved = {"solved": True} if result.solved else {}
    return {
        "epochs": result.epochs,
        "best_epoch": result.best_epoch,
        **solved,
        "parameters": variables.parameters(model),
        "cost": {name: None if math.isnan(v) else v for name, v in cost.items()},
        "summary": summary,
        "scores": scores.values,
        "beside": scores.beside,
    }
