"""What a run has come to: all that a checkpoint holds."""

import math
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from trainers.training import costs, variables
from trainers.training.trainer import Nest, Trainer


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
        self._meter = costs.Meter(costs.Cost())
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
        epoch = self.losses.index(min(self.losses)) + 1
        return epoch if epoch != self.best[1] else 0

    def cost(self) -> costs.Cost:
        """Returns what the run has taken up to now."""
        return self._meter.read()

    def weights(self) -> dict[str, np.ndarray]:
        """Returns the model's variables by path."""
        return variables.arrays(variables.model_variables(self._trainer.task.model))

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns the contents of a checkpoint, but for the step."""
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
        self.replicas = saved_replicas(arrays, trainer.replicas)
        self.step = step
        self.losses = arrays["losses"].tolist()
        self.best = (float(arrays["best"][0]), int(arrays["best"][1]))
        self.solved = bool(arrays.get("solved", False))  # 0.1 had none
        self.epoch_sums = Sums(_with_prefix("sums/", arrays))
        self.interval_sums = Sums(_with_prefix("interval/", arrays))
        cost = _with_prefix("cost/", arrays)
        self._meter = costs.Meter(
            costs.Cost(*(cost.get(name, math.nan) for name in costs.Cost._fields))
        )

    def _optimizer_variables(self):
        trainer = self._trainer
        return variables.optimizer_variables(trainer.optimizer, trainer.task.model)


def saved_replicas(arrays: Mapping[str, np.ndarray], default: int) -> int:
    """Returns on how many replicas a checkpoint was written; the first version did not say."""
    return int(arrays.get("replicas", default))


def _as_arrays(prefix: str, values: Mapping[str, float]) -> dict[str, np.ndarray]:
    return {prefix + name: np.array(value, "float64") for name, value in values.items()}


def _with_prefix(prefix: str, arrays: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Returns the numbers whose names have a prefix, by the rest of the name."""
    chosen = {name: value for name, value in arrays.items() if name.startswith(prefix)}
    return {name.removeprefix(prefix): float(value) for name, value in chosen.items()}
