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

from keras_trellis.core.convolution import (
    ALL,
    Kept,
    delay,
    join_taps,
    keep_steps,
    masked,
    multiply,
    pad_left,
    rows,
    time_steps,
    zeros,
)
from keras_trellis.core.gates import Gate
from keras_trellis.core.network import Weights
from keras_trellis.types import State

_STEP_UNITS = 16_000  # from so many steps times channels on XLA compiles parts of a training step


class HiddenKernel(NamedTuple):
    """What every level multiplies by.

    Attributes:
        kernel: [k, units, blocks * units]. Its dtype is that in which the gradients of all levels
            are summed: in training the variable's, else the compute dtype.
        rounded: in mixed precision and training the kernel in the compute dtype, one matrix
            [k * units, blocks * units], a constant to gradients; else nothing.
        mask: the dropout mask of what enters the product, [B, 1, units], or None.
    """

    kernel: tf.Tensor
    rounded: tuple[tf.Tensor, ...]
    mask: tf.Tensor | None

    @property
    def matrix(self) -> tf.Tensor:
        """The kernel in the compute dtype, [k * units, blocks * units]."""
        return self.rounded[0] if self.rounded else rows(self.kernel)


def hidden_kernel(weights: Weights, training: bool) -> HiddenKernel:
    """Returns the hidden kernel as the levels need it, cast once a call."""
    kernel, dtype = weights.recurrent_kernel, weights.kernel.dtype
    if not training:
        kernel = tf.cast(kernel, dtype)
    if kernel.dtype == dtype:
        return HiddenKernel(kernel, (), weights.state_mask)
    matrix = tf.stop_gradient(rows(tf.cast(kernel, dtype)))
    return HiddenKernel(kernel, (matrix,), weights.state_mask)


def some_taps(hidden: HiddenKernel, begin: int, end: int) -> HiddenKernel:
    """Returns the kernel of the taps begin, ..., end - 1 alone."""
    units = hidden.kernel.shape[1]
    rounded = tuple(each[begin * units : end * units] for each in hidden.rounded)
    return hidden._replace(kernel=hidden.kernel[begin:end], rounded=rounded)


def hidden_products(taps: tf.Tensor, hidden: HiddenKernel) -> tf.Tensor:
    """Returns [B, T, k * units] times the hidden kernel, [B, T, blocks * units].

    As in `level`, the kernel's gradient has the kernel's own dtype.
    """
    if not hidden.rounded:
        return multiply(taps, hidden.matrix)

    @tf.custom_gradient
    def apply(taps: tf.Tensor, kernel: tf.Tensor) -> Any:
        def gradient(upstream: tf.Tensor) -> Any:
            by_taps = multiply(upstream, hidden.matrix, transpose=True)
            return _last(by_taps), _last(_kernel_gradient(taps, upstream, kernel))

        return multiply(taps, hidden.matrix), gradient

    return apply(taps, hidden.kernel)


