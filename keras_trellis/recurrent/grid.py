"""One time step of a tensorized LSTM: a convolution over the places of its state.

Source: He et al. 2017, https://arxiv.org/abs/1711.01577. A state is a line of P places, or
a square of P x P, of M channels each. It is carried as [B, places * M].
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from keras_trellis.core.convolution import masked
from keras_trellis.engine.recurrence import Reads
from keras_trellis.types import State

EPSILON = 1e-5
"""What the channel normalisation adds to the variance."""


class Grid(NamedTuple):
    """The places of a state, and the kernel that goes over them.

    Attributes:
        size: P, the number of places along each axis.
        axes: how many axes there are.
        kernel_size: K, along each axis. A place reads K // 2 places before it, itself,
            and (K - 1) // 2 places after it.
    """

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
    def reach(self) -> tuple[int, int]:
        """How far a place reads, to places before it and after it."""
        return self.kernel_size // 2, (self.kernel_size - 1) // 2

    @property
    def depth(self) -> int:
        """L: the number of steps from an input to the last place."""
        return -(-self.size // self.reach[0])

    def unfold(self, state: tf.Tensor) -> tf.Tensor:
        """Returns a state [B, places * M] as [B, P, ..., M]."""
        channels = state.shape[-1] // self.places
        return tf.reshape(state, [-1, *[self.size] * self.axes, channels])

    def fold(self, values: tf.Tensor) -> tf.Tensor:
        """Returns [B * places, M] as [B, places * M]."""
        return tf.reshape(values, [-1, self.places * values.shape[-1]])

    def joined(self, inputs: tf.Tensor, hidden: tf.Tensor) -> tf.Tensor:
        """Returns the hidden state with the inputs [B, M] at the corner before it.

        The rest of what surrounds it is zero.
        """
        before, after = self.reach
        around = [[before, after]] * self.axes
        corner = [[before - 1, self.size + after]] * self.axes
        inputs = tf.reshape(inputs, [-1, *[1] * self.axes, inputs.shape[-1]])
        hidden = tf.pad(self.unfold(hidden), [[0, 0], *around, [0, 0]])
        return hidden + tf.pad(inputs, [[0, 0], *corner, [0, 0]])

    def with_edges(self, cell: tf.Tensor) -> tf.Tensor:
        """Returns the memory cells surrounded by copies of those at the edge."""
        before, after = self.reach
        cell = self.unfold(cell)
        for axis in range(1, 1 + self.axes):
            first, _ = tf.split(cell, [1, self.size - 1], axis=axis)
            _, last = tf.split(cell, [self.size - 1, 1], axis=axis)
            cell = tf.concat([first] * before + [cell] + [last] * after, axis=axis)
        return cell

    def read(self, surrounded: tf.Tensor) -> tf.Tensor:
        """Returns what each place reads, [B * places, taps * M]."""
        # One axis after the other: K * axes pieces instead of K ** axes.
        for axis in range(self.axes, 0, -1):
            pieces = []
            for tap in range(self.kernel_size):
                sizes = [tap, self.size, self.kernel_size - 1 - tap]
                # Its gradient is a concatenation: faster than that of an index.
                _, piece, _ = tf.split(surrounded, sizes, axis=axis)
                pieces.append(piece)
            surrounded = tf.concat(pieces, axis=-1)
        return tf.reshape(surrounded, [-1, surrounded.shape[-1]])

    def last(self, state: tf.Tensor) -> tf.Tensor:
        """Returns the last place of a state, [B, M]."""
        channels = state.shape[-1] // self.places
        _, last = tf.split(state, [-1, channels], axis=-1)
        return last


def rnn(grid: Grid, reads: Reads, now: State, state: State) -> tuple[tf.Tensor, State]:
    """Tensorized RNN, (5) to (7): H = tanh(W_h * H^cat + b_h).

    H^cat is the last H with W_x x + b_x at the corner before it, and * a convolution.
    """
    hidden = grid.fold(tf.tanh(_convolved(grid, reads, now, state)))
    return grid.last(hidden), (hidden,)


def lstm(grid: Grid, reads: Reads, now: State, state: State) -> tuple[tf.Tensor, State]:
    """Tensorized LSTM: C = G * I + conv(C') * F;  H = tanh(C) * O.

    G, I, F, O and the kernels Q of conv are blocks of W_h * H^cat + b_h, see `rnn`. The
    kernels are softmax(Q), one for each place and step; without Q conv(C') is C'. With
    channel normalisation H = tanh(normalised C) * O.
    """
    _, cell = state
    channels = cell.shape[-1] // grid.places
    blocks = _convolved(grid, reads, now, state)
    sizes = [channels, 3 * channels, -1]
    candidate, gates, kernels = tf.split(blocks, sizes, axis=-1)
    write, keep, read = tf.split(tf.sigmoid(gates), 3, axis=-1)
    if kernels.shape[-1]:
        carried = _memory(grid, cell, tf.nn.softmax(kernels))
    else:
        carried = tf.reshape(cell, [-1, channels])
    after = tf.tanh(candidate) * write + carried * keep
    _, *scale = reads.vectors
    shown = _normalized(grid, after, *scale) if scale else after
    hidden = grid.fold(tf.tanh(shown) * read)
    return grid.last(hidden), (hidden, grid.fold(after))


def _convolved(grid: Grid, reads: Reads, now: State, state: State) -> tf.Tensor:
    """Returns W_h * H^cat + b_h, [B * places, blocks]."""
    (inputs,) = now
    bias, *_ = reads.vectors
    hidden = masked(state[0], reads.mask)
    around = grid.read(grid.joined(inputs, hidden))
    return reads.multiply(0, around) + bias


def _memory(grid: Grid, cell: tf.Tensor, kernels: tf.Tensor) -> tf.Tensor:
    """Returns for each place its kernel over the cells that it reads, [B * places, M]."""
    read = grid.read(grid.with_edges(cell))
    read = tf.reshape(read, [-1, grid.taps, read.shape[-1] // grid.taps])
    return tf.squeeze(tf.matmul(kernels[:, None], read), 1)


def _normalized(
    grid: Grid, cell: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor
) -> tf.Tensor:
    """Returns the cells of each place, of mean 0 and variance 1, times gamma, plus beta."""
    # Half precision has no room for squares.
    wide = tf.cast(cell, tf.float32) if cell.dtype.size < 4 else cell
    wide -= tf.reduce_mean(wide, axis=-1, keepdims=True)
    variance = tf.reduce_mean(tf.square(wide), axis=-1, keepdims=True)
    wide /= tf.sqrt(variance + EPSILON)
    values = tf.reshape(tf.cast(wide, cell.dtype), [-1, *gamma.shape])
    return tf.reshape(values * gamma + beta, [-1, cell.shape[-1]])
