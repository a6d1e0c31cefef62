"""The loop over time of a recurrent cell, and its gradient.

What does not read the state was computed before, for all steps at once. In training the
loop has a gradient of its own. The forward pass keeps the states, and the products of
the state with matrices. The backward pass goes back step by step. Its tape covers one
step and takes the kept products for given, so that a step multiplies by transposed
matrices alone. After the loop the gradient of a matrix is one product over all steps.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf

from keras_trellis.backend.tensorflow import with_static_shape
from keras_trellis.core.convolution import axis_size, rows
from keras_trellis.core.recurrence import (
    Reads,
    Recurrent,
    Step,
    block_size,
    plain_reads,
    unrolled,
)
from keras_trellis.engine.depth_loop import handed_on, recomputed
from keras_trellis.types import Number, State, Tensor

Tensors: TypeAlias = list[Tensor]
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
    recompute: bool = False,
) -> tuple[Tensor, State]:
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
        recompute: whether the gradient of a training step computes the steps of a block again.

    Returns:
        the outputs `[T, B, units]`, and the state after the last step.
    """
    if recompute and training:
        return _recomputing(step, recurrent, inputs, state, units)
    is_unrolled = unroll or inputs[0].shape[0] == 1
    if is_unrolled and not training:
        reads = plain_reads(recurrent)
        return unrolled(step, reads, inputs, state)
    if not training:
        outputs, state, _, _ = _forward(
            step, recurrent, inputs, state, units, keep=False
        )
        return outputs, state
    structure = (recurrent.matrices, recurrent.vectors, inputs, state)

    @tf.custom_gradient
    def run(*flat: Tensor) -> Any:
        matrices, vectors, now, first = tf.nest.pack_sequence_as(structure, flat)
        held = recurrent._replace(matrices=matrices, vectors=vectors)
        outputs, last, before, products = _forward(
            step, held, now, first, units, keep=True
        )

        def gradient(by_outputs: Tensor, *by_last: Tensor) -> list[Any]:
            residuals = _Residuals(now, before, products)
            gradients = _backward(step, held, residuals, by_outputs, by_last)
            return without_gradients(gradients)

        results = (outputs, *last)
        return results, gradient

    flat = tf.nest.flatten(structure)
    outputs, *last = run(*flat)
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
) -> tuple[Tensor, State, Tensors, Tensors]:
    """Returns the outputs, the last state and, if kept, all states and products."""
    steps = axis_size(inputs[0], 0)
    dtype = state[-1].dtype
    batch_size = inputs[0].shape[1]
    shapes = [[batch_size, units]]
    if keep:
        shapes += [[batch_size, tensor.shape[-1]] for tensor in state]
        batch_rows = recurrent.rows(batch_size)
        shapes += [[batch_rows, matrix.shape[-1]] for matrix in recurrent.matrices]
    written = [empty_array(steps, shape, dtype) for shape in shapes]
    read = list(map(reader, inputs))

    def turn(time: Tensor, state: State, written: list) -> tuple:
        products: Tensors = []

        def multiply(index: int, values: Tensor) -> Tensor:
            matrix = recurrent.matrices[index]
            product = tf.matmul(values, matrix)
            products.append(product)
            return product

        now = tuple(array.read(time) for array in read)
        reads = Reads(multiply, recurrent.vectors, recurrent.mask)
        output, after = step(reads, now, state)
        values = [output]
        if keep:
            # The state before the step: from it the backward pass runs the step again.
            values += [*state, *products]
        written = write_at(written, time, values)
        after = tuple(map(with_static_shape, after, state))
        return time + 1, after, written

    start = (tf.constant(0), state, written)
    _, state, written = time_loop(steps, turn, start)
    outputs, *residuals = [array.stack() for array in written]
    before = residuals[: len(state)]
    products = residuals[len(state) :]
    return outputs, state, before, products


