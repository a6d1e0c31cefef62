"""What a run has come to, all that a checkpoint holds, and how it goes on from there."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from trainers.data.files import exists
from trainers.training import (
    checkpoints,
    followers,
    progress,
    resources,
    variables,
)
from trainers.training.trainer import Nest, Trainer
from trainers.training.workdir import RESULT, Change, Workdir, WorkdirError

Store = checkpoints.Checkpoints | followers.NoCheckpoints

_RATE = "optimizer.learning_rate"  # a change of this field sets a variable


class Sums:
    """Sums of metrics over steps.

    Args:
        values: what has been summed: "weight", and each other metric times the step's weight.
    """

    def __init__(self, values: Mapping[str, float] | None = None):
        self.values = dict(values or {})

    def add(self, metrics: Mapping[str, float]) -> None:
        """Adds a step's means over its batch, and the batch's weight."""
        for name, value in metrics.items():
            weight = 1.0 if name == "weight" else metrics["weight"]
            self.values[name] = self.values.get(name, 0.0) + weight * value

    def means(self) -> dict[str, float]:
        """Returns the weighted means over the steps."""
        weight = self.values["weight"]
        sums = {name: total for name, total in self.values.items() if name != "weight"}
        return {name: total / weight for name, total in sums.items()}


class RunState:
    """The step, the variables and the records of a run.

    Args:
        trainer: it has the model and the optimizer, whose variables are the run's.

    Attributes:
        step: steps done.
        losses: the validation losses of the epochs done.
        best: the least of those whose weights are kept, with its epoch; infinity and 0 at first.
        solved: whether the last epoch has ended the run, by its right answers.
        carried: what the next batch begins with, in the replicas' shares.
        epoch_sums: the metrics of this epoch's steps.
        interval_sums: the metrics since the last line was shown.
        replicas: on how many the run computed when its checkpoint was written.
    """

    def __init__(self, trainer: Trainer):
        self._trainer = trainer
        self._meter = resources.Meter(resources.Cost())
        self.step = 0
        self.losses: list[float] = []
        self.best = (math.inf, 0)
        self.solved = False
        self.carried: Nest = ()
        self.begin_pass()
        self.epoch_sums = Sums()
        self.interval_sums = Sums()
        self.replicas = trainer.replicas

    def begin_pass(self) -> None:
        """Forgets what was carried: the data begins again."""
        self.carried = self._trainer.spread(self._trainer.task.initial_state())

    def add(self, metrics: Mapping[str, float]) -> None:
        """Counts a step."""
        self.step += 1
        self.epoch_sums.add(metrics)
        self.interval_sums.add(metrics)
        self._meter.add(metrics["weight"])

    def lost_epoch(self) -> int:
        """Returns the best epoch if its weights are lost, else 0."""
        if not self.losses:
            return 0
        # The first of equal ones, as the loop chooses.
        epoch = self.losses.index(min(self.losses)) + 1
        return epoch if epoch != self.best[1] else 0

    def cost(self) -> resources.Cost:
        """Returns what the run has taken up to now."""
        return self._meter.read()

    def weights(self) -> dict[str, np.ndarray]:
        """Returns the model's variables by path."""
        return variables.arrays(variables.model_variables(self._trainer.task.model))

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns the contents of a checkpoint, but for the step."""
        # Joined, so that another number of replicas can cut it anew.
        carried = tf.nest.flatten(self._trainer.gather(self.carried))
        return {
            **self.weights(),
            **variables.arrays(self._optimizer_variables()),
            **{f"state/{i}": tensor.numpy() for i, tensor in enumerate(carried)},
            **_as_arrays("sums/", self.epoch_sums.values),
            **_as_arrays("interval/", self.interval_sums.values),
            "losses": np.array(self.losses, "float64"),
            "best": np.array(self.best, "float64"),
            "solved": np.bool_(self.solved),
            **_as_arrays("cost/", self.cost()._asdict()),
            "replicas": np.int64(self._trainer.replicas),
        }

    def restore(self, step: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Takes the contents of a checkpoint.

        Raises:
            IndexError, KeyError, TypeError, ValueError: the checkpoint is of another model.
        """
        trainer = self._trainer
        variables.assign(variables.model_variables(trainer.task.model), arrays)
        variables.assign(self._optimizer_variables(), arrays)
        # Its structure is that of the state, of which the checkpoint has the tensors alone.
        former = trainer.task.initial_state()
        carried = [
            tf.convert_to_tensor(variables.as_dtype(arrays[f"state/{i}"], tensor.dtype))
            for i, tensor in enumerate(tf.nest.flatten(former))
        ]
        self.carried = trainer.spread(tf.nest.pack_sequence_as(former, carried))
        self.step = step
        self.losses = arrays["losses"].tolist()
        self.best = (float(arrays["best"][0]), int(arrays["best"][1]))
        self.solved = bool(arrays.get("solved", False))  # 0.1 had none
        self.epoch_sums = Sums(_with_prefix("sums/", arrays))
        self.interval_sums = Sums(_with_prefix("interval/", arrays))
        cost = _with_prefix("cost/", arrays)
        self._meter = resources.Meter(
            resources.Cost(
                *(cost.get(name, math.nan) for name in resources.Cost._fields)
            )
        )

    def _optimizer_variables(self):
        trainer = self._trainer
        return variables.optimizer_variables(trainer.optimizer, trainer.task.model)

    def go_on_from(
        self, step: int, arrays: Mapping[str, np.ndarray], store: Store
    ) -> None:
        """Takes the contents of a checkpoint, and compares the best weights with it.

        Raises:
            WorkdirError: the checkpoint is of another model, or of another number of replicas.
        """
        here, allowed = self._trainer.replicas, self._trainer.allow_replicas_change
        try:
            # The first version did not say on how many it was written.
            self.replicas = int(arrays.get("replicas", here))
            if self.replicas != here and not allowed:
                raise WorkdirError(
                    f"{store.folder.parent} belongs to a run on {self.replicas} replicas, and here "
                    f"are {here}; give it as many devices (--distribute), or choose another "
                    "folder. "
                    "Each replica draws its own masks; --allow_replicas_change goes on with others"
                )
            self.restore(step, arrays)
        except (IndexError, KeyError, TypeError, ValueError) as error:
            raise WorkdirError(
                f"the checkpoint of step {step} in {store.folder} is not one of "
                f"this model: {error}; choose another --workdir"
            ) from error
        self.compare_best(store)

    def compare_best(self, store: Store) -> None:
        """Compares the best weights on disk with the run's record, and reports lost weights.

        Weights may be of an epoch after the checkpoint, if the process was killed before the next
        checkpoint. The run will compute them again.
        """
        loss, epoch = self.best
        on_disk = store.best_epoch(unsaid=epoch)
        if on_disk == epoch:
            return
        done = len(self.losses)
        # Weights of a later epoch are of no use: its loss is not known here, and comes again.
        is_left = 0 < on_disk <= done
        self.best = (self.losses[on_disk - 1], on_disk) if is_left else (math.inf, 0)
        # Nothing is lost where the weights are newer than the checkpoint.
        if epoch and on_disk <= done:
            left = f"those of epoch {on_disk}"
            if not is_left:
                left = "the best of the epochs from here on"
            store.announce(
                f"{store.folder / checkpoints.BEST} lacks the weights of the best "
                f"epoch, {epoch} (loss {loss:.4g}): they are lost; kept are {left}"
            )

    def apply_changes(
        self, workdir: Workdir, epoch: float
    ) -> tuple[tuple[Change, ...], list[str]]:
        """Applies changed config values from this step on.

        Args:
            workdir: the run's folder, which records the changes.
            epoch: the run's step in epochs.

        Returns:
            all changes of the run, and lines for the user about what is new.
        """
        trainer, step, new = self._trainer, self.step, len(workdir.pending)
        # The chief alone has the folder; the other workers take the changes from it.
        records = trainer.team.agree([*workdir.record(step, epoch)])
        changes = tuple(Change(*fields) for fields in records)
        news = [str(change) for change in changes[len(changes) - new :]]
        if trainer.team.is_chief:
            news += workdir.run.news(step)
        if self.replicas != trainer.replicas:
            news.append(
                f"{trainer.replicas} replicas instead of {self.replicas} "
                f"from step {step} on, with other masks"
            )
        news += self._change_rate(changes)
        return changes, news

    def _change_rate(self, changes: Sequence[Change]) -> list[str]:
        """Sets the learning rate that changes ask for; returns a line if it is another than before.

        The step and the schedule already read the new values. Only the learning rate is a variable,
        restored from the checkpoint. A checkpoint of the step of a change may precede or follow the
        change, so the rate is set in both cases.
        """
        rates = [
            change.now
            for change in changes
            if change.step >= self.step and change.field == _RATE
        ]
        if not rates:
            return []
        optimizer = self._trainer.optimizer
        former = float(optimizer.learning_rate.numpy())
        optimizer.learning_rate = rates[-1]
        if former == rates[-1]:
            return []
        return [f"learning rate {former:g} -> {rates[-1]:g}"]


def refuse_remains(workdir: Workdir) -> None:
    """Raises WorkdirError if a folder has traces of a run but no checkpoint."""
    names = (RESULT, progress.METRICS, f"checkpoints/{checkpoints.BEST}")
    if remains := [name for name in names if exists(workdir.path / name)]:
        raise WorkdirError(
            f"{workdir.path} holds {' and '.join(remains)} of a run, and its checkpoints are gone; "
            "bring them back from a backup, or choose another --workdir"
        )


def _as_arrays(prefix: str, values: Mapping[str, float]) -> dict[str, np.ndarray]:
    return {prefix + name: np.array(value, "float64") for name, value in values.items()}


def _with_prefix(prefix: str, arrays: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Returns the numbers whose names have a prefix, by the rest of the name."""
    chosen = {name: value for name, value in arrays.items() if name.startswith(prefix)}
    return {name.removeprefix(prefix): float(value) for name, value in chosen.items()}
