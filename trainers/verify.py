"""Trains the authors' code and ours side by side, and compares every number.

    python -m trainers.verify --task=ptb --reference_dir=CLONE --data_dir=TEXT --steps=3
    python -m trainers.verify --task=ptb --reference_dir=CLONE --config.model.units=64 ...

Both start from weights that the authors' code draws, and read the recipe's batches in float64,
without dropout. For each step the command prints the largest difference of each tensor and the
tensor's largest value: outputs, states, loss terms, gradients, and the parameters after the step.
The exit status is 1 if a tensor diverges. `CLONE` is a clone of
https://github.com/locuslab/trellisnet. The command needs torch (`pip install '.[verify]'`).
"""

import dataclasses
import importlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from absl import flags
from ml_collections import ConfigDict

from keras_trellis import TrellisLM
from trainers.authors import clone as authors
from trainers.authors import released, torch_files
from trainers.authors.released import Arrays
from trainers.cli import command, run_flags
from trainers.language import experiment, modeling, models
from trainers.tasks import corpora, registry, schema
from trainers.tasks.task import LanguageTask
from trainers.training import runs

FLAGS = flags.FLAGS
TOLERANCE = 1e-9  # relative to a tensor's largest value; float64 has 2e-16
# The fields of `config.model` that their code has too, or that change nothing in a trellis network.
# All others, those of a later release too, must have their defaults.
_THEIRS = frozenset(
    {
        *released.TOLD,
        *released.UNTOLD,
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
        step: The training step, from 1.
        tensor: The tensor's name.
        largest: The largest absolute difference.
        magnitude: The largest absolute value in theirs.
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
        ValueError: Names or shapes differ.
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

    Whatever the preset, it computes in float64, and follows their code in three details: the last
    word's embedding gets no gradient from the input, a mixture of softmaxes adds 1e-8 to each
    probability, and auxiliary levels are counted from the bottom.

    Raises:
        ValueError: A field has a value that their code lacks.
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
    model.untrained_input_id = -1
    model.auxiliary_from = "bottom"
    model.dtype = "float64"  # the weights are compared to the last digits
    config.training.epochs = steps  # each epoch has at least one step
    return config


class Ours:
    """Our model in training, with the trainers' own loss, loop and optimizer.

    Args:
        config: From `comparable`.
        weights: The authors' weights, as `convert.language_model_from_torch` takes them.
        corpus: The text.
    """

    def __init__(
        self,
        config: ConfigDict,
        weights: Arrays,
        corpus: corpora.Corpus,
    ):
        self._config = config
        self.model = models.build(config, corpus.vocabulary.size)
        released.give_weights(self.model, released.model_of(weights, config))
        self.task = modeling.LanguageModeling(
            self.model, config, corpus.train, corpus.validation
        )
        optimizer = runs.optimizer_of(config)
        self._trainer = runs.trainer_of(config, self.task, optimizer)
        self._look = tf.function(self._computed, autograph=False)
        self.start_epoch()

    def start_epoch(self) -> None:
        """Resets the state."""
        self._state = self.task.initial_state()

    def batches(self) -> Iterator[Any]:
        """Returns the batches of the run, (ids, targets), each [B, T]."""
        return self._trainer.batches(0)

    def step(self, batch: Any) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
        """Trains on a batch.

        Returns:
            What the step computed: the scored outputs [B, T', output_units], the state after the
            window, the terms of the loss, their sum, the norm of the gradient; and the gradient of
            each trainable variable before clipping.
        """
        found, gradients = self._look(batch, self._state)
        metrics, self._state = self._trainer.step(batch, self._state)
        del metrics["weight"]
        found = {
            name: np.asarray(value) for name, value in {**found, **metrics}.items()
        }
        return found, [gradient.numpy() for gradient in gradients]

    def _computed(
        self, batch: Any, state: Any
    ) -> tuple[dict[str, tf.Tensor], list[tf.Tensor]]:
        ids, _ = batch
        trellis: Any = self.model.trellis  # a `TrellisLayer`, by `released.check_kind`
        outputs, hidden, cell = trellis(
            self.model.embedding(ids),
            initial_state=state or None,
            discard=self._config.data.horizon,
        )
        with tf.GradientTape() as tape:
            loss, weight, _, _ = self.task.loss(batch, state)
            loss /= weight
        variables = [variable.value for variable in self.model.trainable_variables]
        gradients = [
            tf.convert_to_tensor(part) for part in tape.gradient(loss, variables)
        ]
        return {"outputs": outputs, "hidden": hidden, "cell": cell}, gradients


def differences(
    theirs: Any, ours: Ours, config: ConfigDict, steps: int
) -> Iterator[Difference]:
    """Trains both and yields each step's differences.

    Args:
        theirs: A `reference.Reference`.
        ours: With the same weights.
        config: From `comparable`.
        steps: Training steps.
    """
    names = variable_names(ours.model)

    def named(what: str, values: Sequence[Any]) -> dict[str, np.ndarray]:
        pairs = zip(names, values, strict=True)
        return {f"{what} of {name}": np.asarray(value) for name, value in pairs}

    for step, batch in enumerate(itertools.islice(ours.batches(), steps)):
        if step % ours.task.steps_per_epoch == 0:
            theirs.start_epoch()
            ours.start_epoch()
        expected, their_gradients = theirs.step(*(part.numpy() for part in batch))
        found, gradients = ours.step(batch)
        sides = {"gradient": their_gradients, "new value": theirs.weights()}
        for (
            what,
            arrays,
        ) in sides.items():  # our model of any arrays has our names for them
            expected |= named(
                what, released.model_of(arrays, config).trainable_variables
            )
        found |= named("gradient", gradients)
        found |= named("new value", ours.model.trainable_variables)
        yield from compare(step + 1, expected, found)


def variable_names(model: TrellisLM) -> list[str]:
    """Returns a name such as "head/bias" for each trainable variable."""
    return [variable.path.partition("/")[2] for variable in model.trainable_variables]


def summary(found: Sequence[Difference]) -> str:
    """Describes the first difference that diverges or, if none does, the largest."""
    for difference in found:
        if difference.diverges:
            return f"diverges first: step {difference.step}, {difference.tensor}"
    shares = {each: each.largest / each.magnitude for each in found if each.magnitude}
    largest = max(shares, key=shares.__getitem__)
    return (
        f"{found[-1].step} steps agree: the largest difference is {shares[largest]:.1e} of a "
        f"tensor's largest value (step {largest.step}, {largest.tensor})"
    )


def main(argv: list[str]) -> int:
    """Compares, and prints; returns the exit status."""
    return command.exit_status(argv, _verify)


def parse_flags(argv: list[str]) -> list[str]:
    """Parses the command line; exits with one line if it is not valid."""
    return command.parse(argv, _check_flags)


def _check_flags() -> None:
    command.require("task", "reference_dir")
    known = registry.of_kind(LanguageTask)
    if FLAGS.task not in known:
        raise ValueError(
            f"--task must be one of {', '.join(known)}. Received: --task={FLAGS.task}"
        )
    if FLAGS.workdir is not None:
        raise ValueError(
            f"--workdir has no use here. Received: --workdir={FLAGS.workdir}"
        )


def _verify() -> int:
    config = comparable(FLAGS.config, FLAGS.steps)
    reference = _reference_module(FLAGS.reference_dir)
    corpus = experiment.load_corpus(config, FLAGS.data_dir)
    theirs = reference.Reference(FLAGS.reference_dir, config, corpus.vocabulary.size)
    ours = Ours(config, theirs.weights(), corpus)
    found = []
    for difference in differences(theirs, ours, config, FLAGS.steps):
        print(difference, flush=True)
        found.append(difference)
    print(summary(found))
    diverges = any(difference.diverges for difference in found)
    return command.Status.DIFFERENT if diverges else command.Status.DONE


def _reference_module(clone: str) -> Any:
    authors.check(clone, "model")
    torch_files.torch()
    return importlib.import_module("trainers.authors.reference")


if __name__ == "__main__":
    command.start(main, parse_flags, computes=True)
