r"""Measures training steps with two LSTMs that both read the input, for docs/equilibrium.md.

    python -m docs.studies.stacked_lstm --task=pydoc

The recipe is that of the preset `small`, but for the layer: the groups of an equilibrium layer, as
the preset has them; a `StackedLSTM`; Keras's LSTM -> Concatenate with the input -> LSTM, without
and with dropout of the state. All have as many weights and outputs. A step is that of the
trainers, on one thread. The contenders take turns in one process. The milliseconds are those of the
processor: the median of the rounds, and the median of the rounds' ratios to the first.
"""

import statistics
from collections.abc import Sequence
from typing import Any

import keras
import ml_collections
import tensorflow as tf
from absl import app, flags
from etils import epath

from docs.studies import running
from keras_trellis.base import SequenceLayer
from keras_trellis.recurrent import StackedLSTM
from trainers.studies import budget, experiments, search
from trainers.tasks import config as configs
from trainers.tasks.layers import LAYERS
from trainers.training import runs, strategies
from trainers.training.trainer import Trainer

FLAGS = flags.FLAGS
flags.DEFINE_string("task", None, "The task.", required=True)
flags.DEFINE_string("data_dir", None, "The folder of the task's data files.")
flags.DEFINE_integer("rounds", 9, "How often each contender has its turn.")
flags.DEFINE_integer("steps", 8, "The training steps of a turn.")


class KerasLayers(SequenceLayer):
    """Keras's LSTM -> Concatenate with the input -> LSTM, of which the last channels are read."""

    receptive_field = None

    def __init__(self, units: int, output_units: int, dtype: str, **arguments: Any):
        super().__init__(name="trellis", dtype=dtype)
        self.output_units = output_units
        self.state_units = (units,) * 4
        arguments |= {"dtype": dtype, "return_sequences": True, "return_state": True}
        self.first = keras.layers.LSTM(units, **arguments)
        self.second = keras.layers.LSTM(units, **arguments)

    state_units: Any = ()

    def _add_variables(self, inputs: int) -> None:
        self.first.build((None, None, inputs))
        self.second.build((None, None, self.first.units + inputs))

    def _whole(self, sequences, initial, mask, training, stops, kept):
        if initial is None:
            initial = self.get_initial_state(tf.shape(sequences)[0])
        how = {"mask": mask, "training": training}
        hidden, *below = self.first(sequences, initial_state=initial[:2], **how)
        read = tf.concat([hidden, sequences], axis=-1)
        outputs, *above = self.second(read, initial_state=initial[2:], **how)
        return outputs[..., -self.output_units :], (*below, *above), None


class Stacked(StackedLSTM):
    """A `StackedLSTM` of which the last channels are read."""

    def __init__(self, units: int, output_units: int, dtype: str, **arguments: Any):
        super().__init__(units, name="trellis", dtype=dtype, **arguments)
        self.output_units = output_units

    def _whole(self, *args):
        outputs, *others = super()._whole(*args)
        return outputs[..., -self.output_units :], *others


class Kind:
    """A layer of two LSTMs in the place of two groups."""

    def __init__(self, cls: Any):
        self._cls = cls

    def build(
        self, model: ml_collections.ConfigDict, outputs: int, **settings: Any
    ) -> Any:
        """Returns the layer."""
        return self._cls(
            model.units // model.groups,
            outputs,
            recurrent_dropout=model.recurrent_dropout,
            **settings,
        )


# The layer, and the rate of `model.recurrent_dropout` if it is not that of the preset.
CONTENDERS: dict[str, tuple[str, float | None]] = {
    "EquilibriumTrellisLayer(groups=2)": ("equilibrium", None),
    "StackedLSTM": ("stacked", None),
    "Keras, without recurrent_dropout": ("keras", 0.0),
    "Keras": ("keras", None),
}


def trainer(
    config: ml_collections.ConfigDict, layer: str, rate: float | None
) -> Trainer:
    """Returns the trainer of a config with another layer, compiled."""
    config = config.copy_and_resolve_references()
    config.model.layer = layer
    if rate is not None:
        config.model.recurrent_dropout = rate
    strategies.make_deterministic(config.seed)
    # As `runs.train` does for layers of Keras.
    strategies.allow_rewrites(layer != "keras")
    experiment = experiments.load(config, FLAGS.data_dir, epath.Path("nowhere"))
    task = experiment.task(experiment.build())
    made = runs.trainer_of(config, task, runs.optimizer_of(config))
    budget.timed(made, 1, -1)
    return made


def main(argv: Sequence[str]) -> None:
    """Measures the contenders."""
    budget.fix_threads(1)
    LAYERS.update({"stacked": Kind(Stacked), "keras": Kind(KerasLayers)})  # type: ignore[dict-item]
    config = search.apply(configs.load(FLAGS.task, "small"), running.changes(argv[1:]))
    trainers = {
        name: trainer(config, *contender) for name, contender in CONTENDERS.items()
    }
    times: dict[str, list[float]] = {name: [] for name in trainers}
    for _ in range(FLAGS.rounds):
        for name, each in trainers.items():
            times[name].append(budget.timed(each, FLAGS.steps, -1) / FLAGS.steps)
    first = next(iter(times.values()))
    for name, seconds in times.items():
        ratios = [mine / theirs for mine, theirs in zip(seconds, first, strict=True)]
        median = 1e3 * statistics.median(seconds)
        ratio = statistics.median(ratios)
        print(f"{name}: {median:.1f} ms a step, {ratio:.2f} times the first")


if __name__ == "__main__":
    app.run(main)