def _backward(
    step: Step,
    recurrent: Recurrent,
    residuals: _Residuals,
    by_outputs: Tensor,
    by_last: State,
) -> Iterable[Tensor | None]:
    """Returns the gradients of matrices, vectors, inputs and the first state."""
    steps = axis_size(residuals.inputs[0], 0)
    read = tf.nest.map_structure(reader, residuals)
    upstream = reader(by_outputs)
    moving = [tensor.dtype.is_floating for tensor in residuals.inputs]  # a mask is not
    written = _gradient_arrays(recurrent, residuals, moving, by_outputs)

    def turn(time: Tensor, by_state: State, by_vectors: State, written: list) -> tuple:
        place = steps - 1 - time
        at = read_at(read, place)
        by_output = upstream.read(place)
        by_after = [by_output, *by_state]
        values, by_state, by_these = _step_gradient(
            step, recurrent, at, moving, by_after
        )
        by_vectors = tuple(map(tf.add, by_vectors, by_these))
        written = write_at(written, place, values)
        return time + 1, by_state, by_vectors, written

    # Vectors have few numbers, so their gradients are summed on the way; those of matrices would be
    # a product at each step.
    nothing = tuple(map(tf.zeros_like, recurrent.vectors))
    start = (tf.constant(0), tuple(by_last), nothing, written)
    _, by_first, by_vectors, written = time_loop(steps, turn, start)
    stacked = (array.stack() for array in written)
    # Taken in the order of `_gradient_arrays`: inputs, products, and what was multiplied.
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
    by_outputs: Tensor,
) -> list[tf.TensorArray]:
    """Returns empty arrays for what `_step_gradient` returns of each step, in its order."""
    inputs = itertools.compress(residuals.inputs, moving)
    tensors = [*inputs, *residuals.products]
    shapes: list[Any] = [tensor.shape[1:] for tensor in tensors]
    batch_rows = recurrent.rows(by_outputs.shape[1])
    shapes += [[batch_rows, matrix.shape[0]] for matrix in recurrent.matrices]
    steps = axis_size(residuals.inputs[0], 0)
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

    def multiply(index: int, values: Tensor) -> Tensor:
        multiplied.append(values)
        matrix = recurrent.matrices[index]
        return _known(values, at.products[index], matrix)

    before = tuple(at.before)
    inputs = [*itertools.compress(at.inputs, moving)]
    sources = (inputs, at.products, before, vectors)
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
    # What was multiplied is computed again here, and needed for the gradient of the matrices.
    values = [*by_inputs, *by_products, *multiplied]
    return values, by_state, by_vectors


def _known(values: Tensor, product: Tensor, matrix: Tensor) -> Tensor:
    """Returns a product that is known; it has a gradient, and so have its values."""

    @tf.custom_gradient
    def known(values: Tensor, product: Tensor) -> Any:
        def gradient(upstream: Tensor) -> tuple[Tensor, Tensor]:
            by_values = tf.matmul(upstream, matrix, transpose_b=True)
            return by_values, upstream

        return tf.identity(product), gradient

    return known(values, product)


def without_gradients(gradients: Iterable[Tensor | None]) -> list[Any]:
    """Returns gradients that cannot be differentiated, None in the place of none.

    A second derivative would take the kept products for constants.
    """
    prevent = functools.partial(tf.raw_ops.PreventGradient, message=_NO_SECOND_GRADIENT)
    return [value if value is None else prevent(input=value) for value in gradients]


# In less memory: a state is kept once a block, and blocks are computed again.


