r"""Measures training steps with two LSTMs that both read the input, for docs/notes/equilibrium.md.

    python -m docs.studies.stacked_lstm --task=pydoc

The contenders have as many weights: the preset `small_stacked_lstm`, whose layer has groups; the
same with a `StackedLSTM`; `small_skip_lstm` and `small_lstm`, which are Keras's layers; the first
of these with dropout of the state too, at the rate of `small_stacked_lstm`, or 0.1 where that has
none. All have the batches of `small_stacked_lstm`. A step is that of the trainers, on one thread.
The contenders take turns in one process. The milliseconds are those of the processor: the median of
the rounds, and the least, median and greatest of the rounds' ratios to the first.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import ml_collections
from absl import app, flags
from etils import epath

from docs.studies import running
from keras_trellis.recurrent import StackedLSTM
from trainers.models.layers import KERAS_LAYERS, LAYERS
from trainers.studies import budget, experiments, search
from trainers.tasks import config as configs
from trainers.training import runs, strategies
from trainers.training.trainer import Trainer

FLAGS = flags.FLAGS
flags.DEFINE_string("task", None, "The task.", required=True)
flags.DEFINE_string("data_dir", None, "The folder of the task's data files.")
flags.DEFINE_integer("rounds", 9, "How often each contender has its turn.")
flags.DEFINE_integer("steps", 8, "The training steps of a turn.")


class Stacked(StackedLSTM):
    """A `StackedLSTM` of which the last channels are read."""

    def __init__(self, units: int, output_units: int, dtype: str, **arguments: Any):
        super().__init__(units, name="trellis", dtype=dtype, **arguments)
        self.output_units = output_units

    def run(self, *args):
        outputs, *others = super().run(*args)
        return outputs[..., -self.output_units :], *others


class Kind:
    """A `StackedLSTM` in the place of two groups."""

    def build(
        self, model: ml_collections.ConfigDict, outputs: int, **settings: Any
    ) -> Any:
        """Returns the layer."""
        rate = model.recurrent_dropout
        return Stacked(
            model.units // model.groups, outputs, recurrent_dropout=rate, **settings
        )


def contenders(
    changes: Mapping[str, object],
) -> dict[str, ml_collections.ConfigDict]:
    """Returns the contenders' configs, each with the given changes."""
    first = configs.load(FLAGS.task, "small_stacked_lstm")
    keras_layers = configs.load(FLAGS.task, "small_skip_lstm")
    state = {"model.recurrent_dropout": first.model.recurrent_dropout or 0.1}
    configs_by_name = {
        "small_stacked_lstm": first,
        "small_stacked_lstm, StackedLSTM": first,
        "small_skip_lstm": keras_layers,
        "small_skip_lstm, dropout of the state": search.apply(keras_layers, state),
        "small_lstm": configs.load(FLAGS.task, "small_lstm"),
    }
    shape = {f"data.{name}": first.data[name] for name in ("batch_size", "window")}
    configs_by_name = {
        name: search.apply(config, shape | dict(changes))
        for name, config in configs_by_name.items()
    }
    # No value of the field, so that it is set last.
    configs_by_name["small_stacked_lstm, StackedLSTM"].model.layer = "stacked"
    return configs_by_name


def trainer(config: ml_collections.ConfigDict) -> Trainer:
    """Returns the trainer of a config, compiled."""
    strategies.make_deterministic(config.seed)
    # As `runs.train` does for layers of Keras.
    strategies.allow_rewrites(config.model.layer not in KERAS_LAYERS)
    experiment = experiments.load(config, FLAGS.data_dir, epath.Path("nowhere"))
    task = experiment.task(experiment.build())
    made = runs.make_trainer(config, task, runs.make_optimizer(config))
    budget.timed(made, 1, -1)
    return made


def main(argv: Sequence[str]) -> None:
    """Measures the contenders."""
    budget.fix_threads(1)
    LAYERS["stacked"] = Kind()  # type: ignore[assignment]
    sized = contenders(running.changes(argv[1:]))
    trainers = {name: trainer(config) for name, config in sized.items()}
    times: dict[str, list[float]] = {name: [] for name in trainers}
    for _ in range(FLAGS.rounds):
        for name, trained in trainers.items():
            times[name].append(budget.timed(trained, FLAGS.steps, -1) / FLAGS.steps)
    first = next(iter(times.values()))
    for name, seconds in times.items():
        ratios = [mine / theirs for mine, theirs in zip(seconds, first, strict=True)]
        median = 1e3 * statistics.median(seconds)
        least, middle, most = min(ratios), statistics.median(ratios), max(ratios)
        print(
            f"{name}: {median:.1f} ms a step, {least:.2f}, {middle:.2f}, {most:.2f} times the first"
        )


if __name__ == "__main__":
    app.run(main)
