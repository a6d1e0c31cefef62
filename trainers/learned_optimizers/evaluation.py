"""What trained optimizers do where they were not trained, beside optimizers with tuned rates."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from ml_collections import ConfigDict

from keras_trellis.types import Tensor
from trainers.data.sequences import SequenceData
from trainers.learned_optimizers import experiment, rules
from trainers.learned_optimizers.core import UpdateNetwork
from trainers.learned_optimizers.modeling import SPLITS
from trainers.learned_optimizers.rules import Rule
from trainers.tasks import registry

RATES = tuple(10.0 ** (-exponent / 2) for exponent in range(-1, 9))
"""The rates that are tried, 3.2 to 1e-4."""
TUNING_DRAWS = 10
LONGER = 10
_LOW, _HIGH = 10, 90  # percent


class Setting(NamedTuple):
    """What is optimized, and for how long.

    Attributes:
        name: in words.
        steps: the number of steps.
        changes: arguments of the task's function of `optimizees`.
    """

    name: str
    steps: int
    changes: Mapping[str, Any]


class Outcome(NamedTuple):
    """What became of the draws of a setting under an optimizer.

    Attributes:
        setting: the setting's name.
        optimizer: the optimizer's name.
        rate: the tuned rate; None for a learned optimizer.
        losses: before the first step and after each, `[steps + 1, draws]`; infinite where they are
            NaN.
    """

    setting: str
    optimizer: str
    rate: float | None
    losses: np.ndarray

    @property
    def final(self) -> float:
        """The median of the last losses."""
        return float(self.quantiles()[1, -1])

    def quantiles(self) -> np.ndarray:
        """Returns three quantiles after each step, `[3, steps + 1]`: 10 %, the median, 90 %.

        Each is a loss of the draws, as there is no mean with an infinite one.
        """
        shares = [_LOW, 50, _HIGH]
        return np.percentile(self.losses, shares, axis=1, method="nearest")


def settings(config: ConfigDict) -> list[Setting]:
    """Returns what the optimizers of a task are tried on; the first is what they know."""
    task: Any = registry.get(config.task)
    steps = config.data.steps
    others = {"as trained": {}, **task.others}
    same_length = [Setting(name, steps, changes) for name, changes in others.items()]
    longer = Setting(f"{LONGER} times the steps", LONGER * steps, {})
    return [*same_length, longer]


def evaluate(
    setting: Setting,
    networks: Mapping[str, UpdateNetwork],
    config: ConfigDict,
    data: SequenceData | None,
    draws: int,
) -> Iterator[Outcome]:
    """Tries optimizers in a setting, all on the same draws; yields each outcome.

    Args:
        setting: one of `settings`.
        networks: the trained optimizers by name.
        config: the config of their runs.
        data: the images, from `experiment.load_images`.
        draws: how many functions are optimized.
    """
    splits = experiment.split_optimizees(config, data, **setting.changes)

    def compiled(
        make: Callable[[Tensor], Rule], split: str, draws: int
    ) -> Callable[[float], np.ndarray]:
        """Returns a function of a rate, which returns the losses of a split's draws."""

        def run(rate: Tensor) -> Tensor:
            seed = tf.constant([config.seed, SPLITS[split]], tf.int64)
            draw = splits[split].draw(seed, draws)
            return rules.losses(make(rate), draw, setting.steps)

        graph = traced(run)

        def losses(rate: float) -> np.ndarray:
            found = graph(tf.constant(rate)).numpy().astype("float64")
            return np.where(np.isfinite(found), found, np.inf)

        return losses

    for name, network in networks.items():
        losses = compiled(_without_rate(network), "test", draws)(1.0)
        yield Outcome(setting.name, name, None, losses)
    for name, make in rules.TUNED.items():
        tried = compiled(make, "tuning", TUNING_DRAWS)
        rate = RATES[int(np.argmin([tried(rate)[-1].mean() for rate in RATES]))]
        losses = compiled(make, "test", draws)(rate)
        yield Outcome(setting.name, name, rate, losses)


def traced(run: Callable[[Tensor], Tensor]) -> Any:
    """Returns a function of a rate as a graph."""
    function = tf.function(run, autograph=False)
    # Called by its trace: TensorFlow warns of several functions from one place.
    return function.get_concrete_function(tf.TensorSpec([], tf.float32))


def _without_rate(network: UpdateNetwork) -> Callable[[Tensor], Rule]:
    return lambda rate: rules.learned(network)


def failures(outcomes: Sequence[Outcome]) -> list[str]:
    """Returns a line for each learned optimizer in each setting where a tuned one does better."""
    lines = []
    for outcome in outcomes:
        tuned = [
            other
            for other in outcomes
            if other.rate is not None and other.setting == outcome.setting
        ]
        best = min(tuned, key=lambda other: other.final)
        if outcome.rate is None and not outcome.final <= best.final:
            start = float(np.median(outcome.losses[0]))
            learns = "" if outcome.final < start else ", and not below the start"
            lines.append(
                f"{outcome.optimizer} falls short on: {outcome.setting}. Its median last "
                f"loss is {outcome.final:.4g}{learns}; {best.optimizer}'s is "
                f"{best.final:.4g}."
            )
    return lines