def _kernel_gradient(taps: tf.Tensor, by_products: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    by_kernel = tf.matmul(rows(taps), rows(by_products), transpose_a=True)
    return tf.reshape(tf.cast(by_kernel, kernel.dtype), kernel.shape)


class Reach(NamedTuple):
    """Which steps of the level below a level reads, and which steps it computes.

    Attributes:
        taps: the number of taps, k.
        dilation: the distance between two taps, in steps of the level below.
        steps: how many of the first steps have taps that are not zero; None: all may have. Where
            not all steps are kept, None or 0.
        kept: the T' steps to compute.
    """

    taps: int
    dilation: int
    steps: int | None = None
    kept: Kept = ALL


def level(
    gate: Gate, reach: Reach, hidden: HiddenKernel, *, training: bool
) -> Callable[[State, State, tf.Tensor], State]:
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
        A function of what stands to the left of the state below, each [B, W, units], W at least
        max(k - 1, 1) * dilation; of the state below, each [B, T, units]; and of what joins the
        products: the injected input and the bias, [B, T', blocks * units], or a bias alone,
        [blocks * units]. It returns the gate's states, each [B, T', units].
    """
    if not training:
        return functools.partial(_plain, gate, reach, hidden)
    return functools.partial(tf.custom_gradient(_trained(gate, reach, hidden)), hidden.kernel)


def _plain(
    gate: Gate, reach: Reach, hidden: HiddenKernel, past: State, state: State, addend: tf.Tensor
) -> State:
    read = functools.partial(_read, reach)
    total = _total(reach, read, hidden.mask, hidden.matrix, past, state, addend)
    return activate(gate, reach, total, past, state)


def _trained(gate: Gate, reach: Reach, hidden: HiddenKernel) -> Callable[..., Any]:
    """Returns what `tf.custom_gradient` makes the map of one level of."""

    def apply(kernel: tf.Tensor, past: State, state: State, addend: tf.Tensor) -> Any:
        run = _compiled if _pays(state[0]) else functools.partial
        read = run(_read, reach)
        matrix = hidden.rounded[0] if hidden.rounded else rows(kernel)
        total = _total(reach, read, hidden.mask, matrix, past, state, addend)
        addend_rank = addend.shape.rank  # its values are not kept

        def gradient(*upstream: tf.Tensor) -> Any:
            activate_gradient = run(_activate_gradient, gate, reach)
            by_total, by_shifted = activate_gradient(total, past, state, upstream)
            by_products = by_total[:, : reach.steps]
            by_taps = multiply(by_products, matrix, transpose=True)
            with tf.control_dependencies([by_total]):  # later than it could: less memory
                taps = read(past, state, hidden.mask)
            read_gradient = run(_read_gradient, reach)
            by_past, by_state = read_gradient(past, state, hidden.mask, by_taps, by_shifted)
            by_addend = by_total if addend_rank == 3 else tf.reduce_sum(by_total, axis=(0, 1))
            by_kernel = _kernel_gradient(taps, by_products, kernel)
            gradients = (by_kernel, *by_past, *by_state, by_addend)
            # A second derivative would miss that the rounded kernel depends on the kernel.
            return tuple(map(_last, gradients)) if hidden.rounded else gradients

        return run(activate, gate, reach)(total, past, state), gradient

    return apply


def _last(gradient: tf.Tensor) -> tf.Tensor:
    """Refuses to be differentiated further."""
    message = "gradients of gradients are not there in mixed precision"
    return tf.raw_ops.PreventGradient(input=gradient, message=message)


def _pays(sequences: tf.Tensor) -> bool:
    """Returns whether to compile what stands between the products of a training step.

    XLA takes a second or two for each new shape. It is used in graphs alone, where the number of
    steps is known, and where sequences and channels are so many that the steps soon repay it.
    """
    _, steps, units = sequences.shape
    return not tf.executing_eagerly() and steps is not None and steps * units >= _STEP_UNITS


@functools.lru_cache(maxsize=256)  # one function each, so that XLA compiles once for all levels
def _compiled(function: Callable, *static: Any) -> Callable:
    return tf.function(functools.partial(function, *static), jit_compile=True, autograph=False)


def _total(
    reach: Reach,
    read: Callable[..., tf.Tensor],
    mask: tf.Tensor | None,
    matrix: tf.Tensor,
    past: State,
    state: State,
    addend: tf.Tensor,
) -> tf.Tensor:
    """Returns the pre-activations, [B, T', blocks * units]."""
    if reach.steps == 0:  # LiteRT mistakes the shape of a product of no rows
        return addend + tf.zeros_like(keep_steps(state[0], reach.kept)[..., :1])
    products = multiply(read(past, state, mask), matrix)
    if reach.steps is not None:
        rest = time_steps(keep_steps(state[0], reach.kept)) - time_steps(products)
        nothing = zeros(products, rest, products.shape[-1])
        products = tf.concat([products, nothing], axis=1)
    return products + addend


def _read(reach: Reach, past: State, state: State, mask: tf.Tensor | None) -> tf.Tensor:
    """Returns the taps, [B, steps, k * units]."""
    padded = masked(pad_left(past[0], state[0][:, : reach.steps]), mask)
    taps = join_taps(padded, past[0].shape[1], reach.taps, reach.dilation)
    return taps if reach.steps == 0 else keep_steps(taps, reach.kept)


def _shift(reach: Reach, past: State, state: State) -> State:
    """Returns the state delayed by the dilation."""
    return tuple(
        keep_steps(delay(pad_left(left, each), left.shape[1], reach.dilation), reach.kept)
        for left, each in zip(past, state, strict=True)
    )


def activate(gate: Gate, reach: Reach | None, total: tf.Tensor, past: State, state: State) -> State:
    """Runs the gate, in float32 at least: on a CPU XLA computes in float32 anyway, and rounds.

    Args:
        gate: the gate.
        reach: the steps to read and compute; None: the state is delayed already.
        total: the pre-activations, [B, T', blocks * units].
        past: what stands to the left of the state below, each [B, W, units].
        state: the state of the level below, each [B, T, units].

    Returns:
        The gate's states, each [B, T', units].
    """
    shifted = state if reach is None else _shift(reach, past, state)
    precise = tf.float32 if total.dtype.size < 4 else total.dtype
    blocks = tf.split(tf.cast(total, precise), gate.blocks, axis=-1)
    after = gate.step(blocks, tuple(tf.cast(each, precise) for each in shifted))
    return tuple(tf.cast(each, total.dtype) for each in after)


def _activate_gradient(
    gate: Gate, reach: Reach, total: tf.Tensor, past: State, state: State, upstream: State
) -> tuple[tf.Tensor, list[tf.Tensor | None]]:
    """Returns the gradients with respect to the sum and, None where none, the shifted states."""
    total, shifted = _watchable((total, _shift(reach, past, state)))
    with tf.GradientTape() as tape:
        tape.watch([total, shifted])
        after = activate(gate, None, total, (), shifted)
    return tape.gradient(after, [total, shifted], output_gradients=upstream)


def _read_gradient(
    reach: Reach,
    past: State,
    state: State,
    mask: tf.Tensor | None,
    by_taps: tf.Tensor,
    by_shifted: Sequence[tf.Tensor | None],
) -> list[State]:
    """Returns the gradients with respect to `past` and `state`."""
    past, state = _watchable((past, state))
    with tf.GradientTape() as tape:
        tape.watch([past, state])
        results = [_read(reach, past, state, mask), *_shift(reach, past, state)]
    pairs = zip(results, [by_taps, *by_shifted], strict=True)
    used = [(result, upstream) for result, upstream in pairs if upstream is not None]
    return tape.gradient(
        [result for result, _ in used],
        [past, state],
        output_gradients=[upstream for _, upstream in used],
        unconnected_gradients=tf.UnconnectedGradients.ZERO,
    )


def _watchable(tensors: Any) -> Any:
    """Copies with `tf.identity`: in a loop's gradient a tape may otherwise watch an old capture."""
    return tf.nest.map_structure(tf.identity, tensors)
