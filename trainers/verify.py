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
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from absl import flags
from ml_collections import ConfigDict

from trainers.authors import released
from trainers.authors.beside import InTraining
from trainers.authors.released import Arrays
from trainers.cli import command, config_flags, run_flags
from trainers.tasks import registry, schema

FLAGS = flags.FLAGS
_TASKS = registry.with_part("authors")  # that the authors' code has too
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
        "stem",  # refused with an image's other fields
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
    _part(config).make_comparable(config)
    model.dtype = "float64"  # the weights are compared to the last digits
    config.training.epochs = steps  # each epoch has at least one step
    return config


def differences(theirs: Any, ours: InTraining, steps: int) -> Iterator[Difference]:
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


def _check_flags() -> None:
    config_flags.require(FLAGS.task, _TASKS)
    command.require("reference_dir")
    if FLAGS.task not in _TASKS:
        raise ValueError(
            f"--task must be one of {', '.join(_TASKS)}. Received: --task={FLAGS.task}"
        )
    if FLAGS.workdir is not None:
        raise ValueError(
            f"--workdir has no use here. Received: --workdir={FLAGS.workdir}"
        )


def _part(config: ConfigDict) -> Any:
    """Returns what the kind of a config's task has in common with the authors' code."""
    return registry.get(config.task).part("authors")


def _verify() -> int:
    released.check_kind(FLAGS.config)
    schema.check_read(FLAGS.config)
    config = comparable(FLAGS.config, FLAGS.steps)
    theirs, ours = _part(config).models(FLAGS.reference_dir, config, FLAGS.data_dir)
    rows = []
    for difference in differences(theirs, ours, FLAGS.steps):
        print(difference, flush=True)
        rows.append(difference)
    print(summary(rows))
    diverges = any(difference.diverges for difference in rows)
    return command.Status.DIFFERENT if diverges else command.Status.DONE


main, parse_flags = command.program(_verify, _check_flags, _TASKS)

if __name__ == "__main__":
    command.start(main, parse_flags, computes=True)
