"""Trains the authors' code and ours side by side, and compares every number.

    python -m trainers.verify --task=ptb --reference_dir=CLONE --data_dir=TEXT --steps=3
    python -m trainers.verify --task=ptb --reference_dir=CLONE --config.model.units=64 ...
    python -m trainers.verify --task=permuted_mnist --reference_dir=CLONE --data_dir=IMAGES

Both start from weights that the authors' code draws, and read the recipe's batches in float64,
without dropout. For each step the command prints the largest difference of each tensor and the
tensor's largest value: of texts outputs, states and loss terms, of images log-probabilities and the
loss; of both gradients, and the parameters after the step.
The exit status is 1 if a tensor diverges. `CLONE` is a clone of
https://github.com/locuslab/trellisnet. The command needs torch (`pip install '.[verify]'`).
"""

import dataclasses
import importlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from absl import flags
from ml_collections import ConfigDict

from trainers.authors import clone as authors
from trainers.authors import released, torch_files
from trainers.authors.released import Arrays
from trainers.cli import command, run_flags, task_flags
from trainers.data.sequences import SequenceData
from trainers.language import modeling, models, texts
from trainers.sequences import models as sequence_models
from trainers.sequences.modeling import SequenceModeling
from trainers.tasks import corpora, registry, schema, sequences
from trainers.tasks.task import ImageTask, LanguageTask
from trainers.training import runs

FLAGS = flags.FLAGS
TOLERANCE = 1e-9  # relative to a tensor's largest value; float64 has 2e-16
# The fields of `config.model` that their code has too, or that change nothing in a trellis network.
# All others, those of a later release too, must have their defaults.
_THEIRS = frozenset(
    {
        *released.IN_SHAPES,
        *released.NOT_IN_SHAPES,
        "dtype",  # both compute in float64
        "layer",
        "layers",
        "equilibrium",
        "tensorized",
        "transformer",
        "head",
        "mixture",
        "adaptive",
        "initial_deviation",
        "embeddings_initializer",
        "auxiliary_every",
        "auxiliary_from",
        "auxiliary_weight",
        "activation_weight",
        "temporal_weight",
        "untrained_input_id",
    }
)

flags.adopt_module_key_flags(run_flags)
flags.DEFINE_string("reference_dir", None, "A clone of github.com/locuslab/trellisnet.")
flags.DEFINE_integer("steps", 3, "Training steps to compare.", lower_bound=1)


class Difference(NamedTuple):
    """How far a tensor of ours differs from theirs.

    Attributes:
        step: the training step, from 1.
        tensor: the tensor's name.
        largest: the largest absolute difference.
        magnitude: the largest absolute value in theirs.
    """

    step: int
    tensor: str
    largest: float
    magnitude: float

    @property
    def diverges(self) -> bool:
        """Whether the difference is more than rounding, or NaN."""
        return not self.largest <= TOLERANCE * self.magnitude

    def __str__(self) -> str:
        mark = "  diverges" if self.diverges else ""
        return f"{self.step:4}  {self.tensor:37} {self.largest:8.1e} of {self.magnitude:8.1e}{mark}"


def compare(step: int, theirs: Arrays, ours: Arrays) -> list[Difference]:
    """Returns the difference of each tensor, in the order of theirs.

    Raises:
        ValueError: names or shapes differ.
    """
    shapes = [
        {name: np.shape(value) for name, value in side.items()}
        for side in (theirs, ours)
    ]
    if shapes[0] != shapes[1]:
        raise ValueError(
            f"tensors differ in name or shape: theirs {shapes[0]}, ours {shapes[1]}"
        )
    return [
        Difference(step, name, _largest(value - ours[name]), _largest(value))
        for name, value in theirs.items()
    ]


def _largest(values: np.ndarray) -> float:
    return float(np.max(np.abs(values), initial=0.0))


