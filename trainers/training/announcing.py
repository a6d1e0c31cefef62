"""What a run prints: what it is, what it takes, what to do better, and what came of it."""

import contextlib
import functools
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import ml_collections
import tensorflow as tf
from etils import epath

from trainers.data import terminal
from trainers.training import checkpoints, memory, schedules, variables
from trainers.training.experiment import Experiment
from trainers.training.trainer import Trainer

NEED_GPU = ("paper", "released")  # and the presets whose names begin so
_SIZE, _TRIALS = 256, 5  # of products that take a millisecond each, in half precision
_MUCH_SLOWER = 1.5  # below it is the noise of two short timings


class Rules(Protocol):
    """What a run asks of the fields of its config; `trainers.tasks.config` answers."""

    def check(self, config: Any) -> None:
        """Raises ValueError if a field is wrong."""

    def may_change(self, config: Any) -> list[str]:
        """Returns the dotted names of the fields that a run may change when it goes on."""

    def upgrade(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Returns what a folder keeps of a config, by dotted names, in today's form."""

    def presets(self, task: str) -> list[ml_collections.ConfigDict]:
        """Returns the configs of all presets of a task."""

    def network(self, config: ml_collections.ConfigDict) -> str:
        """Returns in words the network that a config trains."""


def line(text: str) -> None:
    """Prints a line, or some."""
    print(text, flush=True)


def scores(summary: str) -> None:
    """Prints a summary of scores as a person reads it: in a terminal a line for each split."""
    summary = terminal.text(summary)
    line(summary.replace("; ", ";\n  ") if sys.stdout.isatty() else summary)


def finished(
    path: epath.Path,
    config: ml_collections.ConfigDict,
    result: dict[str, Any],
    store: checkpoints.Checkpoints,
) -> None:
    """Prints the result of a finished run, and why it has finished or how it would go on."""
    stopped = schedules.stopped(result, config.schedule.stop_after)
    if result.get("solved"):
        share = config.schedule.stop_at
        why = f"at least {share:.0%} of its validation answers are right"
    elif stopped:
        epochs = config.schedule.stop_after
        why = f"its validation loss did not fall for {epochs} epochs"
    elif config.training.steps:
        why = f"its {config.training.steps:,} steps are done"
    else:
        why = _continuation(store)
    line(f"{path} holds a finished run; {why}")
    scores(result["summary"])


def introduce(
    experiment: Experiment,
    trainer: Trainer,
    config: ml_collections.ConfigDict,
    path: epath.Path,
    rules: Rules,
    advice: Sequence[str],
) -> None:
    """Prints what is trained where, what it takes, and the advice."""
    has_gpu = bool(tf.config.list_physical_devices("GPU"))
    model = trainer.task.model
    lines = [
        f"{rules.network(config)}; {variables.parameters(model):,} parameters",
        f"{config.task}, preset {config.preset}, in {path}",
        experiment.introduction(model),
        memory.format_need(experiment.need(config), has_gpu),
        *trainer.stages.lines,
        *advice,
    ]
    line("\n".join(filter(None, lines)))


def advice(
    config: ml_collections.ConfigDict, experiment: Experiment, rules: Rules
) -> list[str]:
    """Returns advice on memory, preset and speed, for a machine without a GPU."""
    presets = functools.partial(rules.presets, config.task)
    warning = memory.check_training(config, experiment.need, presets)
    lines = [warning] if warning else []
    if config.preset.startswith(NEED_GPU):
        lines.append(
            f"there is no GPU here, and the preset {config.preset} is made for one; "
            "--preset=small is made for a CPU"
        )
    lines += experiment.advice()
    half = config.model.get("dtype") == "mixed_bfloat16"
    if half and (times := slowdown()) > _MUCH_SLOWER:
        lines.append(
            f"products in bfloat16 take {times:.1f} times as long as in float32 on this "
            "processor; try --config.model.dtype=float32"
        )
    return lines


def _continuation(store: checkpoints.Checkpoints) -> str:
    if store.newest() is not None:
        return "more --config.training.epochs would go on"
    state = "can be read" if store.steps() else "is left"
    return f"no checkpoint in {store.folder} {state}, to go on from"


@contextlib.contextmanager
def going_on_without(path: epath.Path) -> Iterator[None]:
    """Prints why a picture cannot be written; a run loses no number with it."""
    try:
        yield
    except (OSError, tf.errors.OpError) as error:
        print(f"{path} cannot be written ({error}); going on without it", flush=True)


def slowdown() -> float:
    """Returns how many times as long a product takes in bfloat16 as in float32.

    A processor with instructions for bfloat16 takes about half as long, one without them several
    times as long.
    """
    half, single = map(_seconds, (tf.bfloat16, tf.float32))
    return half / single


def _seconds(dtype: tf.DType) -> float:
    """Returns the least time of a product."""
    matrix = tf.ones([_SIZE, _SIZE], dtype)
    seconds = []
    for _ in range(_TRIALS):
        began = time.perf_counter()
        tf.matmul(matrix, matrix).numpy()
        seconds.append(time.perf_counter() - began)
    return min(seconds)
