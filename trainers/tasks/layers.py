"""The sequence layers that `config.model.layer` chooses. A new one is an entry of `LAYERS`."""

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import keras
import ml_collections

from keras_trellis import EquilibriumTrellisLayer, TrellisLayer, recurrent
from keras_trellis.core import gates
from keras_trellis.recurrent.gated import GatedRNN
from keras_trellis.recurrent.layer import RecurrentLayer
from trainers.baselines import tcn, transformer
from trainers.baselines.causal import CausalLayer
from trainers.tasks import counting

# The layers that are trellis networks.
TRELLIS = ("trellis", "equilibrium")
# The layers with outputs of inner levels, which an auxiliary loss can be of.
OF_LEVELS = ("trellis",)
# Those whose loop over time is Keras's own.
OF_KERAS = ("lstm", "skip_lstm", "gru", "gru_reset_before")
# The fields of `config.model` that are arguments of both trellis layers.
_OF_BOTH = (
    "units",
    "gate",
    "kernel_size",
    "dilation_rate",
    "groups",
    "inject_groups",
    "inject_every",
    "weight_normalization",
    "unit_forget_bias",
    "recurrent_dropout",
    "weight_dropout",
)
_INITIALIZERS = ("kernel_initializer", "recurrent_initializer", "bias_initializer")


class Kind:
    """A kind of layer: builds one from `config.model`, and says how large it is.

    A kind has to define `build`. It may estimate its memory more closely.

    Attributes:
        gated: Whether `config.model.gate` chooses its gate.
        own: The fields of `config.model` that this kind has, and some other kind ignores.
    """

    gated: bool = False
    own: tuple[str, ...] = ()

    def build(
        self, model: ml_collections.ConfigDict, outputs: int, **settings: Any
    ) -> Any:
        """Returns the layer; its outputs have `outputs` channels.

        Args:
            model: The group `model` of the config.
            outputs: Channels of the outputs.
            **settings: `seed`, `dropout` of the inputs and `dtype`; initializers, if
                `model.initial_deviation` is given.
        """
        raise NotImplementedError

    def parameters(
        self, model: ml_collections.ConfigDict, inputs: int, outputs: int
    ) -> int:
        """Returns the number of its parameters, for `inputs` channels of input."""
        make = functools.partial(self.build, model, outputs, dtype=model.dtype)
        return counting.parameters(make, (None, None, inputs))

    def activations(self, model: ml_collections.ConfigDict) -> int:
        """Returns the least number of pre-activations of a time step that the gradient needs."""
        del model
        return 0

    def kept(self, model: ml_collections.ConfigDict, batch: int, steps: int) -> int:
        """Estimates how many numbers the backward pass keeps for a batch."""
        # Ours: four gate blocks before and after their activations, and two states.
        return batch * steps * 10 * model.units

    def kept_of_last(
        self, model: ml_collections.ConfigDict, batch: int, steps: int
    ) -> int:
        """Estimates the same if only the last output is used."""
        return self.kept(model, batch, steps)


class Built(Kind):
    """A layer that is made by its class, for the outputs and by some fields.

    Args:
        layer: Takes the number of channels of its outputs, and by name the fields, `seed`, `dtype`
            and `name`, as a `SequenceLayer`. The layers in it have names of their own: numbers that
            Keras counts would differ from one building to the next, and with them the paths in
            checkpoints.
        *fields: The fields of `config.model` that it takes, and some other kind ignores.
    """

    def __init__(self, layer: Callable[..., keras.layers.Layer], *fields: str) -> None:
        self._layer, self.own = layer, fields

    def build(
        self,
        model: ml_collections.ConfigDict,
        outputs: int,
        seed: int | None = None,
        **settings: Any,
    ) -> keras.layers.Layer:
        """Returns the layer; it has none of the other settings."""
        own = {name: model[name] for name in self.own}
        return self._layer(
            outputs, **own, seed=seed, dtype=settings["dtype"], name="trellis"
        )