def comparable(config: ConfigDict, steps: int) -> ConfigDict:
    """Returns a config without dropout, for so many steps, that the authors' code can match.

    Whatever the preset, it computes in float64, and a language model follows their code in three
    details: the last word's embedding gets no gradient from the input, a mixture of softmaxes adds
    1e-8 to each probability, and auxiliary levels are counted from the bottom.

    Raises:
        ValueError: a field has a value that their code lacks.
    """
    config = ConfigDict(config.to_dict())
    model = config.model
    released.check_kind(config)
    dropouts = [name for name in model if name.endswith("dropout")]
    for name in dropouts:
        if model[name] is not None:
            model[name] = 0.0
    model.mixture.update(latent_dropout=0.0, epsilon=1e-8)
    for field in dataclasses.fields(schema.Model):
        value = model[field.name]
        if field.name not in _THEIRS and value != field.default:
            raise ValueError(
                f"`config.model.{field.name}` must be {field.default!r}, for the authors' code has "
                f"nothing else. Received: config.model.{field.name}={value!r}"
            )
    task = registry.get(config.task)
    if isinstance(task, ImageTask):
        _check_outputs(model, len(task.images.classes))
        _check_smoothing(config)
    else:
        model.untrained_input_id = -1
        model.auxiliary_from = "bottom"
    model.dtype = "float64"  # the weights are compared to the last digits
    config.training.epochs = steps  # each epoch has at least one step
    return config


def _check_smoothing(config: ConfigDict) -> None:
    """Raises ValueError if labels are smoothed."""
    smoothing = config.training.label_smoothing
    if smoothing:
        raise ValueError(
            "`config.training.label_smoothing` must be 0.0, as in the authors' code. "
            f"Received: config.training.label_smoothing={smoothing!r}"
        )


def _check_outputs(model: ConfigDict, classes: int) -> None:
    """Raises ValueError unless a classifier is as theirs, whose linear map is square."""
    if model.output_units != classes:
        raise ValueError(
            f"`config.model.output_units` must be {classes}, the number of classes, as in the "
            f"authors' code. Received: config.model.output_units={model.output_units!r}"
        )


class _InTraining:
    """Our model in training, with the trainers' own loss, loop and optimizer.

    Args:
        config: from `comparable`.
        weights: the authors' weights, as `convert` takes them.
        model: the model.
        task: what the loop trains.
    """

    def __init__(self, config: ConfigDict, weights: Arrays, model: Any, task: Any):
        self._config, self.model, self.task = config, model, task
        released.give_weights(model, self.from_theirs(weights))
        optimizer = runs.make_optimizer(config)
        self._trainer = runs.make_trainer(config, task, optimizer)
        self._look = tf.function(self._computed, autograph=False)
        self.start_epoch()

    def from_theirs(self, arrays: Arrays) -> Any:
        """Returns a model of ours with arrays that have the names of their weights."""
        raise NotImplementedError

    def read_by_them(self, batch: Any) -> tuple[np.ndarray, np.ndarray]:
        """Returns a batch as their model reads it."""
        raise NotImplementedError

    def start_epoch(self) -> None:
        """Resets the state."""
        self._state = self.task.initial_state()

    def batches(self) -> Iterator[Any]:
        """Returns the batches of the run, (inputs, targets)."""
        return self._trainer.batches(0)

    def step(self, batch: Any) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
        """Trains on a batch.

        Returns:
            what the step computed: what `_outputs` returns, the terms of the loss, their sum, the
            norm of the gradient; and the gradient of each trainable variable before clipping.
        """
        values, gradients = self._look(batch, self._state)
        metrics, self._state = self._trainer.step(batch, self._state)
        for name in ("weight", "accuracy"):
            metrics.pop(name, None)
        values = {
            name: np.asarray(value) for name, value in {**values, **metrics}.items()
        }
        return values, [gradient.numpy() for gradient in gradients]

    def _outputs(self, inputs: Any, state: Any) -> dict[str, tf.Tensor]:
        """Returns what the model computes of a batch."""
        raise NotImplementedError

    def _computed(
        self, batch: Any, state: Any
    ) -> tuple[dict[str, tf.Tensor], list[tf.Tensor]]:
        with tf.GradientTape() as tape:
            loss, weight, _, _ = self.task.loss(batch, state)
            loss /= weight
        variables = [variable.value for variable in self.model.trainable_variables]
        gradients = [
            tf.convert_to_tensor(part) for part in tape.gradient(loss, variables)
        ]
        return self._outputs(batch[0], state), gradients


