"""One level of the network: the map that the depth loop applies again and again.

A level reads its taps out of the level below, multiplies them with the hidden kernel, and passes
the sum with the injected input through the gate. Nearly all of the time goes into the product; all
else moves memory, and is compiled into single passes where that pays.
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
    multiply,
    pad_left,
    rows,
)
from keras_trellis.core.gates import Gate
from keras_trellis.engine.tracing import with_gradient
from keras_trellis.types import State

_STEP_UNITS = 16_000  # steps times channels from which on XLA compiles parts of a training step


class HiddenKernel(NamedTuple):
    """What all levels multiply with.

    Attributes:
        kernel: [k, units, blocks * units], in the compute dtype or in a better precision, in which
            the levels' gradients are then summed.
        matrix: the same in the compute dtype, [k * units, blocks * units]; cast once a call, and
            a constant to gradients.
        mask: variational dropout of what enters the product, [B, 1, units], or None.
    """

    kernel: tf.Tensor
    matrix: tf.Tensor
    mask: tf.Tensor | None


def hidden_kernel(kernel: tf.Tensor, dtype: tf.DType, mask: tf.Tensor | None) -> HiddenKernel:
    """Returns the kernel [k, units, blocks * units] as the levels want it."""
    return HiddenKernel(kernel, tf.stop_gradient(rows(tf.cast(kernel, dtype))), mask)


def some_taps(hidden: HiddenKernel, begin: int, end: int) -> HiddenKernel:
    """Returns the kernel of the taps begin, ..., end - 1 alone."""
    units = hidden.kernel.shape[1]
    matrix = hidden.matrix[begin * units : end * units]
    return hidden._replace(kernel=hidden.kernel[begin:end], matrix=matrix)


def hidden_products(taps: tf.Tensor, hidden: HiddenKernel) -> tf.Tensor:
    """Returns [B, T, k * units] times the hidden kernel, [B, T, blocks * units].

    As in `level`, the kernel's gradient is in the kernel's own precision; that of mixed precision
    cannot be differentiated.
    """
    if hidden.kernel.dtype == hidden.matrix.dtype:
        return multiply(taps, rows(hidden.kernel))

    @with_gradient
    def apply(taps: tf.Tensor, kernel: tf.Tensor) -> Any:
        def gradient(upstream: tf.Tensor) -> Any:
            by_taps = multiply(upstream, hidden.matrix, transpose=True)
            return _last(by_taps), _last(_kernel_gradient(taps, upstream, kernel))

        return multiply(taps, hidden.matrix), gradient

    return apply(taps, hidden.kernel)


def _kernel_gradient(taps: tf.Tensor, by_products: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    by_kernel = tf.matmul(rows(taps), rows(by_products), transpose_a=True)
    return tf.reshape(tf.cast(by_kernel, kernel.dtype), kernel.shape)


class _Reach(NamedTuple):
    """Which steps of the level below a level reads, and which have a result."""

    taps: int
    dilation: int
    steps: int | None
    kept: Kept


def level(
    past: State,
    state: State,
    hidden: HiddenKernel,
    addend: tf.Tensor,
    *,
    gate: Gate,
    dilation: int,
    steps: int | None = None,
    kept: Kept = ALL,
    training: bool = False,
) -> State:
    """Returns a level's state.

    For its gradient it keeps the pre-activations and the state of the level below, `blocks +
    states` times `units` numbers a step, and computes all else again. The gate's derivative is a
    tape's. The kernel's gradient is a product a level: one of several levels' stacked factors was
    no faster (`benchmarks.weight_gradient`).

    Args:
        past: what stands left of the state below, each [B, W, units], W at least
            max(k - 1, 1) * dilation.
        state: the state of the level below, each [B, T, units].
        hidden: the hidden kernel.
        addend: what joins the products: the injected input and the bias, [B, T', blocks * units],
            or a bias alone, [blocks * units].
        gate: the gate.
        dilation: the level's dilation.
        steps: how many of the first steps have taps that are not zero; None: all may have. Where
            not all steps are kept, None or 0.
        kept: the T' steps to compute.
        training: whether XLA may compile what stands between the products.

    Returns:
        The gate's states, each [B, T', units].
    """
    reach = _Reach(hidden.kernel.shape[0], dilation, steps, kept)
    run = _compiled if training and _pays(state[0]) else functools.partial
    read, read_gradient = run(_read, reach), run(_read_gradient, reach)
    activate, activate_gradient = run(_activate, gate, reach), run(_activate_gradient, gate, reach)
    addend_rank = addend.shape.rank  # its values are not kept
    mixed = hidden.kernel.dtype != hidden.matrix.dtype

    @with_gradient
    def apply(past: State, state: State, kernel: tf.Tensor, addend: tf.Tensor) -> Any:
        matrix = hidden.matrix if mixed else rows(kernel)
        if steps == 0:  # LiteRT mistakes the shape of a product of no rows
            total = addend + tf.zeros_like(keep_steps(state[0], kept)[..., :1])
        else:
            products = multiply(read(past, state, hidden.mask), matrix)
            total = _fill_up(products, reach, state) + addend

        def gradient(*upstream: tf.Tensor) -> Any:
            by_total, by_shifted = activate_gradient(total, past, state, upstream)
            by_products = by_total[:, :steps]
            by_taps = multiply(by_products, matrix, transpose=True)
            with tf.control_dependencies([by_total]):  # not as early as it could: memory
                taps = read(past, state, hidden.mask)
            gradients = (
                *tf.nest.flatten(read_gradient(past, state, hidden.mask, by_taps, by_shifted)),
                _kernel_gradient(taps, by_products, kernel),
                by_total if addend_rank == 3 else tf.reduce_sum(by_total, axis=(0, 1)),
            )
            # Derivatives of these would miss that the matrix depends on the kernel.
            return tuple(map(_last, gradients)) if mixed else gradients

        return activate(total, past, state), gradient

    return apply(past, state, hidden.kernel, addend)


def _last(gradient: tf.Tensor) -> tf.Tensor:
    """Refuses to be differentiated further."""
    message = "gradients of gradients are not there in mixed precision"
    return tf.raw_ops.PreventGradient(input=gradient, message=message)


def _pays(sequences: tf.Tensor) -> bool:
    """Whether to compile what stands between the products of a training step.

    XLA compiles for each shape anew, for a second or two, so only in graphs, where the number of
    steps is known, and where sequences and channels are so many that the steps pay for it soon.
    """
    _, steps, units = sequences.shape
    return not tf.executing_eagerly() and steps is not None and steps * units >= _STEP_UNITS


@functools.lru_cache(maxsize=256)  # one function each, so that XLA compiles once for all levels
def _compiled(function: Callable, *static: Any) -> Callable:
    return tf.function(functools.partial(function, *static), jit_compile=True, autograph=False)


def _read(reach: _Reach, past: State, state: State, mask: tf.Tensor | None) -> tf.Tensor:
    """Returns the taps, [B, steps, k * units]."""
    padded = pad_left(past[0], state[0][:, : reach.steps])
    padded = padded if mask is None else padded * mask
    taps = join_taps(padded, past[0].shape[1], reach.taps, reach.dilation)
    return taps if reach.steps == 0 else keep_steps(taps, reach.kept)


def _shift(reach: _Reach, past: State, state: State) -> State:
    """Returns the state delayed by the dilation."""
    return tuple(
        keep_steps(delay(pad_left(left, each), left.shape[1], reach.dilation), reach.kept)
        for left, each in zip(past, state, strict=True)
    )


def _fill_up(products: tf.Tensor, reach: _Reach, state: State) -> tf.Tensor:
    """Puts zeros after the first `steps` steps: [B, T', blocks * units]."""
    if reach.steps is None:
        return products
    batch, time = tf.unstack(tf.shape(keep_steps(state[0], reach.kept))[:2])
    rest = tf.zeros([batch, time - tf.shape(products)[1], products.shape[-1]], products.dtype)
    return tf.concat([products, rest], axis=1)


def _activate(gate: Gate, reach: _Reach, total: tf.Tensor, past: State, state: State) -> State:
    return run_gate(gate, total, _shift(reach, past, state))


def run_gate(gate: Gate, total: tf.Tensor, shifted: State) -> State:
    """Runs the gate, in float32 at least: XLA does no arithmetic in less on a CPU, but rounds.

    Args:
        gate: the gate.
        total: the pre-activations, [B, T, blocks * units].
        shifted: the state of the level below, delayed by the dilation, each [B, T, units].

    Returns:
        The gate's states, each [B, T, units].
    """
    precise = tf.float32 if total.dtype.size < 4 else total.dtype
    blocks = tf.split(tf.cast(total, precise), gate.blocks, axis=-1)
    state = gate.step(blocks, tuple(tf.cast(each, precise) for each in shifted))
    return tuple(tf.cast(each, total.dtype) for each in state)


def _activate_gradient(
    gate: Gate, reach: _Reach, total: tf.Tensor, past: State, state: State, upstream: State
) -> tuple[tf.Tensor, list[tf.Tensor | None]]:
    """Returns the gradients with respect to the sum and, None where none, the shifted states."""
    total, shifted = tf.identity(total), _shift(reach, past, state)  # see `_read_gradient`
    with tf.GradientTape() as tape:
        tape.watch([total, shifted])
        after = run_gate(gate, total, shifted)
    return tape.gradient(after, [total, shifted], output_gradients=upstream)


def _read_gradient(
    reach: _Reach,
    past: State,
    state: State,
    mask: tf.Tensor | None,
    by_taps: tf.Tensor,
    by_shifted: Sequence[tf.Tensor | None],
) -> list[State]:
    """Returns the gradients with respect to `past` and `state`.

    A tape follows what a loop's backward pass has captured only from where it was captured first,
    which may have been before, hence the identities.
    """
    past, state = tf.nest.map_structure(tf.identity, (past, state))
    with tf.GradientTape() as tape:
        tape.watch([past, state])
        results = [_read(reach, past, state, mask), *_shift(reach, past, state)]
    pairs = [
        pair for pair in zip(results, [by_taps, *by_shifted], strict=True) if pair[1] is not None
    ]
    return tape.gradient(
        [result for result, _ in pairs],
        [past, state],
        output_gradients=[upstream for _, upstream in pairs],
        unconnected_gradients=tf.UnconnectedGradients.ZERO,
    )
