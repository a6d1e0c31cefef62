"""The loop over time of a recurrent cell, and its gradient.

What does not read the state was computed before, for all steps at once. In training the
loop has a gradient of its own. The forward pass keeps the states, and the products of
the state with matrices. The backward pass goes back step by step. Its tape covers one
step and takes the kept products for given, so that a step multiplies by transposed
matrices alone. After the loop the gradient of a matrix is one product over all steps.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf

from keras_trellis.backend.tensorflow import with_static_shape
from keras_trellis.core.convolution import rows
from keras_trellis.core.recurrence import (
    Reads,
    Recurrent,
    Step,
    plain_reads,
    unrolled,
)
from keras_trellis.types import Number, State

Tensors: TypeAlias = list[tf.Tensor]
_NO_SECOND_GRADIENT = "a gradient of a gradient needs training=False"


def recur(
    step: Step,
    recurrent: Recurrent,
    inputs: State,
    state: State,
    units: int,
    *,
    training: bool,
    unroll: bool = False,
) -> tuple[tf.Tensor, State]:
    """Runs a cell over time, as `core.recurrence.recur` describes it.

    Args:
        step: one step of the cell.
        recurrent: what the state meets.
        inputs: what was computed before, each `[T, B, channels]`.
        state: the state at the beginning, each `[B, channels]`.
        units: the number of channels of an output.
        training: whether the loop has a gradient of its own. Then it cannot be
            differentiated twice.
        unroll: whether there is no loop where `training` is False. LiteRT has no arrays
            that a loop could write to.

    Returns:
        the outputs `[T, B, units]`, and the state after the last step.
    """
    if not training and (unroll or inputs[0].shape[0] == 1):
        return unrolled(step, plain_reads(recurrent), inputs, state)
    if not training:
        outputs, state, _, _ = _forward(
            step, recurrent, inputs, state, units, keep=False
        )
        return outputs, state
    structure = (recurrent.matrices, recurrent.vectors, inputs, state)

    @tf.custom_gradient
    def run(*flat: tf.Tensor) -> Any:
        matrices, vectors, now, first = tf.nest.pack_sequence_as(structure, flat)
        held = recurrent._replace(matrices=matrices, vectors=vectors)
        outputs, last, before, products = _forward(
            step, held, now, first, units, keep=True
        )

        def gradient(by_outputs: tf.Tensor, *by_last: tf.Tensor) -> list[Any]:
            residuals = _Residuals(now, before, products)
            gradients = _backward(step, held, residuals, by_outputs, by_last)
            return without_gradients(gradients)

        return (outputs, *last), gradient

    outputs, *last = run(*tf.nest.flatten(structure))
    return outputs, tuple(last)


class _Residuals(NamedTuple):
    """What the backward pass reads of each step, each `[T, B, channels]`."""

    inputs: State
    before: Tensors
    products: Tensors


def _forward(
    step: Step,
    recurrent: Recurrent,
    inputs: State,
    state: State,
    units: int,
    *,
    keep: bool,
) -> tuple[tf.Tensor, State, Tensors, Tensors]:
    """Returns the outputs, the last state and, if kept, all states and products."""
    steps = num_steps(inputs)
    dtype = state[-1].dtype
    batch_size = inputs[0].shape[1]
    shapes = [[batch_size, units]]
    if keep:
        shapes += [[batch_size, tensor.shape[-1]] for tensor in state]
        batch_rows = recurrent.rows(batch_size)
        shapes += [[batch_rows, matrix.shape[-1]] for matrix in recurrent.matrices]
    written = [empty_array(steps, shape, dtype) for shape in shapes]
    read = list(map(reader, inputs))

    def turn(time: tf.Tensor, state: State, written: list) -> tuple:
        products: Tensors = []

        def multiply(index: int, values: tf.Tensor) -> tf.Tensor:
            product = tf.matmul(values, recurrent.matrices[index])
            products.append(product)
            return product

        now = tuple(array.read(time) for array in read)
        reads = Reads(multiply, recurrent.vectors, recurrent.mask)
        output, after = step(reads, now, state)
        values = [output, *state, *products] if keep else [output]
        after = tuple(map(with_static_shape, after, state))
        return time + 1, after, write_at(written, time, values)

    start = (tf.constant(0), state, written)
    _, state, written = time_loop(steps, turn, start)
    outputs, *residuals = [array.stack() for array in written]
    return outputs, state, residuals[: len(state)], residuals[len(state) :]


def _backward(
    step: Step,
    recurrent: Recurrent,
    residuals: _Residuals,
    by_outputs: tf.Tensor,
    by_last: State,
) -> Iterable[tf.Tensor | None]:
    """Returns the gradients of matrices, vectors, inputs and the first state."""
    steps = num_steps(residuals.inputs)
    read = tf.nest.map_structure(reader, residuals)
    upstream = reader(by_outputs)
    moving = [tensor.dtype.is_floating for tensor in residuals.inputs]  # a mask is not
    written = _gradient_arrays(recurrent, residuals, moving, by_outputs)

    def turn(
        time: tf.Tensor, by_state: State, by_vectors: State, written: list
    ) -> tuple:
        place = steps - 1 - time
        at = read_at(read, place)
        by_after = [upstream.read(place), *by_state]
        values, by_state, by_these = _step_gradient(
            step, recurrent, at, moving, by_after
        )
        by_vectors = tuple(map(tf.add, by_vectors, by_these))
        return time + 1, by_state, by_vectors, write_at(written, place, values)

    nothing = tuple(map(tf.zeros_like, recurrent.vectors))
    start = (tf.constant(0), tuple(by_last), nothing, written)
    _, by_first, by_vectors, written = time_loop(steps, turn, start)
    stacked = (array.stack() for array in written)
    by_inputs = [next(stacked) if moves else None for moves in moving]
    by_products = [next(stacked) for _ in recurrent.matrices]
    by_matrices = [
        tf.matmul(rows(multiplied), rows(by_product), transpose_a=True)
        for by_product, multiplied in zip(by_products, stacked, strict=True)
    ]
    return *by_matrices, *by_vectors, *by_inputs, *by_first


def _gradient_arrays(
    recurrent: Recurrent,
    residuals: _Residuals,
    moving: list[bool],
    by_outputs: tf.Tensor,
) -> list[tf.TensorArray]:
    """Returns empty arrays for what `_step_gradient` returns of each step, in its order."""
    inputs = chosen(residuals.inputs, moving)
    shapes = [tensor.shape[1:] for tensor in [*inputs, *residuals.products]]
    batch_rows = recurrent.rows(by_outputs.shape[1])
    shapes += [[batch_rows, matrix.shape[0]] for matrix in recurrent.matrices]
    steps = num_steps(residuals.inputs)
    return [empty_array(steps, shape, by_outputs.dtype) for shape in shapes]


def _step_gradient(
    step: Step,
    recurrent: Recurrent,
    at: _Residuals,
    moving: list[bool],
    by_after: Tensors,
) -> tuple[Tensors, State, State]:
    """Returns the gradients of one step.

    Args:
        step: the step.
        recurrent: what the state meets.
        at: what was kept of this step.
        moving: which inputs have a gradient.
        by_after: the gradients with respect to the output and the next state.

    Returns:
        the gradients with respect to inputs and products, and what was multiplied; those with
        respect to the state; those with respect to the vectors.
    """
    vectors = tuple(map(tf.identity, recurrent.vectors))
    multiplied: Tensors = []

    def multiply(index: int, values: tf.Tensor) -> tf.Tensor:
        multiplied.append(values)
        return _known(values, at.products[index], recurrent.matrices[index])

    before = tuple(at.before)
    sources = (chosen(at.inputs, moving), at.products, before, vectors)
    with tf.GradientTape() as tape:
        tape.watch(sources)
        reads = Reads(multiply, vectors, recurrent.mask)
        output, after = step(reads, at.inputs, before)
    by_inputs, by_products, by_state, by_vectors = tape.gradient(
        [output, *after],
        sources,
        output_gradients=by_after,
        unconnected_gradients=tf.UnconnectedGradients.ZERO,
    )
    return [*by_inputs, *by_products, *multiplied], by_state, by_vectors


def _known(values: tf.Tensor, product: tf.Tensor, matrix: tf.Tensor) -> tf.Tensor:
    """Returns a product that is known; it has a gradient, and so have its values."""

    @tf.custom_gradient
    def known(values: tf.Tensor, product: tf.Tensor) -> Any:
        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return tf.matmul(upstream, matrix, transpose_b=True), upstream

        return tf.identity(product), gradient

    return known(values, product)


def without_gradients(gradients: Iterable[tf.Tensor | None]) -> list[Any]:
    """Returns gradients that cannot be differentiated, None in the place of none.

    A second derivative would take the kept products for constants.
    """
    prevent = functools.partial(tf.raw_ops.PreventGradient, message=_NO_SECOND_GRADIENT)
    return [value if value is None else prevent(input=value) for value in gradients]


# What loops over time read and write: arrays with an element a step, or a block of steps.


def time_loop(turns: Number, turn: Callable[..., tuple], start: tuple) -> tuple:
    """Returns what a `tf.while_loop` leaves; its first value counts the turns."""
    return tf.while_loop(
        lambda time, *_: time < turns,
        turn,
        start,
        maximum_iterations=turns,  # without it XLA cannot differentiate the loop
        parallel_iterations=1,
    )


def num_steps(sequences: Sequence[tf.Tensor]) -> Number:
    """Returns the length of sequences `[T, ...]`, as an integer if it is known."""
    known = sequences[0].shape[0]
    if known is None:
        return tf.shape(sequences[0])[0]
    return known


def empty_array(size: Number, shape: Any, dtype: tf.DType) -> tf.TensorArray:
    """Returns an empty array of elements of a shape."""
    return tf.TensorArray(dtype, size=size, element_shape=shape)


def reader(sequence: tf.Tensor) -> tf.TensorArray:
    """Returns an array of what stands along the first dimension."""
    empty = empty_array(num_steps([sequence]), sequence.shape[1:], sequence.dtype)
    return empty.unstack(sequence)


def read_at(arrays: Any, place: tf.Tensor) -> Any:
    """Returns what the arrays of a nest hold at a place."""
    # A copy each: a tape may otherwise watch an earlier capture.
    return tf.nest.map_structure(lambda array: tf.identity(array.read(place)), arrays)


def write_at(arrays: list, place: tf.Tensor, values: list[tf.Tensor]) -> list:
    """Returns arrays with a value each at a place."""
    pairs = zip(arrays, values, strict=True)
    return [array.write(place, value) for array, value in pairs]


def chosen(values: Sequence[tf.Tensor], choice: list[bool]) -> list[tf.Tensor]:
    """Returns the values that are chosen."""
    pairs = zip(values, choice, strict=True)
    return [value for value, is_chosen in pairs if is_chosen]