def _recomputing(
    step: Step, recurrent: Recurrent, inputs: State, state: State, units: int
) -> tuple[Tensor, State]:
    """As `recur` in training, but computes the steps of a block again.

    The memory beyond that of inputs and outputs grows with the square root of the number of
    steps, not with the number.
    """
    steps = axis_size(inputs[0], 0)
    size = block_size(recurrent, state, steps)
    # At least one step remains: an array without elements has no shape.
    count = (steps - 1) // size
    first = tuple(tensor[: count * size] for tensor in inputs)
    rest = tuple(tensor[count * size :] for tensor in inputs)
    run = functools.partial(recur, step, units=units, training=True)

    def in_blocks() -> tuple[Tensor, State]:
        return _in_blocks(run, recurrent, first, state, units, size)

    def nothing() -> tuple[Tensor, State]:
        rows = tf.shape(state[0])[0]
        outputs = tf.zeros([0, rows, units], state[-1].dtype)
        return outputs, tuple(map(tf.identity, state))

    if isinstance(count, int):
        outputs, state = in_blocks() if count else nothing()
    else:
        outputs, state = tf.cond(count > 0, in_blocks, nothing)
    last, state = run(recurrent, rest, state)
    return tf.concat([outputs, last], axis=0), state


def _in_blocks(
    run: Callable[[Recurrent, State, State], tuple[Tensor, State]],
    recurrent: Recurrent,
    inputs: State,
    state: State,
    units: int,
    size: Number,
) -> tuple[Tensor, State]:
    """Runs a cell over whole blocks; their gradient keeps the state before each block."""
    blocks = [reader(_blocks(tensor, size)) for tensor in inputs]
    moving = [tensor.dtype.is_floating for tensor in inputs]  # a mask is not

    def turn(block: Tensor, state: State, weights: Any, written: tf.TensorArray) -> Any:
        now = [array.read(block) for array in blocks]

        def run_block(given: tuple) -> tuple[Tensor, State]:
            (matrices, vectors), state, *moved = given
            held = recurrent._replace(matrices=matrices, vectors=vectors)
            # What has no gradient is no argument of a function that is recomputed: it stays
            # outside.
            following = iter(moved)
            read = zip(now, moving, strict=True)
            inputs = (next(following) if moves else fixed for fixed, moves in read)
            return run(held, tuple(inputs), state)

        moved = itertools.compress(now, moving)
        outputs, after = recomputed(run_block, (weights, state, *moved))
        after = tuple(map(with_static_shape, after, state))
        # Carried along, so that their gradient is one sum.
        carried = tf.nest.map_structure(handed_on, weights)
        return block + 1, after, carried, written.write(block, outputs)

    count = axis_size(inputs[0], 0) // size
    shape = [size if isinstance(size, int) else None, inputs[0].shape[1], units]
    written = empty_array(count, shape, state[-1].dtype)
    weights = (recurrent.matrices, recurrent.vectors)
    start = (tf.constant(0), state, weights, written)
    _, state, _, written = time_loop(count, turn, start)
    return written.concat(), state


def _blocks(sequence: Tensor, size: Number) -> Tensor:
    """Returns a sequence `[blocks * size, ...]` as `[blocks, size, ...]`."""
    count = axis_size(sequence, 0) // size
    return tf.reshape(sequence, [count, size, *tf.unstack(tf.shape(sequence)[1:])])


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


def empty_array(size: Number, shape: Any, dtype: tf.DType) -> tf.TensorArray:
    """Returns an empty array of elements of a shape."""
    return tf.TensorArray(dtype, size=size, element_shape=shape)


def reader(sequence: Tensor) -> tf.TensorArray:
    """Returns an array of what stands along the first dimension."""
    empty = empty_array(axis_size(sequence, 0), sequence.shape[1:], sequence.dtype)
    return empty.unstack(sequence)


def read_at(arrays: Any, place: Tensor) -> Any:
    """Returns what the arrays of a nest hold at a place."""
    # A copy each: a tape may otherwise watch an earlier capture.
    return tf.nest.map_structure(lambda each: tf.identity(each.read(place)), arrays)


def write_at(arrays: list, place: Tensor, values: list[Tensor]) -> list:
    """Returns arrays with a value each at a place."""
    pairs = zip(arrays, values, strict=True)
    return [array.write(place, value) for array, value in pairs]