class Trellis(Kind):
    """`TrellisLayer`, and `EquilibriumTrellisLayer` with one turn of its levels."""

    gated = True
    own: tuple[str, ...] = ("depth", "dilation_rate", "kernel_size", "weight_dropout")

    def build(
        self, model: ml_collections.ConfigDict, outputs: int, **settings: Any
    ) -> Any:
        """Returns a `TrellisLayer`."""
        return TrellisLayer(
            depth=model.depth, **self._arguments(model, outputs), **settings
        )

    def _arguments(
        self, model: ml_collections.ConfigDict, outputs: int
    ) -> dict[str, Any]:
        fields = {name: model[name] for name in _OF_BOTH}
        return {**fields, "output_units": outputs, "name": "trellis"}

    def activations(self, model: ml_collections.ConfigDict) -> int:
        """Returns those of all levels."""
        return self._levels(model) * _blocks(model) * model.units

    def kept(self, model: ml_collections.ConfigDict, batch: int, steps: int) -> int:
        """Estimates the same, as if the upper levels were as wide as the lower ones."""
        # Each level keeps its pre-activations, h and c. One level at a time and the injected input
        # keep what their gradients are computed from.
        level, once = _blocks(model) + 2, 6 * _blocks(model)
        return batch * steps * (self._levels(model) * level + once) * model.units

    def kept_of_last(
        self, model: ml_collections.ConfigDict, batch: int, steps: int
    ) -> int:
        """Estimates two time steps in all for each of the sequence, as if dilations double."""
        return 2 * batch * steps * (_blocks(model) + 2) * model.units

    def _levels(self, model: ml_collections.ConfigDict) -> int:
        return model.depth


class Equilibrium(Trellis):
    """`EquilibriumTrellisLayer`: it needs the memory of one turn of its levels."""

    own: tuple[str, ...] = ("weight_dropout",)

    def build(
        self, model: ml_collections.ConfigDict, outputs: int, **settings: Any
    ) -> Any:
        """Returns an `EquilibriumTrellisLayer`."""
        arguments = self._arguments(model, outputs) | model.equilibrium.to_dict()
        return EquilibriumTrellisLayer(**arguments, **settings)

    def kept_of_last(
        self, model: ml_collections.ConfigDict, batch: int, steps: int
    ) -> int:
        """Estimates the same: the levels have to settle at each step."""
        return self.kept(model, batch, steps)

    def _levels(self, model: ml_collections.ConfigDict) -> int:
        return math.lcm(len(model.dilation_rate), model.inject_every)


class Recurrent(Kind):
    """`config.model.layers` of Keras's layers, the last as wide as the outputs.

    Args:
        layer: Keras's layer.
        blocks: Gate blocks of its cell.
        skip_input: Whether the layers above the first read the input too.
    """

    own: tuple[str, ...] = ("layers", "layer_dropout")

    def __init__(
        self,
        layer: Callable[..., keras.layers.RNN],
        blocks: int,
        skip_input: bool = False,
    ) -> None:
        self._layer, self._blocks = layer, blocks
        self._skip_input = skip_input

    def build(
        self,
        model: ml_collections.ConfigDict,
        outputs: int,
        seed: int = 0,
        **settings: Any,
    ) -> RecurrentLayer:
        """Returns a stack of layers; each draws its own masks."""
        layers = []
        settings |= self._arguments(model)
        for number, width in enumerate(_widths(model.layers, model.units, outputs), 1):
            own = {"seed": _offset(seed, number), "name": f"layer_{number}"}
            layers.append(self._layer(width, **own, **settings))
            if model.layer_dropout is not None:
                settings["dropout"] = model.layer_dropout
        return RecurrentLayer(layers, skip_input=self._skip_input, name="trellis")

    def _arguments(self, model: ml_collections.ConfigDict) -> dict[str, Any]:
        return {"recurrent_dropout": model.recurrent_dropout}

    def activations(self, model: ml_collections.ConfigDict) -> int:
        """Returns those of all layers."""
        return model.layers * self._blocks * model.units

    def kept(self, model: ml_collections.ConfigDict, batch: int, steps: int) -> int:
        """Estimates the same; Keras's loop keeps the kernels of each time step too."""
        kernels = model.layers * 2 * self._blocks * model.units**2
        return steps * (
            batch * model.layers * (2 * self._blocks + 4) * model.units + kernels
        )


