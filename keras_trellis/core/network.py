"""What a trellis network is: its shape, its weights, its gate, and how far back it sees."""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, ClassVar, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_trellis.arguments import dilation_cycle, positive, refusal
from keras_trellis.backend import current as backend
from keras_trellis.core import schedule
from keras_trellis.core.convolution import (
    at_least_float32,
    repeated,
    where,
    zero_rows,
    zeros,
)
from keras_trellis.core.schedule import Grid, Segment
from keras_trellis.types import Number, State, Tensor

Activation = str | Callable[[Tensor], Tensor]


class Weights(NamedTuple):
    """What all levels of one call share. A layer computes and draws it once a call.

    Attributes:
        kernel: the input kernel in the compute dtype, `[k, p, blocks * units]`.
        recurrent_kernel: `[k, units, blocks * units]`, in the compute dtype or a more precise one.
            A stack of groups (`core.stack`) takes both kernels as the variables have them.
        bias: `[blocks * units]`, or None.
        input_mask: the dropout mask of the input, `[B, 1, p]`, or None.
        state_mask: the dropout mask of what enters the hidden convolution, `[B, 1, units]`, or
            None.
    """

    kernel: Tensor
    recurrent_kernel: Tensor
    bias: Tensor | None = None
    input_mask: Tensor | None = None
    state_mask: Tensor | None = None


@dataclasses.dataclass(frozen=True)
class Network:
    """The shape of a trellis network.

    Attributes:
        units: the number of hidden channels, q.
        depth: the number of levels, L.
        gate: the gate.
        kernel_size: the number of taps, k.
        dilation_rate: the cycle of dilations.
        inject_every: the input enters the levels i with i % inject_every == 0.
        input_taps: the number of taps of the input kernel.
        groups: the number of groups of channels, G; 1: the hidden kernel is dense.
        injected_groups: the number of groups that the input enters, 1 or G.
        staggered: the number of groups of channels, of which group g begins at level g and is
            zero below; 1: all channels begin at level 0.
    """

    units: int
    depth: int
    gate: Gate
    kernel_size: int
    dilation_rate: tuple[int, ...]
    inject_every: int
    input_taps: int
    groups: int = 1
    injected_groups: int = 1
    staggered: int = 1

    @property
    def cycle(self) -> tuple[int, ...]:
        """The dilations of one turn of the cycle, cut to the depth."""
        return self.dilation_rate[: self.depth]

    @property
    def period(self) -> int:
        """After how many levels everything that differs between levels repeats."""
        return math.lcm(len(self.cycle), self.inject_every)

    @property
    def channels(self) -> int:
        """The number of pre-activations at each time step."""
        return self.gate.blocks * self.units

    @property
    def input_width(self) -> int:
        """How many time steps of the input's past the levels read."""
        return (self.input_taps - 1) * max(self.cycle)

    def dilation(self, level: int) -> int:
        """Returns the dilation of a level, or of a place in the period."""
        return self.cycle[level % len(self.cycle)]

    def width(self, level: int, state: int = 0) -> int:
        """Returns how far back a level reads a tensor of the state of the level below, in steps.

        The taps read h, the first tensor; the gate reads all of them, one dilation back.
        """
        # With one tap the product reads no past, but a gate may still shift h.
        taps = max(self.kernel_size - 1, 1) if state == 0 else 1
        return taps * self.dilation(level)

    def widths(self, level: int) -> list[int]:
        """Returns these widths for each tensor of the state."""
        return [self.width(level, state) for state in range(self.gate.states)]

    @property
    def cached_steps(self) -> list[int]:
        """How many time steps of each tensor of the state all levels together keep."""
        by_level = map(self.widths, range(self.depth))
        return list(map(sum, zip(*by_level, strict=True)))

    def segments(
        self, steps: int | None, stops: Collection[int], num_outputs: Number | None
    ) -> list[Segment]:
        """Cuts the levels; see `schedule.segments`.

        Args:
            steps: T; None where it is unknown.
            stops: after how many levels h is collected.
            num_outputs: how many of the last outputs are needed; all unless it is an integer.
        """
        # A segment ends after each level in which a group has yet to begin: between segments the
        # engine sets such groups to zero.
        parts = schedule.segments(
            [self.dilation(index) for index in range(self.depth)],
            max(self.kernel_size - 1, 1),
            stops=[*stops, *range(1, self.staggered)],
            steps=steps,
            num_outputs=num_outputs if isinstance(num_outputs, int) else None,
            units=self.units,
        )
        return list(parts)

    def injected(self, levels: range) -> set[int]:
        """Returns the dilations of those of some levels that the input enters."""
        every = self.inject_every
        return {self.dilation(index) for index in levels if index % every == 0}

    def injected_grids(self, parts: Sequence[Segment]) -> dict[int, Grid]:
        """Returns for each dilation the finest grid on which the input joins levels."""
        grids = {}
        # From the top down, so that the lowest segment has the last word: its grid is the finest.
        for part in reversed(parts):
            for dilation in self.injected(range(part.first, part.last)):
                grids[dilation] = part.after
        return grids

    def bottom(self, sequences: Tensor, steps: Number) -> State:
        """Returns the state below level 0: zeros, each `[B, steps, units]`."""
        return (zeros(sequences, steps, self.units),) * self.gate.states

    def left(self, initial: State, widths: Sequence[int], below: State) -> State:
        """Returns what stands to the left of a level's input, each `[B, width, units]`.

        Args:
            initial: the state there, each `[B, units]`; (): zeros.
            widths: how many steps of each tensor of the state.
            below: the state of the level below.
        """
        # The initial state is the past of every level, at every step before the first one.
        if initial:
            return tuple(map(repeated, initial, widths))
        return tuple(zeros(below[0], width, self.units) for width in widths)

    def no_history(self, sequences: Tensor) -> State:
        """Returns the initial state of sequences without one: zeros, each `[B, units]`."""
        return (zero_rows(sequences, self.units),) * self.gate.states

    def begun(self, state: State, level: Number) -> State:
        """Returns the state of a level with zeros in the groups that begin above it."""
        if self.staggered == 1:
            return state
        group = np.arange(self.units, dtype="int32") // (self.units // self.staggered)
        # Compared and not sliced: in a loop over levels `level` is a tensor.
        begun = ops.less_equal(group, level)
        return tuple(where(begun, tensor, 0) for tensor in state)


