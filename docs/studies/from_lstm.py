"""Trains an LSTM on as a trellis network of infinite depth, for docs/notes/language_models.md.

    python -m docs.studies.from_lstm LSTM_RUN DATA_DIR FOLDER --epochs=2 --rate=1e-3

LSTM_RUN is a finished run of `trainers.lm` with `config.model.layer=lstm`. By Theorem 1 its layers
are a trellis network with a group of channels for each. Without truncation it has infinite depth.
Here the input also enters the groups above the first, with a kernel that begins with zeros. So the
two models begin as equals.

The command scores both and trains both on, each in a run in FOLDER, with the same steps and
the dropouts of the LSTM. The network drops out its state besides. A run ends with the scores of its
best weights. The command goes on where it was stopped.
"""

import functools
from collections.abc import Callable, Sequence

import keras
import numpy as np
from absl import app, flags
from etils import epath
from ml_collections import ConfigDict

from keras_trellis import EquilibriumTrellisLayer, TrellisLM, convert
from trainers.language import evaluation
from trainers.language import experiment as language_runs
from trainers.studies import search
from trainers.tasks import config as configs
from trainers.tasks import registry
from trainers.training import runs
from trainers.training.experiment import SPLITS

FLAGS = flags.FLAGS
flags.DEFINE_integer("epochs", 2, "How long both are trained on.", 1)
flags.DEFINE_float("rate", 1e-3, "Adam's rate at first; it falls by a cosine.", 0)
flags.DEFINE_integer("seed", 1, "That of dropout.", 0)

_HIDDEN = 0.1  # of configs/ptb.py, `small_stacked_lstm`


class TrainedOn(language_runs.LanguageExperiment):
    """The experiment of a language model that begins with given weights."""

    def __init__(
        self, config: ConfigDict, data_dir: str, made: Callable[[], TrellisLM]
    ) -> None:
        super().__init__(config, data_dir)
        self._made = made

    def build(self) -> TrellisLM:
        """Returns the model."""
        return self._made()

    def score_line(self, name: str) -> str:
        """Returns a line with the model's exact scores on validation and test data."""
        config = self._config
        measure = registry.configured(config).measure
        evaluator = evaluation.Evaluator(self.build(), config.data, config.evaluation)
        scores = []
        for split in SPLITS:
            score = {"exact": evaluator.exact(getattr(self._corpus, split))}
            scores.append(evaluation.describe(split, score, measure))
        return f"{name}: {'; '.join(scores)}"


def grouped_layer(
    lstms: Sequence[keras.layers.Layer], **training: float | int
) -> EquilibriumTrellisLayer:
    """Returns the LSTMs as one layer whose groups all read the input."""
    finite = convert.layer_from_rnn(lstms, steps=1)
    given = EquilibriumTrellisLayer.from_layer(finite)
    layer = EquilibriumTrellisLayer.from_config(
        given.get_config() | training | {"inject_groups": True}
    )
    layer.build_from_config(given.get_build_config())
    for variable, values in zip(layer.weights, given.get_weights(), strict=True):
        if variable.name == "kernel":
            taps, inputs, channels = values.shape
            # A block of a gate has the channels of all groups side by side, the first in front.
            blocks = values.reshape(taps, inputs, -1, layer.units // layer.groups)
            more = np.zeros_like(blocks)
            others = [more] * (layer.groups - 1)
            values = np.concatenate([blocks, *others], axis=-1).reshape(
                taps, inputs, channels * layer.groups
            )
        variable.assign(values)
    return layer


def with_layer(lstm: TrellisLM, layer: keras.layers.Layer) -> TrellisLM:
    """Returns a model of this layer, with copies of the LSTM's other weights."""
    model = TrellisLM(**lstm.get_config() | {"trellis": layer})
    model.embedding.set_weights(lstm.embedding.get_weights())
    model.head.set_weights(lstm.head.get_weights())
    return model


def _grouped_config(
    config: ConfigDict, lstms: Sequence[keras.layers.Layer]
) -> ConfigDict:
    """Returns a copy of the LSTMs' config for their `grouped_layer`."""
    fields = dict(
        layer="equilibrium",
        units=len(lstms) * max(lstm.units for lstm in lstms),
        groups=len(lstms),
        inject_groups=True,
        output_units=lstms[-1].units,
        recurrent_dropout=_HIDDEN,
    )
    return search.apply(config, {f"model.{name}": fields[name] for name in fields})


def main(argv: Sequence[str]) -> None:
    """Scores, trains on, and scores again."""
    _, before, data_dir, folder = argv
    lstm, _, config = language_runs.load_trained(epath.Path(before))
    stack = lstm.trellis
    with config.unlocked():
        config.seed = FLAGS.seed
        config.optimizer.learning_rate = FLAGS.rate
        config.training.epochs = FLAGS.epochs
    trellis_config = _grouped_config(config, stack.layers)

    def trellis() -> TrellisLM:
        training = dict(dropout=trellis_config.model.dropout, recurrent_dropout=_HIDDEN)
        return with_layer(
            lstm, grouped_layer(stack.layers, **training, seed=FLAGS.seed)
        )

    def itself() -> TrellisLM:
        model = TrellisLM.from_config(lstm.get_config())
        model.build((None, None))
        model.set_weights(lstm.get_weights())
        return model

    for name, values, made in (
        ("trellis", trellis_config, trellis),
        ("lstm", config, itself),
    ):
        load = functools.partial(TrainedOn, values, data_dir, made)
        experiment = load()
        steps = experiment.task(lstm).steps_per_epoch
        values.training.steps = FLAGS.epochs * steps
        print(experiment.score_line(f"{name} at first"), flush=True)
        runs.train(load, values, epath.Path(folder) / name, "none", rules=configs)


if __name__ == "__main__":
    app.run(main)