class Gated(Recurrent):
    """`config.model.layers` layers of `keras_trellis.recurrent`.

    Args:
        layer: The layer.
        blocks: Gate blocks of its cell, the candidate included.
        **options: Further arguments of the layer.
    """

    own: tuple[str, ...] = (*Recurrent.own, "weight_dropout", "variant")

    def __init__(self, layer: type[GatedRNN], blocks: int, **options: Any) -> None:
        super().__init__(functools.partial(layer, **options), blocks)
        self.square = layer.cell_class.square
        self.variants = tuple(layer.cell_class.biases)

    def _arguments(self, model: ml_collections.ConfigDict) -> dict[str, Any]:
        return {
            "recurrent_dropout": model.recurrent_dropout,
            "recurrent_weight_dropout": model.weight_dropout,
            "variant": model.variant,
        }

    def kept(self, model: ml_collections.ConfigDict, batch: int, steps: int) -> int:
        """Estimates the same: states, products with the state, and what they are made of."""
        return batch * steps * model.layers * (3 * self._blocks + 4) * model.units


class Tensorized(Gated):
    """`config.model.layers` tensorized LSTMs of `config.model.units` channels a place."""

    def __init__(self) -> None:
        super().__init__(recurrent.TensorizedLSTM, blocks=4)

    def _arguments(self, model: ml_collections.ConfigDict) -> dict[str, Any]:
        return super()._arguments(model) | model.tensorized.to_dict()

    def activations(self, model: ml_collections.ConfigDict) -> int:
        """Returns those of all places of all layers."""
        return super().activations(model) * _grid(model).places

    def kept(self, model: ml_collections.ConfigDict, batch: int, steps: int) -> int:
        """Estimates the same, with what each place reads."""
        grid = _grid(model)
        of_place = (3 * self._blocks + 4 + grid.taps) * model.units + 2 * grid.taps
        return batch * steps * model.layers * grid.places * of_place


class Temporal(Kind):
    """`config.model.depth` residual blocks of a TCN, the last as wide as the outputs."""

    own: tuple[str, ...] = ("depth", "dilation_rate", "kernel_size")

    def build(
        self,
        model: ml_collections.ConfigDict,
        outputs: int,
        dropout: float = 0.0,
        seed: int | None = None,
        **settings: Any,
    ) -> CausalLayer:
        """Returns a stack of blocks, whose dilations repeat as those of a trellis network."""
        dilations = itertools.cycle(model.dilation_rate)
        blocks = []
        for number, width in enumerate(_widths(model.depth, model.units, outputs), 1):
            block = tcn.TemporalBlock(
                width,
                model.kernel_size,
                next(dilations),
                dropout=model.recurrent_dropout,
                seed=_offset(seed, number),
                name=f"block_{number}",
                **_of_kernels(settings),
            )
            blocks.append(block)
        return CausalLayer(blocks, dropout=dropout, seed=seed, name="trellis")

    def activations(self, model: ml_collections.ConfigDict) -> int:
        """Returns those of all convolutions."""
        return 2 * model.depth * model.units

    def kept(self, model: ml_collections.ConfigDict, batch: int, steps: int) -> int:
        """Estimates the same; a block keeps its input with the past, and what ReLU returns."""
        return batch * steps * model.depth * 7 * model.units

    def kept_of_last(
        self, model: ml_collections.ConfigDict, batch: int, steps: int
    ) -> int:
        """Estimates the same for the steps that the last output depends on."""
        dilations = list(
            itertools.islice(itertools.cycle(model.dilation_rate), model.depth)
        )
        computed = tcn.positions(model.kernel_size, dilations, steps)
        return batch * computed * 7 * model.units // 2


