"""First-order linear recurrences h_t = f_t * h_{t-1} + x_t, in blocks of steps.

A loop over T steps computes T small products, one after another. On a CPU such a product takes less
time than a turn of the loop. So T steps become about sqrt(T) blocks of sqrt(T) steps, and three
loops of sqrt(T) turns each:

1. All blocks go on side by side. Each becomes one step, h_end = F * h_begin + X.
2. The loop over these steps gives h at the beginning of each block.
3. All blocks go on side by side again, from there.

The f are multiplied with one another, and nothing is divided. So f may be 0, and where
|f| <= 1 no product of them grows.
"""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from keras_trellis.core.convolution import axis_size
from keras_trellis.engine.recurrence import empty_array, time_loop
from keras_trellis.types import Number, Tensor

# Blocks pay from so many steps on, and up to so many numbers in h, B * n. With more the memory is
# what takes the time.
MIN_STEPS = 128
MAX_CHANNELS = 2048


def solve(factors: Tensor, addends: Tensor, first: Tensor, *, training: bool) -> Tensor:
    """Returns h after each step of h_t = f_t * h_{t-1} + x_t, `[T, B, n]`.

    The gradient is a recurrence of this kind, from the last step to the first. So it can be
    differentiated too.

    Args:
        factors: f, `[T, B, n]` with T >= 1.
        addends: x, `[T, B, n]`.
        first: h before the first step, `[B, n]`.
        training: whether the gradient is that recurrence; else it is TensorFlow's own of the loops,
            and an exported graph holds no functions of a gradient.
    """
    if not training:
        return _run(factors, addends, first)

    @tf.custom_gradient
    def run(factors: Tensor, addends: Tensor, first: Tensor) -> Any:
        states = _run(factors, addends, first)

        def gradient(upstream: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            # The gradient g of x: g_t = f_{t+1} * g_{t+1} + upstream_t.
            nothing = tf.zeros_like(first)
            following = _shifted(tf.reverse(factors, [0]), nothing)
            reversed_addends = tf.reverse(upstream, [0])
            sums = solve(following, reversed_addends, nothing, training=True)
            by_addends = tf.reverse(sums, [0])
            by_factors = by_addends * _shifted(states, first)
            return by_factors, by_addends, factors[0] * by_addends[0]

        return states, gradient

    return run(factors, addends, first)


def block_size(steps: Number, channels: Number) -> Number:
    """Returns how many steps make a block; 1: there are no blocks.

    Args:
        steps: T, an integer or a scalar.
        channels: B * n, the same.
    """
    is_short = isinstance(steps, int) and steps < MIN_STEPS
    is_wide = isinstance(channels, int) and channels > MAX_CHANNELS
    if is_short or is_wide:
        return 1
    if isinstance(steps, int) and isinstance(channels, int):
        return math.isqrt(steps)
    pays = (steps >= MIN_STEPS) & (channels <= MAX_CHANNELS)
    root = tf.cast(tf.sqrt(tf.cast(steps, tf.float32)), tf.int32)
    return tf.where(pays, root, 1)


def _run(factors: Tensor, addends: Tensor, first: Tensor) -> Tensor:
    """Returns what `solve` does, without its gradient."""
    steps = axis_size(factors, 0)
    size = block_size(steps, axis_size(first, 0) * axis_size(first, 1))
    if isinstance(size, int) and size == 1:
        return _states(factors, addends, first)
    # What is missing of the last block; tf2onnx rounds the quotient of -steps % size to zero.
    missing = (size - steps % size) % size
    paddings = [[0, missing], [0, 0], [0, 0]]
    # What is put behind the last step is read by none before it.
    factors = _cut(tf.pad(factors, paddings), size)
    addends = _cut(tf.pad(addends, paddings), size)
    # The loop of step 2; then every block starts where the one before it has ended.
    ends = _states(*_as_steps(factors, addends), first)
    states = _states(factors, addends, _shifted(ends, first))
    states = tf.transpose(states, [1, 0, 2, 3])
    states = tf.reshape(states, [steps + missing, *tf.unstack(tf.shape(first))])
    return tf.ensure_shape(states[:steps], [None, *first.shape])


def _states(factors: Tensor, addends: Tensor, first: Tensor) -> Tensor:
    """Returns h after each step, along the first axis, by a loop over it."""

    def turn(time: Tensor, state: Tensor, written: tf.TensorArray) -> tuple:
        state = factors[time] * state + addends[time]
        return time + 1, state, written.write(time, state)

    steps = axis_size(factors, 0)
    start = (tf.constant(0), first, empty_array(steps, first.shape, first.dtype))
    _, _, written = time_loop(steps, turn, start)
    return written.stack()


def _as_steps(factors: Tensor, addends: Tensor) -> tuple[Tensor, Tensor]:
    """Returns F and X of each block, `[blocks, B, n]`, of blocks `[size, blocks, B, n]`."""

    def turn(time: Tensor, product: Tensor, state: Tensor) -> tuple:
        factor = factors[time]
        return time + 1, factor * product, factor * state + addends[time]

    start = (tf.constant(1), factors[0], addends[0])
    _, product, state = time_loop(axis_size(factors, 0), turn, start)
    return product, state


def _shifted(sequence: Tensor, first: Tensor) -> Tensor:
    """Returns what stands one step earlier in `[T, B, n]`; `first` stands before it."""
    return tf.concat([first[None], sequence[:-1]], axis=0)


def _cut(sequence: Tensor, size: Number) -> Tensor:
    """Returns blocks of consecutive steps, `[size, blocks, B, n]`."""
    rows, channels = axis_size(sequence, 1), axis_size(sequence, 2)
    count = axis_size(sequence, 0) // size
    blocks = tf.reshape(sequence, [count, size, rows, channels])
    return tf.transpose(blocks, [1, 0, 2, 3])
