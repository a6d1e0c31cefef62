"""A run of a tenth of a second: `trainers.pixels` with another model and other batches.

The command, the folder, the loop, the checkpoints, the records and the result are those of every
run. The model is a small one and the batches are arrays, because TensorFlow needs longer to build a
network and a pipeline than this benchmark needs for everything else.
"""

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from etils import epath
from matplotlib import figure

from keras_trellis.export import saving
from keras_trellis.export.weights import Weights
from trainers.sequences import experiment as sequence_runs
from trainers.sequences.modeling import SequenceModeling
from trainers.training import checkpoints, runs

UNITS = 128  # so that the weights alone are more than the 4 KiB that a full disk may still take
OVERRIDES = {
    "seed": 1,
    "data.steps": 4,
    "data.train": 24,
    "data.validation": 8,
    "data.test": 8,
    "data.batch_size": 8,
    "model.units": 4,
    "model.depth": 2,
    "model.dilation_rate": "(1,)",
    "optimizer.name": "sgd",
    "optimizer.learning_rate": 0.8,  # so high that the second epoch is the best of three
    "training.epochs": 3,
    "training.log_every_steps": 2,  # an interval ends within an epoch, and after a checkpoint
    "training.checkpoint_every_steps": 2,
}


class Model(keras.Model):
    """Two layers with dropout, so that random streams must go on where they were."""

    def __init__(self, steps: int, seed: int) -> None:
        super().__init__()
        generator = np.random.default_rng(seed)

        def weight(*shape):
            values = generator.normal(size=shape, scale=0.3)
            first = tf.constant(values, "float32")
            return self.add_weight(shape=shape, initializer=lambda *_, **__: first)

        self.hidden = weight(2 * steps, UNITS)
        self.output_weights = weight(UNITS, 1)
        self.seeds = keras.random.SeedGenerator(seed)
        self.built = True

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Returns a value `[B, 1]` for sequences `[B, T, 2]`."""
        features = tf.reshape(inputs, [tf.shape(inputs)[0], -1])
        features = tf.tanh(tf.matmul(features, self.hidden))
        if training:
            features = keras.random.dropout(features, 0.2, seed=self.seeds)
        return tf.matmul(features, self.output_weights)


class Task(SequenceModeling):
    """The task of any sequences, with batches from arrays; made in the strategy's scope."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._replicas = tf.distribute.get_strategy().num_replicas_in_sync

    def dataset(self, first_step: int) -> Any:
        if self._replicas == 1:
            return self._batches(first_step)
        sizes = (self._config.data.batch_size, *self._data.train.inputs.shape[1:])
        specs = tf.TensorSpec(sizes), tf.TensorSpec(sizes[:1])
        return tf.data.Dataset.from_generator(
            lambda: self._batches(first_step), output_signature=specs
        )

    def _batches(self, step):
        inputs, targets = self._data.train
        size = self._config.data.batch_size
        while True:
            epoch, batch = divmod(step, self.steps_per_epoch)
            order = np.random.default_rng(epoch).permutation(len(inputs))
            rows = order[batch * size : (batch + 1) * size]
            yield tf.constant(inputs[rows]), tf.constant(targets[rows])
            step += 1


class Experiment(sequence_runs.SequenceExperiment):
    """The experiment of any sequences, with the small model."""

    def build(self) -> keras.Model:
        """Returns the model, built."""
        return Model(self._config.data.steps, self._config.seed)

    def task(self, model: keras.Model) -> Task:
        """Returns what the loop trains."""
        return Task(model, self._config, self._data)

    def introduction(self, model: keras.Model) -> str:
        """Returns a line."""
        return "a run of the benchmark of faults"


def export(
    path: epath.Path, output: str, precision: str, data_dir: str | None = None
) -> str:
    """Writes the run's model as a new version of a served one, with one signature."""
    del data_dir
    config = runs.load_config(path)
    model = Model(config.data.steps, config.seed)
    checkpoints.load_best(path, model)
    spec = tf.TensorSpec([None, config.data.steps, 2], tf.float32, "inputs")
    example = {"inputs": tf.zeros([1, config.data.steps, 2])}

    def answer(inputs):
        features = tf.reshape(inputs, [tf.shape(inputs)[0], -1])
        return {
            "sums": tf.matmul(tf.matmul(features, model.hidden), model.output_weights)
        }

    signatures = {
        "serving_default": saving.Signature(answer, {"inputs": spec}, example)
    }
    weights = Weights(model, precision)
    return saving.save(signatures, weights, {}, output, lambda *_: "# A model card\n")


def install() -> None:
    """Makes the trainers' commands train and export this model, here and in children."""
    sequence_runs.SequenceExperiment = Experiment
    sequence_runs.export = export
    _draw_plainly()


def _draw_plainly():
    """Makes pictures files of a few bytes; drawing them would take longer than all else."""

    def savefig(self, file, **_):
        file.write(f"{len(self.axes)} axes\n".encode())

    figure.Figure.savefig = savefig


def flags() -> list[str]:
    """Returns the flags of the run without its folder."""
    fields = [f"--config.{name}={value}" for name, value in OVERRIDES.items()]
    return ["--task=adding", "--preset=small", *fields]