class Ours(_InTraining):
    """Our language model.

    Args:
        config: from `comparable`.
        weights: the authors' weights, as `convert.language_model_from_torch` takes them.
        corpus: the text.
    """

    def __init__(self, config: ConfigDict, weights: Arrays, corpus: corpora.Corpus):
        model = models.build(config, corpus.vocabulary.size)
        parts = corpus.train, corpus.validation
        task = modeling.LanguageModeling(model, config, *parts)
        super().__init__(config, weights, model, task)

    def from_theirs(self, arrays: Arrays) -> Any:
        """Returns a language model with arrays that have the names of their weights."""
        return released.language_model(arrays, self._config)

    def read_by_them(self, batch: Any) -> tuple[np.ndarray, np.ndarray]:
        """Returns ids and targets, each `[B, T]`, as they are."""
        ids, targets = batch
        return ids.numpy(), targets.numpy()

    def _outputs(self, inputs: Any, state: Any) -> dict[str, tf.Tensor]:
        """Returns the scored outputs `[B, T', output_units]`, and the state after the window."""
        trellis: Any = self.model.trellis  # a `TrellisLayer`, by `released.check_kind`
        outputs, hidden, cell = trellis(
            self.model.embedding(inputs),
            initial_state=state or None,
            discard=self._config.data.horizon,
        )
        return {"outputs": outputs, "hidden": hidden, "cell": cell}


class OurClassifier(_InTraining):
    """Our classifier of pixel sequences.

    Args:
        config: from `comparable`.
        weights: the authors' weights, as `convert.classifier_from_torch` takes them.
        data: the images.
    """

    def __init__(self, config: ConfigDict, weights: Arrays, data: SequenceData):
        self._permutation, self._normalise = data.permutation, data.normalise
        # A graph may round the normalisation in another way than the next: `batches` has it.
        data = dataclasses.replace(data, normalise=lambda normalised: normalised)
        model = sequence_models.build(config, data)
        super().__init__(config, weights, model, SequenceModeling(model, config, data))

    def from_theirs(self, arrays: Arrays) -> Any:
        """Returns a classifier with arrays that have the names of their weights."""
        return released.classifier(arrays, self._config, self._permutation)

    def batches(self) -> Iterator[Any]:
        """Returns the batches of the run, (normalised images `[B, T, p]`, labels `[B]`)."""
        for pixels, labels in super().batches():
            yield self._normalise(pixels), labels

    def read_by_them(self, batch: Any) -> tuple[np.ndarray, np.ndarray]:
        """Returns the images in the order in which the pixels are read, and the labels.

        Order and normalisation stand in their script, outside of their model.
        """
        images, labels = (part.numpy() for part in batch)
        if self._permutation is not None:
            images = images[:, list(self._permutation)]
        return images, labels

    def _outputs(self, inputs: Any, state: Any) -> dict[str, tf.Tensor]:
        """Returns the log-probabilities of the classes, `[B, classes]`."""
        return {"log_probs": tf.nn.log_softmax(self.model(inputs))}