class Gate(abc.ABC):
    """The gated activation of one level.

    Attributes:
        name: a short name for messages and configurations.
        blocks: the number of pre-activation blocks, each of `units` channels.
        states: the number of tensors in the state. The first is the hidden state h, which the next
            level's convolution reads.
        forget_block: the index of the block that decides what the gate keeps of its past state: the
            larger its pre-activations, the more. `unit_forget_bias` starts its bias at 1. None for
            a gate without such a block; the layer refuses `unit_forget_bias=True` then.

    Args:
        activation: the activation of the values that the gate writes into the state.
        recurrent_activation: the activation of the gates themselves.

    Examples:
        >>> import keras_trellis
        >>> layer = keras_trellis.TrellisLayer(8, depth=3, gate=keras_trellis.GRUGate())
        >>> layer.gate.blocks
        4
    """

    name: ClassVar[str]
    blocks: ClassVar[int]
    states: ClassVar[int]
    forget_block: ClassVar[int | None] = None

    def __init__(
        self,
        activation: Activation = "tanh",
        recurrent_activation: Activation = "sigmoid",
    ) -> None:
        self.activation = activation_function("activation", activation)
        self.recurrent_activation = activation_function(
            "recurrent_activation", recurrent_activation
        )

    @abc.abstractmethod
    def step(self, blocks: Sequence[Tensor], shifted_state: State) -> State:
        """Returns the level's state.

        Args:
            blocks: the pre-activations, `self.blocks` tensors `[B, T, units]`.
            shifted_state: the state of the level below, delayed by the level's dilation:
                `self.states` tensors `[B, T, units]`.

        Returns:
            `self.states` tensors `[B, T, units]`.
        """

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        serialize = keras.activations.serialize
        return {
            "activation": serialize(self.activation),
            "recurrent_activation": serialize(self.recurrent_activation),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Gate:
        """Makes a gate from its config."""
        return cls(**config)


def activation_function(name: str, value: Activation) -> Callable[[Tensor], Tensor]:
    """Returns an activation; tanh and the sigmoid as the backend computes them best.

    Args:
        name: the argument's.
        value: whatever Keras takes for an activation.

    Raises:
        ValueError: it is something else.
    """
    try:
        activation: Callable[[Tensor], Tensor] = keras.activations.get(value)
    except (TypeError, ValueError):
        raise refusal(name, value, "an activation of Keras or a function") from None
    if activation is keras.activations.sigmoid:
        return backend.sigmoid
    return backend.tanh if activation is keras.activations.tanh else activation


def activate(gate: Gate, total: Tensor, shifted: State) -> State:
    """Runs a gate, in float32 at least.

    Args:
        gate: the gate.
        total: the pre-activations, `[..., blocks * units]`.
        shifted: the delayed state, each `[..., units]`.

    Returns:
        the gate's states, each `[..., units]`.
    """
    # In half precision each operation of the gate would round c; so only the end of a level does.
    exact = at_least_float32(total)
    units = exact.shape[-1] // gate.blocks
    blocks = backend.split(exact, [units] * gate.blocks)
    state = gate.step(blocks, tuple(map(at_least_float32, shifted)))
    if exact is total:
        return state
    return tuple(ops.cast(tensor, total.dtype) for tensor in state)


def receptive_field(
    depth: int, *, kernel_size: int = 2, dilation_rate: int | Sequence[int] = 1
) -> int:
    """Returns the number of time steps that an output depends on, its own included.

    This is 1 + (k - 1) * the sum of the levels' dilations. With k = 1 only the state reaches back,
    from the second level on: 1 + the sum of the dilations above the first level. For a gate that
    ignores its shifted state this is an upper bound.

    Args:
        depth: the number of levels.
        kernel_size: the number of taps, k.
        dilation_rate: an integer, or a cycle; level i uses dilation_rate[i % len].

    Raises:
        ValueError: an argument is not positive.

    Examples:
        >>> import keras_trellis
        >>> keras_trellis.receptive_field(6, dilation_rate=[1, 2, 4, 8, 16, 32])
        64
    """
    depth = positive("depth", depth)
    kernel_size = positive("kernel_size", kernel_size)
    cycle = dilation_cycle(dilation_rate)
    turns, rest = divmod(depth, len(cycle))
    total = turns * sum(cycle) + sum(cycle[:rest])
    if kernel_size == 1:
        # What the gate of level 0 shifts is zero.
        return 1 + total - cycle[0]
    return 1 + (kernel_size - 1) * total


def depth_for(
    steps: int, *, kernel_size: int = 2, dilation_rate: int | Sequence[int] = 1
) -> int:
    """Returns the smallest depth whose receptive field covers `steps` time steps.

    Where that is fewer levels than dilations, a layer of this depth takes `dilation_rate[:depth]`.

    Args:
        steps: the number of time steps that an output must see, its own included.
        kernel_size: the number of taps, k.
        dilation_rate: an integer, or a cycle; level i uses dilation_rate[i % len].

    Raises:
        ValueError: an argument is not positive.

    Examples:
        >>> import keras_trellis
        >>> keras_trellis.depth_for(100, dilation_rate=[1, 2, 4, 8, 16, 32])
        12
    """
    steps = positive("steps", steps)
    kernel_size = positive("kernel_size", kernel_size)
    cycle = dilation_cycle(dilation_rate)
    # Count whole turns of the cycle by division: a million steps must not take as many iterations.
    reach = max(kernel_size - 1, 1) * sum(cycle)
    turns = (steps - 1) // reach - 1
    depth = max(1, turns * len(cycle))
    while receptive_field(depth, kernel_size=kernel_size, dilation_rate=cycle) < steps:
        depth += 1
    return depth
