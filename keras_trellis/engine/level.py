"""One level of the network: the map that the depth loop applies again and again.

A level reads its taps from the level below, multiplies them by the hidden kernel, adds the
injected input, and passes the sum through the gate. Nearly all of the time goes into the product.
The rest moves memory. In large training steps XLA compiles it into single passes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from keras_trellis.backend.tensorflow import multiply
from keras_trellis.core.convolution import (
    at_least_float32,
    delay,
    join_taps,
    masked,
    pad_left,
    rows,
    take_steps,
    time_steps,
    zeros,
)
from keras_trellis.core.network import Gate, Weights
from keras_trellis.core.schedule import ALL, Steps
from keras_trellis.engine.convolution import compiled, pays, sum_steps
from keras_trellis.types import State, Tensor

# A second derivative would miss that the rounded kernel depends on the kernel.
_ROUNDED = "gradients of gradients are not there in mixed precision"


class HiddenKernel(NamedTuple):
    """What every level multiplies by.

    Attributes:
        kernel: `[k, units, blocks * units]`. Its dtype is that in which the gradients of all levels
            are summed: in training the variable's, else the compute dtype.
        rounded: in mixed precision and training the kernel in the compute dtype, one matrix
            `[k * units, blocks * units]`, a constant to gradients; else nothing.
        mask: the dropout mask of what enters the product, `[B, 1, units]`, or None.
    """

    kernel: Tensor
    rounded: tuple[Tensor, ...]
    mask: Tensor | None

    @property
    def matrix(self) -> Tensor:
        """The kernel in the compute dtype, `[k * units, blocks * units]`."""
        if self.rounded:
            return self.rounded[0]
        return rows(self.kernel)


def hidden_kernel(weights: Weights, training: bool) -> HiddenKernel:
    """Returns the hidden kernel as the levels need it, cast once a call."""
    kernel = weights.recurrent_kernel
    dtype = weights.kernel.dtype
    rounded: tuple[Tensor, ...] = ()
    # One kernel for all levels, and no gradient to sum: the compute dtype is enough.
    if not training:
        kernel = tf.cast(kernel, dtype)
    elif kernel.dtype != dtype:
        # Levels multiply by this copy, and give their gradients to the kernel itself: so a sum over
        # the depth is made in the variable's dtype.
        matrix = rows(tf.cast(kernel, dtype))
        rounded = (tf.stop_gradient(matrix),)
    return HiddenKernel(kernel, rounded, weights.state_mask)


class Reach(NamedTuple):
    """Which steps of the level below a level reads, and which steps it computes.

    Attributes:
        taps: the number of taps, k.
        dilation: the distance between two taps, in steps of the level below.
        steps: how many of the first steps have taps that are not zero; None: all may have. Where
            not all steps are needed, None or 0.
        needed: the T' steps to compute.
    """

    taps: int
    dilation: int
    steps: int | None = None
    needed: Steps = ALL


def level(
    gate: Gate, reach: Reach, hidden: HiddenKernel, *, training: bool
) -> Callable[[State, State, Tensor], State]:
    """Returns the map of one level.

    In training it has a gradient of its own. For this it keeps the pre-activations and the state
    of the level below, `blocks + states` times `units` numbers a step, and computes all else
    again. The gate's derivative comes from a tape. The kernel's gradient is one product a level.
    Otherwise the map is made of plain operations, which any server runs.

    Args:
        gate: the gate.
        reach: the steps that it reads and computes.
        hidden: the hidden kernel.
        training: whether it has its own gradient, parts of which XLA may compile.

    Returns:
        a function of what stands to the left of the state below, each `[B, W, units]`, W at least
        max(k - 1, 1) * dilation; of the state below, each `[B, T, units]`; and of what joins the
        products: the injected input and the bias, `[B, T', blocks * units]`, or a bias alone,
        `[blocks * units]`. It returns the gate's states, each `[B, T', units]`.
    """
    if not training:
        return functools.partial(_plain, gate, reach, hidden)
    trained = tf.custom_gradient(_trained(gate, reach, hidden))
    return functools.partial(trained, hidden.kernel)


def _plain(
    gate: Gate,
    reach: Reach,
    hidden: HiddenKernel,
    past: State,
    state: State,
    addend: Tensor,
) -> State:
    taps = _read(reach, past, state, hidden.mask)
    total = _total(reach, taps, hidden.matrix, state, addend)
    return activate(gate, reach, total, past, state)


def _trained(gate: Gate, reach: Reach, hidden: HiddenKernel) -> Callable[..., Any]:
    """Returns what `tf.custom_gradient` makes the map of one level of."""

    def apply(kernel: Tensor, past: State, state: State, addend: tf.Tensor) -> Any:
        run = compiled if pays(state[0], state[0].shape[-1]) else functools.partial
        read = run(_read, reach)
        matrix = hidden._replace(kernel=kernel).matrix
        taps = read(past, state, hidden.mask)
        total = _total(reach, taps, matrix, state, addend)
        has_steps = addend.shape.rank == 3  # the values are not kept

        def gradient(*upstream: Tensor) -> Any:
            activate_gradient = run(_activate_gradient, gate, reach)
            by_total, by_shifted = activate_gradient(total, past, state, upstream)
            # Beyond these steps all taps were zero, and nothing was multiplied.
            by_products = by_total[:, : reach.steps]
            by_taps = multiply(by_products, matrix, transpose=True)
            # Later than it could be: less memory.
            with tf.control_dependencies([by_total]):
                taps = read(past, state, hidden.mask)
            read_gradient = run(_read_gradient, reach)
            by_past, by_state = read_gradient(
                past, state, hidden.mask, by_taps, by_shifted
            )
            by_kernel = tf.matmul(rows(taps), rows(by_products), transpose_a=True)
            by_kernel = tf.cast(by_kernel, kernel.dtype)
            by_kernel = tf.reshape(by_kernel, kernel.shape)
            # A bias alone was added at every step, so its gradient is a sum over them.
            by_addend = by_total
            if not has_steps:
                by_addend = sum_steps(by_total)
            # As the arguments of `apply` stand when they are flat.
            gradients = (by_kernel, *by_past, *by_state, by_addend)
            if hidden.rounded:
                return tuple(map(_without_gradient, gradients))
            return gradients

        return run(activate, gate, reach)(total, past, state), gradient

    return apply


def _total(
    reach: Reach, taps: Tensor, matrix: Tensor, state: State, addend: Tensor
) -> Tensor:
    """Returns the pre-activations, `[B, T', blocks * units]`."""
    computed = take_steps(state[0], reach.needed)
    if reach.steps == 0:  # LiteRT mistakes the shape of a product of no rows
        return addend + tf.zeros_like(computed[..., :1])
    products = multiply(taps, matrix)
    if reach.steps is not None:
        # Where all taps are zero, so are the products.
        rest = time_steps(computed) - time_steps(products)
        nothing = zeros(products, rest, products.shape[-1])
        products = tf.concat([products, nothing], axis=1)
    return products + addend


def _read(reach: Reach, past: State, state: State, mask: Tensor | None) -> Tensor:
    """Returns the taps, `[B, steps, k * units]`."""
    left = past[0]
    below = state[0][:, : reach.steps]
    padded = masked(pad_left(left, below), mask)
    needed = ALL if reach.steps == 0 else reach.needed
    return join_taps(padded, left.shape[1], reach.taps, reach.dilation, needed)


def _shift(reach: Reach, past: State, state: State) -> State:
    """Returns the state delayed by the dilation."""
    shifted = []
    for left, tensor in zip(past, state, strict=True):
        padded = pad_left(left, tensor)
        shifted.append(delay(padded, left.shape[1], reach.dilation, reach.needed))
    return tuple(shifted)


def activate(
    gate: Gate, reach: Reach | None, total: Tensor, past: State, state: State
) -> State:
    """Runs the gate, in float32 at least: on a CPU XLA computes in float32 anyway, and rounds.

    Args:
        gate: the gate.
        reach: the steps to read and compute; None: the state is delayed already.
        total: the pre-activations, `[B, T', blocks * units]`.
        past: what stands to the left of the state below, each `[B, W, units]`.
        state: the state of the level below, each `[B, T, units]`.

    Returns:
        the gate's states, each `[B, T', units]`.
    """
    shifted = state if reach is None else _shift(reach, past, state)
    summed = at_least_float32(total)
    blocks = tf.split(summed, gate.blocks, axis=-1)
    shifted = tuple(map(at_least_float32, shifted))
    after = gate.step(blocks, shifted)
    return tuple(tf.cast(tensor, total.dtype) for tensor in after)


def _activate_gradient(
    gate: Gate,
    reach: Reach,
    total: Tensor,
    past: State,
    state: State,
    upstream: State,
) -> tuple[Tensor, list[Tensor | None]]:
    """Returns the gradients with respect to the sum and, None where none, the shifted states."""
    # By a tape, and not by hand: a gate of a user's own has only a `step`.
    total, shifted = _watchable((total, _shift(reach, past, state)))
    with tf.GradientTape() as tape:
        tape.watch([total, shifted])
        after = activate(gate, None, total, (), shifted)
    return tape.gradient(after, [total, shifted], output_gradients=upstream)


def _read_gradient(
    reach: Reach,
    past: State,
    state: State,
    mask: Tensor | None,
    by_taps: Tensor,
    by_shifted: Sequence[Tensor | None],
) -> list[State]:
    """Returns the gradients with respect to `past` and `state`."""
    # Taps and shifted states are overlapping slices of the same past and state: a tape adds them
    # up.
    past, state = _watchable((past, state))
    with tf.GradientTape() as tape:
        tape.watch([past, state])
        taps = _read(reach, past, state, mask)
        shifted = _shift(reach, past, state)
    results = [taps]
    upstream = [by_taps]
    for tensor, gradient in zip(shifted, by_shifted, strict=True):
        if gradient is not None:
            results.append(tensor)
            upstream.append(gradient)
    zero = tf.UnconnectedGradients.ZERO
    return tape.gradient(results, [past, state], upstream, unconnected_gradients=zero)


def _without_gradient(gradient: Tensor) -> Tensor:
    return tf.raw_ops.PreventGradient(input=gradient, message=_ROUNDED)


def _watchable(tensors: Any) -> Any:
    """Copies with `tf.identity`: in a loop's gradient a tape may otherwise watch an old capture."""
    return tf.nest.map_structure(tf.identity, tensors)
