"""The shape of a trellis network and its weights, as values."""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import numpy as np
from keras import ops

from keras_trellis.core.convolution import zero_rows, zeros
from keras_trellis.core.gates import Gate
from keras_trellis.types import Number, State, Tensor


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

    def width(self, level: int) -> int:
        """Returns how many time steps of the past a level reads of the level below."""
        return max(self.kernel_size - 1, 1) * self.dilation(level)

    @property
    def cached_steps(self) -> int:
        """How many time steps of the past all levels together read."""
        return sum(map(self.width, range(self.depth)))

    def bottom(self, sequences: Tensor, steps: Number) -> State:
        """Returns the state below level 0: zeros, each `[B, steps, units]`."""
        return (zeros(sequences, steps, self.units),) * self.gate.states

    def no_history(self, sequences: Tensor) -> State:
        """Returns the initial state of sequences without one: zeros, each `[B, units]`."""
        return (zero_rows(sequences, self.units),) * self.gate.states

    def begun(self, state: State, level: Number) -> State:
        """Returns the state of a level with zeros in the groups that begin above it."""
        if self.staggered == 1:
            return state
        group = np.arange(self.units, dtype="int32") // (self.units // self.staggered)
        begun = ops.less_equal(group, level)
        return tuple(ops.where(begun, tensor, 0) for tensor in state)
