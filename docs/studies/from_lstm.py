"""Trains an LSTM on as a trellis network, for docs/choosing.md.

    python -m docs.studies.from_lstm LSTM_RUN DATA_DIR NEW_RUN --steps=24 --epochs=1 --rate=5e-4

LSTM_RUN is a finished run of `trainers.lm` with `config.model.layer=lstm`. By Theorem 1 its layers,
truncated to `--steps` steps, are a trellis network with a group of channels for each. The command
scores both, trains the network on with the recipe of the LSTM's run, and scores it again. It goes
on where it was stopped.
"""

from collections.abc import Sequence

from absl import app, flags
from etils import epath
from ml_collections import ConfigDict

from keras_trellis import TrellisLayer, TrellisLM, convert
from trainers.language import evaluation
from trainers.language import experiment as language_runs
from trainers.tasks import registry
from trainers.training import runs

FLAGS = flags.FLAGS
flags.DEFINE_integer("steps", 24, "How many steps back the network reaches.", 1)
flags.DEFINE_integer("epochs", 1, "How long it is trained on.", 1)
flags.DEFINE_float("rate", 5e-4, "Adam's rate at first; it falls by a cosine.", 0)
_OF_TRAINING = ("recurrent_dropout", "dropout")


class FromLSTM(language_runs.LanguageExperiment):
    """The experiment of a language model that begins as an LSTM."""

    def __init__(self, config: ConfigDict, data_dir: str, lstm: TrellisLM) -> None:
        super().__init__(config, data_dir)
        self._lstm = lstm

    def build(self) -> TrellisLM:
        """Returns the model with the LSTM's weights."""
        converted = convert.layer_from_rnn(self._lstm.trellis.layers, FLAGS.steps)
        rates = {name: self._config.model[name] for name in _OF_TRAINING}
        arguments = converted.get_config() | rates | {"seed": self._config.seed}
        config = self._lstm.get_config() | {
            "trellis": TrellisLayer.from_config(arguments)
        }
        model = TrellisLM(**config)
        for own, given in (
            (model.trellis, converted),
            (model.embedding, self._lstm.embedding),
            (model.head, self._lstm.head),
        ):
            own.set_weights(given.get_weights())
        return model

    def told(self, name: str, model: TrellisLM) -> str:
        """Returns a line with the exact scores of a model on validation and test data."""
        config = self._config
        measure = registry.language(config.task).measure
        evaluator = evaluation.Evaluator(model, config.data, config.evaluation)
        scores = []
        for split in runs.SPLITS:
            found = {"exact": evaluator.exact(getattr(self._corpus, split))}
            scores.append(evaluation.describe(split, found, measure))
        return f"{name}: {'; '.join(scores)}"


def main(argv: Sequence[str]) -> None:
    """Scores, trains on, and scores again."""
    _, before, data_dir, after = argv
    lstm, _, config = language_runs.load_trained(epath.Path(before))
    layers = lstm.trellis.layers
    config.model.update(
        layer="trellis",
        units=len(layers) * max(layer.units for layer in layers),
        groups=len(layers),
        depth=FLAGS.steps + len(layers) - 1,
        dilation_rate=(1,),
        output_units=layers[-1].units,
    )
    config.optimizer.learning_rate = FLAGS.rate
    config.training.epochs = FLAGS.epochs
    experiment = FromLSTM(config, data_dir, lstm)
    task = experiment.task(lstm)
    config.training.steps = FLAGS.epochs * task.steps_per_epoch
    print(experiment.told("LSTM", lstm), flush=True)
    print(experiment.told("as a trellis network", experiment.build()), flush=True)
    runs.train(lambda: experiment, config, epath.Path(after), "none")


if __name__ == "__main__":
    app.run(main)
