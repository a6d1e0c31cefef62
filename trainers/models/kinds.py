"""What every kind of layer has: it builds one, and says how large it is and what it refuses."""

import functools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import keras
from ml_collections import ConfigDict

from trainers.data import threads
from trainers.models.fields import Rule, Values


class Batch(NamedTuple):
    """What a training step reads.

    Attributes:
        rows: the number of sequences, `B`.
        steps: the number of time steps, `T`.
        last_only: whether only the last output is used.
    """

    rows: int
    steps: int
    last_only: bool = False

    @property
    def positions(self) -> int:
        """The number of time steps of all sequences, `B T`."""
        return self.rows * self.steps


class Activations(NamedTuple):
    """How many numbers the forward pass of a batch keeps for the gradient.

    Attributes:
        least: a lower bound.
        about: an estimate.
    """

    least: int
    about: int


SETTINGS = ("dropout", "initial_deviation")
"""The fields of `config.model` that `build` has of its settings; most kinds read both."""


class Kind:
    """A kind of layer.

    A kind has to define `build`. It may estimate its memory more closely.

    Attributes:
        gated: whether `config.model.gate` chooses its gate.
        is_keras: whether its loop over time is Keras's own.
        square: whether its inputs must have as many channels as its outputs.
        own: the fields of `config.model` that this kind reads, and some other kind does not.
        untuned: those of them that a study leaves as they are.
    """

    gated: bool = False
    is_keras: bool = False
    square: bool = False
    own: tuple[str, ...] = ()
    untuned: tuple[str, ...] = ()

    def build(self, model: ConfigDict, outputs: int, **settings: Any) -> Any:
        """Returns the layer; its outputs have `outputs` channels.

        Args:
            model: the group `model` of the config.
            outputs: channels of the outputs.
            **settings: `seed`, `dropout` of the inputs and `dtype`; initializers, if
                `model.initial_deviation` is given.
        """
        raise NotImplementedError

    def network(self, model: ConfigDict, outputs: int) -> str:
        """Returns in words what a config with this kind trains, and how large it is.

        Args:
            model: the group `model` of the config.
            outputs: channels of the outputs.
        """
        return f"{model.layer}: {outputs} units"

    def parameters(self, model: ConfigDict, inputs: int, outputs: int) -> int:
        """Returns the number of its parameters, for `inputs` channels of input."""
        make = functools.partial(self.build, model, outputs, dtype=model.dtype)
        return count_parameters(make, (None, None, inputs))

    def activations(self, model: ConfigDict, batch: Batch) -> Activations:
        """Estimates what it keeps of a batch.

        Tracing a training step would tell more, and takes 4 to 6 seconds of a processor.
        """
        # Ours: four gate blocks before and after their activations, and two states.
        return Activations(0, batch.positions * 10 * model.units)

    def rules(self, values: Values) -> Iterator[Rule]:
        """Yields what a config with this kind must not have.

        Args:
            values: all of the config, by dotted names.
        """
        yield from without_levels(values)


def count_parameters(
    make: Callable[[], keras.layers.Layer], *shapes: Sequence[int | None]
) -> int:
    """Returns the number of trainable parameters of a layer.

    It takes some hundredths of a second and no memory, however large the layer is.

    Args:
        make: returns the layer, built or not.
        *shapes: what its `build` takes.

    Raises:
        ValueError: the layer cannot be made or built.
    """
    # Keras draws the seeds of initializers from Python's generator: a run has to find it as it was.
    state = random.getstate()
    try:
        # Keras lists the variables of the scope, to give them values at the end of a later one. The
        # list is of a thread, and goes with it.
        return threads.call(_count, make, shapes)
    finally:
        random.setstate(state)


def _count(
    make: Callable[[], keras.layers.Layer], shapes: Sequence[Sequence[int | None]]
) -> int:
    with keras.StatelessScope(initialize_variables=False):
        layer = make()
        if not layer.built:
            layer.build(*shapes)
    return sum(math.prod(variable.shape) for variable in layer.trainable_variables)


def without_levels(values: Values) -> Iterator[Rule]:
    """Yields what a layer refuses that has no outputs of inner levels."""
    layer = f"config.model.layer={values['model.layer']!r}"
    expected = f"() with {layer}, whose levels cannot be fewer"
    yield values["training.depths"], "training.depths", expected, "model.layer"


def unused_dilations(values: Values) -> Iterator[Rule]:
    """Yields what a layer refuses whose level i has entry i of the dilations, in a cycle."""
    depth = values["model.depth"]
    expected = f"at most config.model.depth={depth} dilations: no level uses more"
    more = len(values["model.dilation_rate"]) > depth
    yield more, "model.dilation_rate", expected


def stem_rules(values: Values) -> Iterator[Rule]:
    """Yields what a stem must not be: each of its fields has a value for each convolution."""
    filters = "model.stem.filters"
    count = len(values[filters])
    for name in ("model.stem.kernel_size", "model.stem.strides"):
        expected = f"as many numbers as config.{filters} has"
        yield len(values[name]) != count, name, expected, filters


def stem_sizes(model: ConfigDict) -> list[tuple[int, int, int]]:
    """Returns the filters, kernel size and strides of each convolution before the layer."""
    stem = model.stem
    return [*zip(stem.filters, stem.kernel_size, stem.strides, strict=True)]


def class_name(make: Callable[..., Any]) -> str:
    """Returns the name of a class, with the options of a `functools.partial`."""
    options = getattr(make, "keywords", {})
    names = [getattr(make, "func", make).__name__]
    names += [f"{name}={value}" for name, value in options.items()]
    return ", ".join(names)


def stacked(part: str, channels: Sequence[int]) -> str:
    """Returns parts of a stack in words, such as "2 layers of 283 and 200 units".

    Args:
        part: what it is a stack of, such as "layer".
        channels: the units of each part.
    """
    parts = counted(len(channels), part)
    *lower, top = channels
    if {*lower} <= {top}:
        return f"{parts} of {top} units"
    return f"{parts} of {', '.join(map(str, lower))} and {top} units"


def counted(count: int, noun: str) -> str:
    """Returns a number with its noun, such as "2 layers"."""
    return f"{count} {noun}{'s' * (count != 1)}"


def widths(count: int, units: int, outputs: int) -> list[int]:
    """Returns the channels of stacked layers, the last as wide as the outputs."""
    return [units] * (count - 1) + [outputs]
