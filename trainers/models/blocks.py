"""The kinds of layers of causal blocks, a TCN and a Transformer, with their fields and rules."""

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Annotated, Any

from ml_collections import ConfigDict

from trainers.baselines import tcn, transformer
from trainers.baselines.causal import CausalLayer
from trainers.models.fields import COUNT, Rule, Values
from trainers.models.kinds import (
    SETTINGS,
    Activations,
    Batch,
    Kind,
    stacked,
    unused_dilations,
    widths,
)


@dataclasses.dataclass(frozen=True)
class TransformerGroup:
    """The arguments of the layer "transformer".

    Attributes:
        heads: attention heads of a block.
        context: how many time steps a block attends to.
    """

    heads: Annotated[int, COUNT] = 4
    context: Annotated[int, COUNT] = 64


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fields:
    """The fields of `config.model` that these layers alone have."""

    transformer: TransformerGroup = TransformerGroup()


class Causal(Kind):
    """A `CausalLayer` of blocks; a kind defines them by `blocks`."""

    own: tuple[str, ...] = ("recurrent_dropout", *SETTINGS)

    def build(self, model: ConfigDict, outputs: int, **settings: Any) -> CausalLayer:
        """Returns the layer; its blocks have no recurrent kernel that an initializer is for."""
        seed = settings.get("seed", 0)
        names = ("kernel_initializer", "dtype")
        kernels = {name: settings[name] for name in names if name in settings}
        blocks = self.blocks(model, outputs, seed, kernels)
        dropout = settings.get("dropout", 0.0)
        return CausalLayer(blocks, dropout=dropout, seed=seed, name="trellis")

    def blocks(
        self, model: ConfigDict, outputs: int, seed: int, kernels: dict[str, Any]
    ) -> list[Any]:
        """Returns the blocks, from the lowest up.

        Args:
            model: the group `model` of the config.
            outputs: channels of the outputs.
            seed: that of the layer, of which each block has another one.
            kernels: the arguments that each block takes for its kernels.
        """
        raise NotImplementedError


class Temporal(Causal):
    """`config.model.depth` residual blocks of a TCN, the last as wide as the outputs."""

    own = (*Causal.own, "depth", "dilation_rate", "kernel_size")

    def rules(self, values: Values) -> Iterator[Rule]:
        """Yields what is refused of its dilations, too."""
        yield from super().rules(values)
        yield from unused_dilations(values)

    def blocks(
        self, model: ConfigDict, outputs: int, seed: int, kernels: dict[str, Any]
    ) -> list[Any]:
        """Returns the blocks, whose dilations repeat as those of a trellis network."""
        dilations = itertools.cycle(model.dilation_rate)
        blocks = []
        for number, width in enumerate(widths(model.depth, model.units, outputs), 1):
            block = tcn.TemporalBlock(
                width,
                model.kernel_size,
                next(dilations),
                dropout=model.recurrent_dropout,
                seed=seed + number,
                name=f"block_{number}",
                **kernels,
            )
            blocks.append(block)
        return blocks

    def network(self, model: ConfigDict, outputs: int) -> str:
        """Returns in words how many blocks there are."""
        return f"TCN: {stacked('block', widths(model.depth, model.units, outputs))}"

    def activations(self, model: ConfigDict, batch: Batch) -> Activations:
        """Counts of each block its input with the past, and what ReLU returns.

        For the last output alone: two blocks in all, as if dilations double.
        """
        depth = 2 if batch.last_only else model.depth
        channels = batch.positions * depth * model.units
        return Activations(2 * channels, 7 * channels)


class Attention(Causal):
    """`config.model.layers` causal Transformer blocks between two dense layers."""

    own = (*Causal.own, "layers", "transformer")

    def blocks(
        self, model: ConfigDict, outputs: int, seed: int, kernels: dict[str, Any]
    ) -> list[Any]:
        """Returns the blocks; the outputs are normalised before the last dense layer."""
        blocks: list[Any] = [
            transformer.DenseBlock(model.units, name="inputs", **kernels)
        ]
        for number in range(1, 1 + model.layers):
            block = transformer.AttentionBlock(
                model.units,
                **model.transformer,
                dropout=model.recurrent_dropout,
                seed=seed + number,
                name=f"block_{number}",
                **kernels,
            )
            blocks.append(block)
        blocks.append(
            transformer.DenseBlock(outputs, normalize=True, name="outputs", **kernels)
        )
        return blocks

    def network(self, model: ConfigDict, outputs: int) -> str:
        """Returns in words how many blocks there are."""
        return f"Transformer: {stacked('block', [model.units] * model.layers)}"

    def activations(self, model: ConfigDict, batch: Batch) -> Activations:
        """Counts dense layers, and the scores of each head before and after their softmax."""
        positions = batch.positions * model.layers
        dense = (5 + transformer.EXPANSION) * model.units
        scores = 4 * model.transformer.heads * (batch.steps + model.transformer.context)
        return Activations(positions * dense, positions * (2 * dense + scores))

    def rules(self, values: Values) -> Iterator[Rule]:
        """Yields what is refused of its heads, too."""
        yield from super().rules(values)
        units, heads = values["model.units"], values["model.transformer.heads"]
        expected = f"at most config.model.units={units}"
        yield heads > units, "model.transformer.heads", expected
