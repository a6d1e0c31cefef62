"""What the commands that train share: modes and training."""

import functools
import hashlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf
from absl import flags
from etils import epath
from ml_collections import ConfigDict

from trainers.cli import (
    command,
    config_file,
    config_flags,
    ending,
    run_flags,
)
from trainers.data import files, names
from trainers.tasks import config as configs
from trainers.tasks import registry, schema
from trainers.training import cluster, runs, workers
from trainers.training.loop import NonFiniteLossError

FLAGS = flags.FLAGS

_TRAIN, WORKERS = "train", "workers"
# What TensorFlow raises if another worker is gone.
_BROKEN = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.InternalError,
    tf.errors.DeadlineExceededError,
)
_ABOVE = 1000  # from a worker's port for TensorFlow to the chief's for the others

flags.adopt_module_key_flags(run_flags)
flags.adopt_module_key_flags(config_file)
flags.DEFINE_string(
    "mode", "train", "What to do. All modes but `train` take a run as it is."
)
flags.DEFINE_enum(
    "distribute",
    None,
    ("none", "mirrored", WORKERS),
    "How to use several devices: `mirrored` splits each batch over those of this machine, `none` "
    "takes one. `workers` splits it over the processes that TF_CONFIG or Slurm names, each with "
    "its GPUs or one CPU. Default: mirrored if there is a GPU.",
)
flags.DEFINE_integer(
    "workers_port",
    None,
    "The port on which the chief of several workers listens for the others. Default: 1,000 above "
    "its port in TF_CONFIG.",
    lower_bound=1,
    upper_bound=2**16 - 1,
)
flags.DEFINE_float(
    "workers_wait", 300.0, "Seconds until all workers must have come.", lower_bound=0
)
flags.DEFINE_bool(
    "allow_replicas_change",
    False,
    "Go on with a run that had another number of replicas (devices of all workers). Batches stay "
    "the same, and dropout draws other masks from there on.",
)
_FLAG_MODES = {
    "allow_replicas_change": (_TRAIN,),
    "data_dir": (_TRAIN, "evaluate"),
    "config_file": (_TRAIN,),
    "distribute": (_TRAIN,),
    "workers_port": (_TRAIN,),
    "workers_wait": (_TRAIN,),
}


Main = Callable[[list[str]], int]
Parse = Callable[[list[str]], list[str]]
Modes = Mapping[str, Callable[[], int | None]]


def usual_modes(name: str) -> dict[str, Callable[[], int | None]]:
    """Returns what to do in the modes `train` and `evaluate` of a command."""
    score = functools.partial(score_by_flags, name)
    return {_TRAIN: train_by_flags, "evaluate": score}


def program(
    name: str,
    modes: Modes,
    flag_modes: Mapping[str, tuple[str, ...]] | None = None,
    check: Callable[[], None] = lambda: None,
) -> tuple[Main, Parse]:
    """Returns `main` and `parse_flags` of a command that trains.

    Args:
        name: the command's name, as in `Task.program`.
        modes: what to do, by the value of `--mode`; what it returns is the exit status.
        flag_modes: the modes that use a flag, by the name of the command's own flag.
        check: raises ValueError if the command's own flags do not go together.
    """
    tasks = registry.trained_by(name)

    def main(argv: list[str]) -> int:
        return command.exit_status(argv, modes[FLAGS.mode])

    def parse_flags(argv: list[str]) -> list[str]:
        def check_all() -> None:
            _check_mode(modes, {**_FLAG_MODES, **(flag_modes or {})})
            _check_config(argv, tasks)
            run_flags.check_named(tasks)
            if FLAGS.task:
                _check_task(name, FLAGS.task)
            if FLAGS.mode == _TRAIN:
                _check_workers(name)
            check()

        return command.parse(argv, check_all, tasks)

    return main, parse_flags


def _check_config(argv: Sequence[str], tasks: Sequence[str]) -> None:
    """Raises ValueError if the config is wrong, or is given to a run that has one."""
    fields = config_flags.overridden(argv)
    if FLAGS.mode == _TRAIN:
        config_flags.require(FLAGS.task, tasks)
        schema.check(FLAGS.config)
        _check_epochs(FLAGS.config.training, fields)
    elif fields:
        raise ValueError(
            f"--config.{fields[0]} has no use in --mode={FLAGS.mode}: the workdir's config holds"
        )


def _check_epochs(training: Any, given: Sequence[str]) -> None:
    """Raises ValueError if a run's epochs are given alone, and steps are its length."""
    alone = "training.epochs" in given and "training.steps" not in given
    if alone and training.steps:
        raise ValueError(
            f"--config.training.epochs={training.epochs} would change the number of validations, "
            f"not the length of the run, which is config.training.steps={training.steps}; give "
            "--config.training.steps too, where 0 trains for so many epochs"
        )


