"""Runs of a tenth of a second: the trainers' commands with other models and other batches.

The command, the folder, the loop, the checkpoints, the records and the result are those of every
run. The models are small ones and the batches are arrays, because TensorFlow needs longer to build
a network and a pipeline than this benchmark needs for everything else.
"""

import dataclasses
import importlib.machinery
import io
import itertools
import subprocess
import sys
import types
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from etils import epath
from matplotlib import figure

from benchmarks.faults import processes
from keras_trellis.export import saving
from keras_trellis.export.saving import Companions
from keras_trellis.export.weights import Weights
from trainers.authors import torch_files
from trainers.data import files
from trainers.drawing import experiment as drawing_runs
from trainers.drawing import pictures
from trainers.drawing.model import Bound, Drawing
from trainers.kinds.search import Uniform
from trainers.learned_optimizers import evaluation
from trainers.learned_optimizers.modeling import MetaTraining
from trainers.sequences import experiment as sequence_runs
from trainers.sequences.modeling import SequenceModeling
from trainers.studies import budget, comparison, search, streaming
from trainers.synthetic import experiment as synthetic_runs
from trainers.tasks import config as configs
from trainers.tasks import registry, run_folders
from trainers.training import checkpoints, experiment

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
        batches = _batches(self, first_step)
        if self._replicas == 1:
            return batches
        sizes = (self._config.data.batch_size, *self._data.train.inputs.shape[1:])
        specs = tf.TensorSpec(sizes), tf.TensorSpec(sizes[:1])
        return tf.data.Dataset.from_generator(lambda: batches, output_signature=specs)


class Painter(keras.Model):
    """Stands for DRAW: a shade for each pixel, and noise that must go on where it was."""

    image_shape, steps = (28, 28, 1), 1
    decoder_cell = types.SimpleNamespace(count_params=lambda: 0)

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.shades = self.add_weight(shape=self.image_shape, initializer="zeros")
        self.seeds = keras.random.SeedGenerator(seed)
        self.built = True

    def noise(self, rows: Any, seed: tf.Tensor) -> tf.Tensor:
        """Returns a number for each image, `[1, rows, 1]`."""
        return tf.random.stateless_normal([1, rows, 1], seed)

    def bound(self, images: tf.Tensor, noise: tf.Tensor | None = None) -> Bound:
        """Returns the bound on images, which are as light as their noise says."""
        if noise is None:
            noise = self.noise(len(images), tf.cast(self.seeds.next(), "int64"))
        canvas = self.shades + noise[0][:, :, None, None]
        losses = tf.nn.sigmoid_cross_entropy_with_logits(images, canvas)
        return Bound(tf.reduce_sum(losses, [1, 2, 3]), noise[0, :, 0] ** 2, canvas)

    def generate(self, count: int, seed: int) -> Drawing:
        """Returns new images."""
        canvas = self.shades + self.noise(count, (seed, 0))[0][:, :, None, None]
        return Drawing(canvas[:, None], tf.zeros([count, 1, 4]), None)

    def reconstruct(self, images: tf.Tensor, seed: int) -> Drawing:
        """Returns as many images."""
        return self.generate(len(images), seed)


class Experiment(sequence_runs.SequenceExperiment):
    """The experiment of any sequences, with the small model."""

    def build(self) -> keras.Model:
        """Returns the model, built."""
        return Model(self._config.data.steps, self._config.seed)

    def task(self, model: keras.Model) -> Task:
        """Returns what the loop trains."""
        return Task(model, self._config, self._data)

    def parameters(self, config: Any) -> int:
        """Returns the number of parameters, whatever the config's layer is."""
        return (2 * config.data.steps + 1) * UNITS

    def introduction(self, model: keras.Model) -> str:
        """Returns a line."""
        return "a run of the benchmark of faults"

    def streamed(self, steps: int) -> Any:
        """Returns a function that streams nothing."""
        return lambda: None


def export(path: epath.Path, options: run_folders.ExportOptions) -> str:
    """Writes the run's model as a new version of a served one, with one signature."""
    config = run_folders.load_config(path)
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
    weights = Weights(model, options.precision)
    beside = Companions("classifier", fingerprint=0)

    def describe(*_: Any) -> str:
        return "# A model card\n"

    return saving.save(signatures, weights, {}, options.output, describe, beside)


