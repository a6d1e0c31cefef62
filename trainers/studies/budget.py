"""Equal processor time: how many training steps a number of processor seconds buys.

Wall time depends on what else a machine does; the time of its processors does so much less. The
number of steps is measured once and becomes a value of the run's config. So the run stays a
function of its config, however fast the machine is when it goes on.
"""

import statistics
import time

import keras
import ml_collections
import tensorflow as tf

from trainers.sequences.layer import LayerExperiment
from trainers.studies.search import apply
from trainers.training import runs, strategies
from trainers.training.trainer import Trainer

_TIMED_SECONDS = 0.5  # of a measurement
_MEASUREMENTS = 3


def fix_threads(threads: int) -> None:
    """Makes TensorFlow compute on a number of threads; call it before TensorFlow computes.

    Raises:
        RuntimeError: TensorFlow has computed on another number.
    """
    for setting in (
        tf.config.threading.set_intra_op_parallelism_threads,
        tf.config.threading.set_inter_op_parallelism_threads,
    ):
        setting(threads)


def processor_seconds_a_step(
    experiment: LayerExperiment, config: ml_collections.ConfigDict
) -> float:
    """Measures a training step as `stage_seconds` does; returns the mean of a whole run."""
    return statistics.mean(stage_seconds(experiment, config))


def stage_seconds(
    experiment: LayerExperiment, config: ml_collections.ConfigDict
) -> list[float]:
    """Measures a training step: the seconds of all threads of this process.

    Tracing and the first step, which compile, do not count. Nothing else may run in the process.

    Args:
        experiment: what the config trains.
        config: the config of a run.

    Returns:
        the seconds of a step in each stage of the run; stages have equally many steps.
    """
    # A run is deterministic too; other kernels take other times.
    strategies.make_deterministic(config.seed)
    task = experiment.task(experiment.build())
    trainer = runs.make_trainer(config, task, runs.make_optimizer(config))
    parts = len(trainer.stages.arguments)
    seconds = [_measured_stage(trainer, stage) for stage in range(parts)]
    keras.backend.clear_session()
    return seconds


def _measured_stage(trainer: Trainer, stage: int) -> float:
    # The last batch may have another shape.
    most = max(1, trainer.task.steps_per_epoch - 1)
    timed(trainer, 1, stage)
    count = 1
    while (seconds := timed(trainer, count, stage)) < _TIMED_SECONDS and count < most:
        count = min(2 * count, most)
    others = [timed(trainer, count, stage) for _ in range(_MEASUREMENTS - 1)]
    return statistics.median([seconds, *others]) / count


def with_budget(
    experiment: LayerExperiment, config: ml_collections.ConfigDict, seconds: float
) -> ml_collections.ConfigDict:
    """Measures a training step, and returns what `with_steps` does."""
    return with_steps(config, seconds, processor_seconds_a_step(experiment, config))


def with_steps(
    config: ml_collections.ConfigDict, seconds: float, a_step: float
) -> ml_collections.ConfigDict:
    """Returns a config whose run takes a number of processor seconds for its training steps.

    Args:
        config: the config; its `training.epochs` are the run's parts, each with a validation.
        seconds: the processor seconds; validations and the final scores are not counted.
        a_step: the processor seconds of a step.

    Raises:
        ValueError: they do not suffice for one step of each part.
    """
    steps, parts = int(seconds / a_step), config.training.epochs
    if steps < parts:
        raise ValueError(
            f"`seconds` must be at least {parts * a_step:.3g}, for one training step in each of "
            f"config.training.epochs={parts} parts of the run. Received: seconds={seconds:g}"
        )
    return apply(config, {"training.steps": steps})


def timed(trainer: Trainer, count: int, stage: int) -> float:
    """Returns the processor seconds of the first steps of an epoch."""
    batches = trainer.batches(0)
    state = trainer.spread(trainer.task.initial_state())
    began = time.process_time()
    metrics, _ = trainer.steps(batches, state, count, stage)
    metrics["loss"].numpy()  # waits for the steps
    return time.process_time() - began