def _check_workers(program: str) -> None:
    """Raises ValueError if the environment's workers do not go with the flags."""
    if FLAGS.distribute == WORKERS:
        if not registry.get(FLAGS.task).takes_workers:
            raise ValueError(
                f"--distribute must be none or mirrored for {program}. Received: "
                f"--distribute={WORKERS}"
            )
        cluster.from_environment()
        return
    for name in ("workers_port", "workers_wait"):
        if FLAGS[name].present:
            raise ValueError(f"--{name} has no use without --distribute={WORKERS}")
    machines = cluster.machines(os.environ.get("TF_CONFIG"))
    if machines > 1:
        raise ValueError(
            f"TF_CONFIG in the environment names a cluster of {machines} machines, each of which "
            f"would train alone; --distribute={WORKERS} trains on all of them, and without "
            "TF_CONFIG (unset TF_CONFIG) this one trains alone"
        )


def _check_mode(modes: Modes, flag_modes: Mapping[str, tuple[str, ...]]) -> None:
    """Raises ValueError if there is no such mode, or a flag has no use in it."""
    if FLAGS.mode not in modes:
        raise ValueError(names.unknown("--mode", FLAGS.mode, modes))
    for name, its_modes in flag_modes.items():
        if FLAGS[name].present and FLAGS.mode not in its_modes:
            is_seed = name == "seed" and FLAGS.mode == _TRAIN
            hint = "; training takes --config.seed" if is_seed else ""
            others = " and ".join(its_modes)
            raise ValueError(
                f"--{name} has no use in --mode={FLAGS.mode}, only in {others}{hint}"
            )


def _check_task(program: str, task: str) -> None:
    """Raises ValueError if another command trains the task."""
    other = registry.get(task).program
    if other != program:
        raise ValueError(f"--task={task} is one of python -m {other}, not of {program}")


def trained_run(program: str) -> epath.Path:
    """Returns the folder of the run that the flags name, as `run_flags.trained_run` does.

    Raises:
        ValueError: another command trained the run.
    """
    path, config = run_flags.trained_run()
    _check_task(program, config.task)
    return path


def score_by_flags(program: str, **options: Any) -> None:
    """Prints the scores of the run that the flags name, as `evaluate` of its kind does."""
    path, config = run_flags.trained_run()
    _check_task(program, config.task)
    _experiment(config, path).evaluate(path, **options)


def _experiment(config: ConfigDict, path: epath.Path) -> Any:
    """Returns the experiment of a config, whose run is in a folder."""
    part = registry.get(config.task).part("experiment")
    return part.load(config, FLAGS.data_dir, path)


def train_by_flags() -> command.Status:
    """Trains the run that the flags name; returns the exit status."""
    path = run_flags.workdir()
    if FLAGS.distribute != WORKERS:
        return _train(path, workers.ALONE)
    members = cluster.from_environment()
    if len(members.addresses) == 1:
        return _train(path, workers.ALONE)
    try:
        with workers.Team(members, _port(members), FLAGS.workers_wait) as team:
            status = _train_together(path, team)
    except workers.LostError as error:
        status = command.fail(str(error), command.Status.WORKER_LOST)
    return status


def _train(path: epath.Path, team: workers.Alone) -> command.Status:
    if team.is_chief:
        files.check_folder("workdir", path)
    hint = f"checkpoints from before it, if any, are kept in {path}"
    config = FLAGS.config
    distribute = None if FLAGS.distribute == WORKERS else FLAGS.distribute
    try:
        beside = runs.train(
            lambda: _experiment(config, path),
            config,
            path,
            distribute,
            rules=configs,
            team=team,
            allow_replicas_change=FLAGS.allow_replicas_change,
        )
    except NonFiniteLossError as error:
        return command.fail(f"{error}; {hint}", command.Status.NOT_FINITE)
    except workers.LostError:
        raise
    except Exception as error:
        if not (lacking := command.lack_of_memory(error)):
            raise
        return command.fail(
            f"{command.out_of_memory(lacking)}; {hint}", command.Status.REFUSED
        )
    if team.is_chief:
        task = registry.get(FLAGS.config.task)
        lines = (
            *ending.model(FLAGS.config, path),
            *beside,
            *ending.lines(task, path, FLAGS.data_dir),
        )
        print("\n".join(lines), flush=True)
    return command.Status.DONE


def _train_together(path: epath.Path, team: workers.Team) -> command.Status:
    """Trains as one of several workers; tells what they must have in common first."""
    tf.get_logger().setLevel(logging.WARNING)  # it would log each sum that it traces
    team.compare(
        {
            "a program with the digest": _program(),
            "TensorFlow": tf.__version__,
            "Keras": keras.__version__,
            "GPUs": len(tf.config.list_physical_devices("GPU")),
            **names.flatten(FLAGS.config),
        }
    )
    try:
        return _train(path, team)
    except _BROKEN as error:
        # The team's threads find out which worker it was, and end the process.
        team.wait_for_loss()
        raise workers.LostError(
            f"the workers' connection failed: {error.message}"
        ) from error


def _program() -> str:
    """Returns a digest of the source files, since the version's number does not tell them apart."""
    digest = hashlib.sha256()
    for folder in ("configs", "keras_trellis", "trainers"):
        for path in sorted((Path(__file__).parents[2] / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _port(members: cluster.Cluster) -> int:
    """Returns the port on which the chief listens."""
    port = int(members.addresses[0].rpartition(":")[2])
    above = port + _ABOVE if port + _ABOVE < 2**16 else port - _ABOVE
    return FLAGS.workers_port or above
