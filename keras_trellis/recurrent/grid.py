"""One time step of a tensorized LSTM: a convolution over the places of its state.

Source: He et al. 2017, https://arxiv.org/abs/1711.01577. A state is a line of P places, or
a square of P x P, of M channels each. It is carried as `[B, places * M]`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from keras import ops

from keras_trellis.backend import current as backend
from keras_trellis.core.convolution import at_least_float32, masked
from keras_trellis.core.recurrence import Reads
from keras_trellis.types import State, Tensor

EPSILON = 1e-5
"""What the channel normalisation adds to the variance."""


class Grid(NamedTuple):
    """The places of a state, and the kernel that goes over them.

    Attributes:
        channels: M, the number of channels of a place.
        size: P, the number of places along each axis.
        axes: how many axes there are.
        kernel_size: K, along each axis. A place reads K // 2 places before it, itself,
            and (K - 1) // 2 places after it.
    """

    channels: int
    size: int
    axes: int
    kernel_size: int

    @property
    def places(self) -> int:
        """The number of places."""
        return self.size**self.axes

    @property
    def taps(self) -> int:
        """The number of places that a place reads."""
        return self.kernel_size**self.axes

    @property
    def before(self) -> int:
        """How many places before it a place reads, along each axis."""
        return self.kernel_size // 2

    @property
    def after(self) -> int:
        """How many places after it a place reads, along each axis."""
        return self.kernel_size - 1 - self.before

    @property
    def depth(self) -> int:
        """L: the number of steps from an input to the last place."""
        return math.ceil(self.size / self.before)

    def unfold(self, state: Tensor) -> Tensor:
        """Returns a state `[B, places * M]` as `[B, P, ..., M]`."""
        places = [self.size] * self.axes
        shape = [-1, *places, self.channels]
        return ops.reshape(state, shape)

    def fold(self, values: Tensor) -> Tensor:
        """Returns `[B * places, M]` as `[B, places * M]`."""
        channels = self.places * self.channels
        return ops.reshape(values, [-1, channels])

    def joined(self, inputs: Tensor, hidden: Tensor) -> Tensor:
        """Returns the hidden state with the inputs `[B, M]` at the corner before it.

        The rest of what surrounds it is zero.
        """
        around = [self.before, self.after]
        corner = [self.before - 1, self.size + self.after]
        ones = [1] * self.axes
        shape = [-1, *ones, self.channels]
        inputs = ops.reshape(inputs, shape)
        inputs = self._padded(inputs, corner)
        hidden = self.unfold(hidden)
        hidden = self._padded(hidden, around)
        return hidden + inputs

    def _padded(self, values: Tensor, width: list[int]) -> Tensor:
        along = [width] * self.axes
        widths = [[0, 0], *along, [0, 0]]
        return ops.pad(values, widths)

    def with_edges(self, cell: Tensor) -> Tensor:
        """Returns the memory cells surrounded by copies of those at the edge."""
        cell = self.unfold(cell)
        inner = self.size - 1
        for axis in range(1, 1 + self.axes):
            first, _ = backend.split(cell, [1, inner], axis)
            _, last = backend.split(cell, [inner, 1], axis)
            parts = [first] * self.before
            parts.append(cell)
            parts += [last] * self.after
            cell = ops.concatenate(parts, axis)
        return cell

    def read(self, surrounded: Tensor) -> Tensor:
        """Returns what each place reads, `[B * places, taps * M]`."""
        # One axis after the other: K * axes pieces instead of K ** axes.
        for axis in range(self.axes, 0, -1):
            pieces = []
            for tap in range(self.kernel_size):
                rest = self.kernel_size - 1 - tap
                # Its gradient is a concatenation: faster than that of an index.
                sizes = [tap, self.size, rest]
                _, piece, _ = backend.split(surrounded, sizes, axis)
                pieces.append(piece)
            surrounded = ops.concatenate(pieces, axis=-1)
        channels = self.taps * self.channels
        return ops.reshape(surrounded, [-1, channels])

    def last(self, state: Tensor) -> Tensor:
        """Returns the last place of a state, `[B, M]`."""
        others = (self.places - 1) * self.channels
        _, last = backend.split(state, [others, self.channels])
        return last


def rnn(grid: Grid, reads: Reads, now: State, state: State) -> tuple[Tensor, State]:
    """Tensorized RNN, (5) to (7): H = tanh(W_h * H^cat + b_h).

    H^cat is the last H with W_x x + b_x at the corner before it, and * a convolution.
    """
    blocks = _convolved(grid, reads, now, state)
    hidden = grid.fold(backend.tanh(blocks))
    output = grid.last(hidden)
    return output, (hidden,)


def lstm(grid: Grid, reads: Reads, now: State, state: State) -> tuple[Tensor, State]:
    """Tensorized LSTM: C = G * I + conv(C') * F;  H = tanh(C) * O.

    G, I, F, O and the kernels Q of conv are blocks of W_h * H^cat + b_h, see `rnn`. The
    kernels are softmax(Q), one for each place and step; without Q conv(C') is C'. With
    channel normalisation H = tanh(normalised C) * O.
    """
    _, cell = state
    channels = grid.channels
    blocks = _convolved(grid, reads, now, state)
    kernel_channels = blocks.shape[-1] - 4 * channels
    sizes = [channels, 3 * channels, kernel_channels]
    candidate, gates, kernels = backend.split(blocks, sizes)
    gates = ops.sigmoid(gates)
    write, keep, read = ops.split(gates, 3, axis=-1)
    if kernel_channels:
        kernels = ops.softmax(kernels)
        carried = _memory(grid, cell, kernels)
    else:
        carried = ops.reshape(cell, [-1, channels])
    written = backend.tanh(candidate) * write
    cell = written + carried * keep
    shown = cell
    _, *scale = reads.vectors
    if scale:
        shown = _normalized(cell, *scale)
    hidden = backend.tanh(shown) * read
    hidden = grid.fold(hidden)
    output = grid.last(hidden)
    return output, (hidden, grid.fold(cell))


def _convolved(grid: Grid, reads: Reads, now: State, state: State) -> Tensor:
    """Returns W_h * H^cat + b_h, `[B * places, blocks]`."""
    (inputs,) = now
    bias, *_ = reads.vectors
    hidden = masked(state[0], reads.mask)
    around = grid.joined(inputs, hidden)
    read = grid.read(around)
    return reads.multiply(0, read) + bias


def _memory(grid: Grid, cell: Tensor, kernels: Tensor) -> Tensor:
    """Returns for each place its kernel over the cells that it reads, `[B * places, M]`."""
    around = grid.with_edges(cell)
    read = grid.read(around)
    read = ops.reshape(read, [-1, grid.taps, grid.channels])
    kernels = ops.expand_dims(kernels, 1)
    carried = kernels @ read
    return ops.squeeze(carried, 1)


def _normalized(cell: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    """Returns the cells of each place, of mean 0 and variance 1, times gamma, plus beta."""
    dtype = cell.dtype
    cell = at_least_float32(cell)  # half precision has no room for squares
    cell = cell - backend.mean(cell)
    variance = backend.mean(ops.square(cell))
    deviation = ops.sqrt(variance + EPSILON)
    cell = ops.cast(cell / deviation, dtype)
    places, channels = gamma.shape
    values = ops.reshape(cell, [-1, places, channels])
    values = values * gamma + beta
    return ops.reshape(values, [-1, channels])