class Attention(Kind):
    """`config.model.layers` causal Transformer blocks between two dense layers."""

    own: tuple[str, ...] = ("layers",)

    def build(
        self,
        model: ml_collections.ConfigDict,
        outputs: int,
        dropout: float = 0.0,
        seed: int | None = None,
        **settings: Any,
    ) -> CausalLayer:
        """Returns the blocks; the outputs are normalised before the last dense layer."""
        kernels = _of_kernels(settings)
        blocks: list[Any] = [
            transformer.DenseBlock(model.units, name="inputs", **kernels)
        ]
        for number in range(1, 1 + model.layers):
            block = transformer.AttentionBlock(
                model.units,
                **model.transformer,
                dropout=model.recurrent_dropout,
                seed=_offset(seed, number),
                name=f"block_{number}",
                **kernels,
            )
            blocks.append(block)
        blocks.append(
            transformer.DenseBlock(outputs, normalize=True, name="outputs", **kernels)
        )
        return CausalLayer(blocks, dropout=dropout, seed=seed, name="trellis")

    def activations(self, model: ml_collections.ConfigDict) -> int:
        """Returns those of all dense layers of the blocks."""
        return model.layers * (5 + transformer.EXPANSION) * model.units

    def kept(self, model: ml_collections.ConfigDict, batch: int, steps: int) -> int:
        """Estimates the same, and the scores of each head before and after their softmax."""
        heads, context = model.transformer.heads, model.transformer.context
        dense = (10 + 2 * transformer.EXPANSION) * model.units
        scores = 4 * heads * (steps + context)
        return batch * steps * model.layers * (dense + scores)


LAYERS: dict[str, Kind] = {
    "trellis": Trellis(),
    "equilibrium": Equilibrium(),
    "lstm": Recurrent(keras.layers.LSTM, blocks=4),
    "skip_lstm": Recurrent(keras.layers.LSTM, blocks=4, skip_input=True),
    # Keras's default: the reset gate acts on the product, as in cuDNN and PyTorch.
    "gru": Recurrent(keras.layers.GRU, blocks=3),
    # It acts on the state before the product: Cho et al. 2014, and equation (2) of Kuo et al. 2020.
    "gru_reset_before": Recurrent(
        functools.partial(keras.layers.GRU, reset_after=False), blocks=3
    ),
    "irc_gru": Gated(recurrent.IRCGRU, blocks=3),
    "irc_lstm": Gated(recurrent.IRCLSTM, blocks=4),
    "ihc_lstm": Gated(recurrent.IHCLSTM, blocks=4),
    "ihc_lstm_projected": Gated(recurrent.IHCLSTM, blocks=4, projected=True),
    "sru": Gated(recurrent.SRU, blocks=3),
    "irc_sru": Gated(recurrent.IRCSRU, blocks=3),
    "t_lstm": Gated(recurrent.TLSTM, blocks=3),
    "irc_t_lstm": Gated(recurrent.IRCTLSTM, blocks=3),
    "fast_grnn": Gated(recurrent.FastGRNN, blocks=2),
    "irc_fast_grnn": Gated(recurrent.IRCFastGRNN, blocks=2),
    "tensorized": Tensorized(),
    "tcn": Temporal(),
    "transformer": Attention(),
}


def build(
    model: ml_collections.ConfigDict, outputs: int, *, seed: int, dropout: float = 0.0
) -> Any:
    """Returns the layer of the group `model`.

    Args:
        model: The group.
        outputs: Channels of the layer's outputs.
        seed: The seed of its masks.
        dropout: The dropout rate of its inputs.

    Raises:
        ValueError: An argument of the layer is not valid.
    """
    arguments: dict[str, Any] = {
        "seed": seed,
        "dropout": dropout,
        "dtype": model.dtype,
    }
    if model.initial_deviation:
        # Each argument gets its own object: an initializer draws the same numbers each time.
        for name in _INITIALIZERS:
            arguments[name] = keras.initializers.RandomNormal(
                stddev=model.initial_deviation
            )
    return LAYERS[model.layer].build(model, outputs, **arguments)


def _blocks(model: ml_collections.ConfigDict) -> int:
    return gates.NAMES[model.gate].blocks


def _grid(model: ml_collections.ConfigDict) -> Any:
    """Returns the places of the state of a tensorized layer."""
    return recurrent.TensorizedLSTMCell(model.units, **model.tensorized).grid


def _widths(count: int, units: int, outputs: int) -> list[int]:
    return [units] * (count - 1) + [outputs]


def _offset(seed: int | None, number: int) -> int | None:
    return None if seed is None else seed + number


def _of_kernels(settings: dict[str, Any]) -> dict[str, Any]:
    """Returns the settings that a block without a recurrent kernel has."""
    has = ("kernel_initializer", "dtype")
    return {name: value for name, value in settings.items() if name in has}
