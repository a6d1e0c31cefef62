"""The kinds of trellis networks, with their fields and rules."""

import dataclasses
import math
from collections.abc import Iterator
from typing import Annotated, Any

from ml_collections import ConfigDict

from keras_trellis import EquilibriumTrellisLayer, TrellisLayer
from keras_trellis.core import gates
from trainers.models.fields import (
    ABOVE_ZERO,
    COUNT,
    FROM_ZERO,
    SWITCH,
    Rule,
    Values,
    one_of,
)
from trainers.models.kinds import (
    SETTINGS,
    Activations,
    Batch,
    Kind,
    counted,
    unused_dilations,
    without_levels,
)

# The fields of `config.model` that are arguments of both layers, as its units are.
_SHARED_FIELDS = (
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


@dataclasses.dataclass(frozen=True)
class EquilibriumGroup:
    """The arguments of the layer "equilibrium"."""

    tolerance: Annotated[float, ABOVE_ZERO] = 1e-4
    max_iterations: Annotated[int, COUNT] = 100


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fields:
    """The fields of `config.model` that trellis networks alone have.

    Attributes:
        inject_groups: whether the input enters all `groups`.
        unit_forget_bias: whether the bias of a gate's forget block starts at 1; False for a gate
            without one.
        auxiliary_every: how many levels apart those are that have an auxiliary loss.
        auxiliary_from: where `auxiliary_every` counts from: the "bottom", as the authors' code, or
            the "top", as the paper's text.
    """

    gate: Annotated[str, one_of(*gates.NAMES)] = "lstm"
    groups: Annotated[int, COUNT] = 1
    inject_groups: Annotated[bool, SWITCH] = False
    inject_every: Annotated[int, COUNT] = 1
    weight_normalization: Annotated[bool, SWITCH] = False
    unit_forget_bias: Annotated[bool, SWITCH] = False
    auxiliary_every: Annotated[int, COUNT] = 1
    auxiliary_from: Annotated[str, one_of("bottom", "top")] = "bottom"
    auxiliary_weight: Annotated[float, FROM_ZERO] = 0.0
    equilibrium: EquilibriumGroup = EquilibriumGroup()


class Trellis(Kind):
    """`TrellisLayer`, and `EquilibriumTrellisLayer` with one turn of its levels."""

    gated = True
    own: tuple[str, ...] = (
        *_SHARED_FIELDS,
        *SETTINGS,
        "depth",
        "auxiliary_every",
        "auxiliary_from",
        "auxiliary_weight",
    )

    def build(self, model: ConfigDict, outputs: int, **settings: Any) -> Any:
        """Returns a `TrellisLayer`; a run's first lines say how far it sees."""
        layer = TrellisLayer(
            depth=model.depth, **self._arguments(model, outputs), **settings
        )
        layer.warns_unseen_steps = False
        return layer

    def network(self, model: ConfigDict, outputs: int) -> str:
        """Returns in words how many levels there are, and of which gate."""
        levels = f"{counted(model.depth, 'level')} of {model.units} units"
        gate = "" if model.gate == "lstm" else f", gate {model.gate}"
        groups = "" if model.groups == 1 else f", {model.groups} groups"
        return f"trellis network: {levels}{gate}{groups}"

    def _arguments(self, model: ConfigDict, outputs: int) -> dict[str, Any]:
        fields = {name: model[name] for name in ("units", *_SHARED_FIELDS)}
        return {**fields, "output_units": outputs, "name": "trellis"}

    def activations(self, model: ConfigDict, batch: Batch) -> Activations:
        """Estimates it as if the upper levels were as wide as the lower ones.

        For the last output alone: two time steps in all for each of the sequence, as if dilations
        double.
        """
        blocks, channels = gates.NAMES[model.gate].blocks, batch.positions * model.units
        if batch.last_only:
            return Activations(0, 2 * channels * (blocks + 2))
        # Each level keeps its pre-activations, h and c. One level at a time and the injected input
        # keep what their gradients are computed from.
        levels = self._levels(model)
        about = levels * (blocks + 2) + 6 * blocks
        return Activations(channels * levels * blocks, channels * about)

    def _levels(self, model: ConfigDict) -> int:
        return model.depth

    def rules(self, values: Values) -> Iterator[Rule]:
        """Yields what is refused of its levels and its channels."""
        yield from self._level_rules(values)
        yield from _channel_rules(values)

    def _level_rules(self, values: Values) -> Iterator[Rule]:
        yield from unused_dilations(values)
        if not values["model.auxiliary_weight"]:
            return
        # Counted from the top, the last level itself has none.
        from_top = values["model.auxiliary_from"] == "top"
        depth, every = values["model.depth"], values["model.auxiliary_every"]
        bound = "below" if from_top else "at most"
        unless = "(or config.model.auxiliary_weight 0)"
        expected = f"{bound} config.model.depth={depth} {unless}"
        others = ["model.auxiliary_from"] if from_top else []
        yield every > depth - from_top, "model.auxiliary_every", expected, *others
        fewest = min(values["training.depths"], default=depth)
        bound = "above" if from_top else "at least"
        expected = f"{bound} config.model.auxiliary_every={every} each {unless}"
        yield fewest - from_top < every, "training.depths", expected


class Equilibrium(Trellis):
    """`EquilibriumTrellisLayer`: it needs the memory of one turn of its levels."""

    own = (*_SHARED_FIELDS, *SETTINGS, "equilibrium")
    # With other values it is no stack of recurrent layers.
    untuned = ("dilation_rate", "kernel_size")

    def build(self, model: ConfigDict, outputs: int, **settings: Any) -> Any:
        """Returns an `EquilibriumTrellisLayer`."""
        arguments = self._arguments(model, outputs) | model.equilibrium.to_dict()
        return EquilibriumTrellisLayer(**arguments, **settings)

    def network(self, model: ConfigDict, outputs: int) -> str:
        """Returns in words which recurrent layers its groups are."""
        units = f"{model.units} units"
        if model.kernel_size != 2 or model.dilation_rate != (1,):
            return f"equilibrium trellis network: {units}, groups={model.groups}"
        name = "LSTM" if model.gate == "lstm" else f"{model.gate} layer"
        layers = counted(model.groups, name if model.groups == 1 else f"stacked {name}")
        every = "both" if model.groups == 2 else "all"
        reads = f" that {every} read the input" if model.inject_groups else ""
        return f"{layers}{reads} (equilibrium, groups={model.groups}): {units} in all"

    def activations(self, model: ConfigDict, batch: Batch) -> Activations:
        """Estimates the same for the last output: the levels have to settle at each step."""
        return super().activations(model, batch._replace(last_only=False))

    def _levels(self, model: ConfigDict) -> int:
        return math.lcm(len(model.dilation_rate), model.inject_every)

    def _level_rules(self, values: Values) -> Iterator[Rule]:
        return without_levels(values)


def _channel_rules(values: Values) -> Iterator[Rule]:
    units, groups = values["model.units"], values["model.groups"]
    expected = f"a divisor of config.model.units={units}"
    yield units % groups, "model.groups", expected
    nowhere = values["model.inject_groups"] and groups == 1
    expected = "False with config.model.groups=1, which the input enters anyway"
    yield nowhere, "model.inject_groups", expected
    words = values["model.embedding_units"]
    outputs = values["model.output_units"] or words or units
    yield outputs > units, "model.output_units", f"at most config.model.units={units}"
