"""What a run goes on from: its checkpoint, its best weights, and changed values of its config."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from etils import epath

from trainers import optimizers
from trainers.data.files import exists
from trainers.training import checkpoints, followers, progress, workers
from trainers.training.run_state import RunState, saved_replicas
from trainers.training.trainer import Trainer
from trainers.training.workdir import RESULT, Change, Workdir, WorkdirError

Store = checkpoints.Checkpoints | followers.NoCheckpoints

_RATE = "optimizer.learning_rate"  # a change of this field sets a variable


def restore(
    trainer: Trainer, state: RunState, store: Store, checkpoint: workers.Step
) -> None:
    """Sets the state of a run to that of a checkpoint, and compares the best weights with it.

    Raises:
        WorkdirError: the checkpoint is of another model, or of another number of replicas.
    """
    step, arrays = checkpoint
    try:
        _check_replicas(trainer, arrays, store.folder.parent)
        state.restore(step, arrays)
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise WorkdirError(
            f"the checkpoint of step {step} in {store.folder} is not one of "
            f"this model: {error}; choose another --workdir"
        ) from error
    compare_best(state, store)


def _check_replicas(
    trainer: Trainer, arrays: Mapping[str, Any], path: epath.Path
) -> None:
    """Raises WorkdirError if a checkpoint is of so many replicas that the run does not go on."""
    here = trainer.replicas
    replicas = saved_replicas(arrays, here)
    if replicas != here and not trainer.allow_replicas_change:
        raise WorkdirError(
            f"{path} belongs to a run on {replicas} replicas, and here are {here}; "
            "give it as many devices (--distribute), or choose another folder. "
            "Each replica draws its own masks; --allow_replicas_change goes on with others"
        )


def compare_best(state: RunState, store: Store) -> None:
    """Compares the best weights on disk with the run's record, and reports lost weights.

    Weights may be of an epoch after the checkpoint, if the process was killed before the next
    checkpoint. The run will compute them again.
    """
    loss, epoch = state.best
    on_disk = store.best_epoch(unsaid=epoch)
    if on_disk == epoch:
        return
    done = len(state.losses)
    is_left = 0 < on_disk <= done
    state.best = (state.losses[on_disk - 1], on_disk) if is_left else (math.inf, 0)
    if epoch and on_disk <= done:
        left = f"those of epoch {on_disk}"
        if not is_left:
            left = "the best of the epochs from here on"
        store.announce(
            f"{store.folder / checkpoints.BEST} lacks the weights of the best "
            f"epoch, {epoch} (loss {loss:.4g}): they are lost; kept are {left}"
        )


def refuse_remains(workdir: Workdir) -> None:
    """Raises WorkdirError if a folder has traces of a run but no checkpoint."""
    names = (RESULT, progress.METRICS, f"checkpoints/{checkpoints.BEST}")
    if remains := [name for name in names if exists(workdir.path / name)]:
        raise WorkdirError(
            f"{workdir.path} holds {' and '.join(remains)} of a run, and its checkpoints are gone; "
            "bring them back from a backup, or choose another --workdir"
        )


def apply_changes(
    trainer: Trainer, state: RunState, workdir: Workdir, epoch: float
) -> tuple[tuple[Change, ...], list[str]]:
    """Applies changed config values from this step on.

    Args:
        trainer: takes the steps; its optimizer gets a changed learning rate.
        state: what the run has come to.
        workdir: the run's folder, which records the changes.
        epoch: the run's step in epochs.

    Returns:
        all changes of the run, and lines for the user about what is new.
    """
    step, new = state.step, len(workdir.pending)
    # The chief alone has the folder; the other workers take the changes from it.
    records = trainer.team.agree([*workdir.record(step, epoch)])
    changes = tuple(Change(*fields) for fields in records)
    news = [str(change) for change in changes[len(changes) - new :]]
    if trainer.team.is_chief:
        news += workdir.run.news(step)
    if state.replicas != trainer.replicas:
        news.append(
            f"{trainer.replicas} replicas instead of {state.replicas} "
            f"from step {step} on, with other masks"
        )
    news += _change_rate(trainer.optimizer, changes, step)
    return changes, news


def _change_rate(
    optimizer: optimizers.Optimizer, changes: Sequence[Change], step: int
) -> list[str]:
    """Sets the learning rate that changes ask for; returns a line if it is another than before.

    The step and the schedule already read the new values. Only the learning rate is a variable,
    restored from the checkpoint. A checkpoint of the step of a change may precede or follow the
    change, so the rate is set in both cases.
    """
    rates = [
        change.now
        for change in changes
        if change.step >= step and change.field == _RATE
    ]
    if not rates:
        return []
    former = float(optimizer.learning_rate.numpy())
    optimizer.learning_rate = rates[-1]
    if former == rates[-1]:
        return []
    return [f"learning rate {former:g} -> {rates[-1]:g}"]