def differences(theirs: Any, ours: _InTraining, steps: int) -> Iterator[Difference]:
    """Trains both and yields each step's differences.

    Args:
        theirs: a `reference.Reference` or a `reference.PixelReference`.
        ours: with the same weights.
        steps: training steps.
    """
    names = variable_names(ours.model)

    def named(what: str, values: Sequence[Any]) -> dict[str, np.ndarray]:
        pairs = zip(names, values, strict=True)
        return {f"{what} of {name}": np.asarray(value) for name, value in pairs}

    for step, batch in enumerate(itertools.islice(ours.batches(), steps)):
        if step % ours.task.steps_per_epoch == 0:
            theirs.start_epoch()
            ours.start_epoch()
        expected, their_gradients = theirs.step(*ours.read_by_them(batch))
        actual, gradients = ours.step(batch)
        sides = {"gradient": their_gradients, "new value": theirs.weights()}
        for what, arrays in sides.items():
            # Our model of any arrays has our names for them.
            expected |= named(what, ours.from_theirs(arrays).trainable_variables)
        actual |= named("gradient", gradients)
        actual |= named("new value", ours.model.trainable_variables)
        yield from compare(step + 1, expected, actual)


def variable_names(model: keras.Model) -> list[str]:
    """Returns a name such as "head/bias" for each trainable variable."""
    return [variable.path.partition("/")[2] for variable in model.trainable_variables]


def summary(rows: Sequence[Difference]) -> str:
    """Describes the first difference that diverges or, if none does, the largest."""
    for difference in rows:
        if difference.diverges:
            return f"diverges first: step {difference.step}, {difference.tensor}"
    shares = {
        difference: difference.largest / difference.magnitude
        for difference in rows
        if difference.magnitude
    }
    largest = max(shares, key=shares.__getitem__)
    return (
        f"{rows[-1].step} steps agree: the largest difference is {shares[largest]:.1e} of a "
        f"tensor's largest value (step {largest.step}, {largest.tensor})"
    )


def main(argv: list[str]) -> int:
    """Compares, and prints; returns the exit status."""
    return command.exit_status(argv, _verify)


def parse_flags(argv: list[str]) -> list[str]:
    """Parses the command line; exits with one line if it is not valid."""
    return command.parse(argv, _check_flags, _known())


def _check_flags() -> None:
    task_flags.require(FLAGS.task, _known())
    command.require("reference_dir")
    if FLAGS.task not in _known():
        raise ValueError(
            f"--task must be one of {', '.join(_known())}. Received: --task={FLAGS.task}"
        )
    if FLAGS.workdir is not None:
        raise ValueError(
            f"--workdir has no use here. Received: --workdir={FLAGS.workdir}"
        )


def _known() -> list[str]:
    """Returns the tasks that the authors' code has too."""
    return [*registry.by_kind(LanguageTask), *registry.by_kind(ImageTask)]


def _verify() -> int:
    released.check_kind(FLAGS.config)
    schema.check_read(FLAGS.config)
    config = comparable(FLAGS.config, FLAGS.steps)
    is_images = isinstance(registry.get(config.task), ImageTask)
    theirs, ours = (_image_models if is_images else _text_models)(config)
    rows = []
    for difference in differences(theirs, ours, FLAGS.steps):
        print(difference, flush=True)
        rows.append(difference)
    print(summary(rows))
    diverges = any(difference.diverges for difference in rows)
    return command.Status.DIFFERENT if diverges else command.Status.DONE


def _text_models(config: ConfigDict) -> tuple[Any, Ours]:
    """Returns their language model and ours."""
    clone = FLAGS.reference_dir
    reference = _reference_module(clone, "model")
    corpus = texts.load_corpus(config, FLAGS.data_dir)
    theirs = reference.Reference(clone, config, corpus.vocabulary.size)
    return theirs, Ours(config, theirs.weights(), corpus)


def _image_models(config: ConfigDict) -> tuple[Any, OurClassifier]:
    """Returns their classifier and ours."""
    clone = FLAGS.reference_dir
    reference = _reference_module(clone, "seq_MNIST_CIFAR/model")
    data = sequences.load(config, FLAGS.data_dir)
    theirs = reference.PixelReference(clone, config, data.train.inputs.shape[-1])
    return theirs, OurClassifier(config, theirs.weights(), data)


def _reference_module(clone: str, name: str) -> Any:
    authors.check(clone, name)
    torch_files.torch()
    return importlib.import_module("trainers.authors.reference")


if __name__ == "__main__":
    command.start(main, parse_flags, computes=True)
