"""The kinds of recurrent layers, with their fields and rules."""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import keras
from ml_collections import ConfigDict

from keras_trellis import recurrent
from keras_trellis.layers.recurrent import RecurrentLayer
from keras_trellis.recurrent.gated import GatedRNN
from trainers.baselines.grid_lstm import GridLSTMCell
from trainers.models.fields import (
    COUNT,
    FINITE,
    RATE,
    SWITCH,
    Rule,
    Values,
    integer,
    one_of,
    or_none,
)
from trainers.models.kinds import (
    SETTINGS,
    Activations,
    Batch,
    Kind,
    class_name,
    counted,
    stacked,
    widths,
)


@dataclasses.dataclass(frozen=True)
class TensorizedGroup:
    """The arguments of the layer "tensorized".

    Attributes:
        size: places along each axis of the state.
        rank: 2 for a line of places, 3 for a square.
    """

    size: Annotated[int, COUNT] = 3
    rank: Annotated[int, integer(2, 4)] = 2
    kernel_size: Annotated[int, integer(2)] = 3
    memory_convolution: Annotated[bool, SWITCH] = True
    channel_normalization: Annotated[bool, SWITCH] = False
    cell: Annotated[str, one_of("lstm", "rnn")] = "lstm"
    forget_bias: Annotated[float, FINITE] = 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fields:
    """The fields of `config.model` that recurrent layers alone have.

    Attributes:
        layer_dropout: the dropout between the layers; None: `dropout`, as at the first.
        variant: the form of the equations of the gated layers, of their paper or its code.
    """

    layer_dropout: Annotated[float | None, or_none(RATE)] = None
    variant: Annotated[str, one_of("paper", "released")] = "paper"
    tensorized: TensorizedGroup = TensorizedGroup()


class Recurrent(Kind):
    """`config.model.layers` of Keras's layers, the last as wide as the outputs.

    Args:
        layer: Keras's layer.
        blocks: gate blocks of its cell.
        skip_input: whether the layers above the first read the input too.
    """

    is_keras = True
    own: tuple[str, ...] = ("layers", "layer_dropout", "recurrent_dropout", *SETTINGS)

    def __init__(
        self,
        layer: Callable[..., keras.layers.RNN],
        blocks: int,
        skip_input: bool = False,
    ) -> None:
        self._layer, self._blocks = layer, blocks
        self._skip_input = skip_input

    def build(
        self, model: ConfigDict, outputs: int, seed: int = 0, **settings: Any
    ) -> RecurrentLayer:
        """Returns a stack of layers; each draws its own masks."""
        layers = []
        settings |= self._arguments(model)
        for number, width in enumerate(widths(model.layers, model.units, outputs), 1):
            own = {"seed": seed + number, "name": f"layer_{number}"}
            layers.append(self._layer(width, **own, **settings))
            if model.layer_dropout is not None:
                settings["dropout"] = model.layer_dropout
        return RecurrentLayer(layers, skip_input=self._skip_input, name="trellis")

    def network(self, model: ConfigDict, outputs: int) -> str:
        """Returns in words how many layers there are, and of which class."""
        layers = stacked("layer", widths(model.layers, model.units, outputs))
        reads = ", each of which reads the input" if self._skip_input else ""
        return f"{class_name(self._layer)}: {layers}{reads}"

    def _arguments(self, model: ConfigDict) -> dict[str, Any]:
        return {"recurrent_dropout": model.recurrent_dropout}

    def activations(self, model: ConfigDict, batch: Batch) -> Activations:
        """Counts all layers; Keras's loop keeps the kernels of each time step too."""
        channels = batch.positions * model.layers * model.units
        # Kernels of the inputs and of the state, [units, blocks units] each.
        kernels = batch.steps * model.layers * 2 * self._blocks * model.units**2
        about = channels * (2 * self._blocks + 4) + kernels
        return Activations(channels * self._blocks, about)