def install() -> None:
    """Makes the trainers' commands quick, here and in children."""
    sequence_runs.SequenceExperiment = Experiment
    synthetic_runs.load = Experiment
    # A kind has the part `exporting` if it has a module of that name.
    exporting = types.ModuleType("trainers.synthetic.exporting")
    exporting.__spec__ = importlib.machinery.ModuleSpec(exporting.__name__, None)
    exporting.export = export  # type: ignore[attr-defined]
    sys.modules[exporting.__name__] = exporting
    drawing_runs.DrawingExperiment.build = lambda self: Painter(self._config.seed)
    experiment.ShuffledExamples.dataset = _batches
    MetaTraining.dataset = _numbers
    evaluation.settings = lambda config: _settings(config)[:1]
    evaluation.RATES = evaluation.RATES[:2]
    # Tracing takes longer than to compute once.
    evaluation.traced = lambda run: run
    torch_files.read_state_dict = _state_dict
    _draw_plainly()
    _search_quickly()


def _state_dict(path):
    """Stands for `read_state_dict`, without torch. It, too, reads the whole file first."""
    content = epath.Path(path).read_bytes()
    return dict(np.load(io.BytesIO(content)))


class _Dataset:
    """Stands for a `tf.data.Dataset`, whose iterators would need threads."""

    def __init__(self, draw):
        self._draw = draw

    def __iter__(self):
        return self._draw()

    def enumerate(self, first):
        return _Dataset(lambda: enumerate(iter(self), int(first)))

    def map(self, function):
        return _Dataset(lambda: (function(*each) for each in self))

    def with_options(self, options):
        del options  # they are for the threads
        return self


def _batches(self, first_step):
    """Stands for `ShuffledExamples.dataset`."""
    return _Dataset(lambda: _drawn(self, first_step))


def _drawn(self, first_step):
    inputs, targets = self._data.train
    size, step = self._config.data.batch_size, first_step
    while True:
        epoch, batch = divmod(step, self.steps_per_epoch)
        order = np.random.default_rng(epoch).permutation(len(inputs))
        rows = order[batch * size : (batch + 1) * size]
        yield tf.constant(inputs[rows]), tf.constant(targets[rows])
        step += 1


def _numbers(self, first_step):
    """Stands for `MetaTraining.dataset`."""
    del self
    return _Dataset(
        lambda: (tf.constant([step], tf.int64) for step in itertools.count(first_step))
    )


_settings = evaluation.settings


def _draw_plainly():
    """Makes pictures files of a few bytes; drawing them would take longer than all else."""

    def savefig(self, file, **_):
        file.write(f"{len(self.axes)} axes\n".encode())

    def save_animation(model, images, seed, path):
        drawing = model.reconstruct(images[:1], seed).canvases
        files.write_atomically(path, lambda file: file.write(drawing.numpy().tobytes()))

    figure.Figure.savefig = savefig
    pictures.save_animation = save_animation


def _search_quickly():
    """Lets studies and comparisons measure nothing, and search a learning rate alone."""
    rates = {"optimizer.learning_rate": Uniform(1e-4, 1.0, log=True)}
    registry.TASKS["adding"] = dataclasses.replace(
        registry.TASKS["adding"], search=rates
    )
    budget.stage_seconds = lambda *_: [1.0]
    streaming.measure = lambda steps: dict.fromkeys(steps, 1.0)
    comparison._POLL = 0.05
    comparison.subprocess = types.SimpleNamespace(
        Popen=processes.Fork, STDOUT=subprocess.STDOUT
    )


def config(layer: str) -> dict[str, Any]:
    """Returns the config of a compared model."""
    values = {**OVERRIDES, "model.dilation_rate": (1,)}
    trellis = search.apply(configs.load("adding", "small"), values)
    return search.apply(trellis, {"model.layer": layer}).to_dict()


def flags(*without: str) -> list[str]:
    """Returns the flags of the run without its folder, and without some of its fields."""
    fields = [
        f"--config.{name}={value}"
        for name, value in OVERRIDES.items()
        if name not in without
    ]
    return ["--task=adding", "--preset=small", *fields]