class Gated(Recurrent):
    """`config.model.layers` layers of `keras_trellis.recurrent`.

    Args:
        layer: the layer.
        blocks: gate blocks of its cell, the candidate included.
        **options: further arguments of the layer.
    """

    is_keras = False
    own: tuple[str, ...] = (*Recurrent.own, "weight_dropout", "variant")

    def __init__(self, layer: type[GatedRNN], blocks: int, **options: Any) -> None:
        super().__init__(functools.partial(layer, **options), blocks)
        self.square = layer.cell_class.square
        self.variants = tuple(layer.cell_class.biases)

    def _arguments(self, model: ConfigDict) -> dict[str, Any]:
        return {
            "recurrent_dropout": model.recurrent_dropout,
            "weight_dropout": model.weight_dropout,
            "variant": model.variant,
        }

    def activations(self, model: ConfigDict, batch: Batch) -> Activations:
        """Counts states, products with the state, and what they are made of."""
        channels = batch.positions * model.layers * model.units
        return Activations(channels * self._blocks, channels * (3 * self._blocks + 4))

    def rules(self, values: Values) -> Iterator[Rule]:
        """Yields what is refused of its equations and its channels."""
        yield from super().rules(values)
        layer = values["model.layer"]
        expected = f"one of {self.variants} with config.model.layer={layer!r}"
        yield values["model.variant"] not in self.variants, "model.variant", expected
        if self.square:
            yield from _square_rules(values)


class Grid(Recurrent):
    """`config.model.layers` Grid LSTM blocks of one set of weights, all as wide as the outputs."""

    own = ("layers", "initial_deviation")

    def __init__(self) -> None:
        super().__init__(keras.layers.RNN, blocks=8)

    def build(
        self, model: ConfigDict, outputs: int, seed: int = 0, **settings: Any
    ) -> RecurrentLayer:
        """Returns the blocks as one layer; it drops nothing."""
        own = {name: settings[name] for name in _OF_GRID if name in settings}
        cell = GridLSTMCell(outputs, model.layers, name="cell", **own)
        layer = keras.layers.RNN(cell, name="layer_1", dtype=model.dtype)
        return RecurrentLayer([layer], name="trellis")

    def network(self, model: ConfigDict, outputs: int) -> str:
        """Returns in words how many blocks there are."""
        return f"Grid LSTM: {stacked('block', [outputs] * model.layers)}"

    def rules(self, values: Values) -> Iterator[Rule]:
        """Yields what is refused of its channels, too."""
        yield from super().rules(values)
        outputs = values["model.output_units"] or values["model.embedding_units"]
        width = outputs or values["model.units"]
        expected = (
            f"{width}, the channels of the outputs: all blocks of a grid are alike"
        )
        yield values["model.units"] != width, "model.units", expected


_OF_GRID = ("kernel_initializer", "dtype")


class Tensorized(Gated):
    """`config.model.layers` tensorized LSTMs of `config.model.units` channels a place."""

    own = (*Gated.own, "tensorized")

    def __init__(self) -> None:
        super().__init__(recurrent.TensorizedLSTM, blocks=4)

    def _arguments(self, model: ConfigDict) -> dict[str, Any]:
        return super()._arguments(model) | model.tensorized.to_dict()

    def network(self, model: ConfigDict, outputs: int) -> str:
        """Returns in words how many places there are, too."""
        places = model.tensorized.size ** (model.tensorized.rank - 1)
        layers = super().network(model, outputs)
        return f"{layers} at each of {counted(places, 'place')}"

    def activations(self, model: ConfigDict, batch: Batch) -> Activations:
        """Counts the same at each place, and what it reads."""
        least, about = super().activations(model, batch)
        cell = recurrent.TensorizedLSTMCell(model.units, **model.tensorized)
        places, taps = cell.grid.places, cell.grid.taps
        read = batch.positions * model.layers * taps * (model.units + 2)
        return Activations(places * least, places * (about + read))


def _square_rules(values: Values) -> Iterator[Rule]:
    """Yields what is refused where inputs and outputs have as many channels."""
    layer, words = values["model.layer"], values["model.embedding_units"]
    reason = f"as the inputs of {layer!r} must have as many channels as its outputs"
    yield words is None, "model.layer", f"one for inputs of a few channels, {reason}"
    expected = f"config.model.embedding_units, {reason}"
    for name in ("model.units", "model.output_units"):
        width = values[name] or words
        yield width != words, name, expected, "model.embedding_units"
