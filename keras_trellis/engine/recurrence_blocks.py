"""The loop over time in less memory: it keeps a state once a block, and computes blocks again."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from keras_trellis.backend.tensorflow import with_static_shape
from keras_trellis.core.recurrence import Recurrent, Step, block_size
from keras_trellis.engine import recurrence
from keras_trellis.engine.recurrence import recur
from keras_trellis.types import Number, State, Tensor


def recur_recomputing(
    step: Step, recurrent: Recurrent, inputs: State, state: State, units: int
) -> tuple[Tensor, State]:
    """As `recurrence.recur` in training, but computes the steps of a block again.

    The memory beyond that of inputs and outputs grows with the square root of the number of
    steps, not with the number.
    """
    steps = recurrence.num_steps(inputs)
    size = block_size(recurrent, state, steps)
    # At least one step remains: an array without elements has no shape.
    whole = (steps - 1) // size * size
    first = tuple(tensor[:whole] for tensor in inputs)
    rest = tuple(tensor[whole:] for tensor in inputs)

    def in_blocks() -> tuple[Tensor, State]:
        return _in_blocks(step, recurrent, first, state, units, size)

    def nothing() -> tuple[Tensor, State]:
        rows = tf.shape(state[0])[0]
        outputs = tf.zeros([0, rows, units], state[-1].dtype)
        unchanged = tuple(map(tf.identity, state))
        return outputs, unchanged

    if not isinstance(whole, int):
        outputs, state = tf.cond(whole > 0, in_blocks, nothing)
    elif whole:
        outputs, state = in_blocks()
    else:
        outputs, state = nothing()
    last, state = recur(step, recurrent, rest, state, units, training=True)
    outputs = tf.concat([outputs, last], axis=0)
    return outputs, state


def _in_blocks(
    step: Step,
    recurrent: Recurrent,
    inputs: State,
    state: State,
    units: int,
    size: Number,
) -> tuple[Tensor, State]:
    """Runs a cell over whole blocks; their gradient keeps the state before each block."""
    structure = (recurrent.matrices, recurrent.vectors, inputs, state)

    @tf.custom_gradient
    def run(*flat: Tensor) -> Any:
        matrices, vectors, now, first = tf.nest.pack_sequence_as(structure, flat)
        held = recurrent._replace(matrices=matrices, vectors=vectors)
        blocks = tuple(_cut(tensor, size) for tensor in now)
        outputs, last, before = _forward(step, held, blocks, first, units)

        def gradient(by_outputs: Tensor, *by_last: Tensor) -> list[Any]:
            upstream = _cut(by_outputs, size)
            gradients = _backward(step, held, blocks, before, upstream, by_last)
            return recurrence.without_gradients(gradients)

        results = (_joined(outputs), *last)
        return results, gradient

    flat = tf.nest.flatten(structure)
    outputs, *last = run(*flat)
    return outputs, tuple(last)


def _forward(
    step: Step, recurrent: Recurrent, blocks: State, state: State, units: int
) -> tuple[Tensor, State, State]:
    """Returns the outputs of all blocks, the last state, and the state before each block."""
    count = recurrence.num_steps(blocks)
    _, size, batch_size, *_ = blocks[0].shape
    dtype = state[-1].dtype
    shapes = [[size, batch_size, units]]
    shapes += [[batch_size, tensor.shape[-1]] for tensor in state]
    written = [recurrence.empty_array(count, shape, dtype) for shape in shapes]
    read = list(map(recurrence.reader, blocks))

    def turn(block: Tensor, state: State, written: list) -> tuple:
        now = tuple(array.read(block) for array in read)
        outputs, after = recur(step, recurrent, now, state, units, training=False)
        after = tuple(map(with_static_shape, after, state))
        values = [outputs, *state]
        written = recurrence.write_at(written, block, values)
        return block + 1, after, written

    start = (tf.constant(0), state, written)
    _, state, written = recurrence.time_loop(count, turn, start)
    outputs, *before = [array.stack() for array in written]
    return outputs, state, tuple(before)


def _backward(
    step: Step,
    recurrent: Recurrent,
    blocks: State,
    before: State,
    by_outputs: Tensor,
    by_last: State,
) -> list[Tensor | None]:
    """Returns the gradients of matrices, vectors, inputs and the first state."""
    count = recurrence.num_steps(blocks)
    moving = [tensor.dtype.is_floating for tensor in blocks]  # a mask is not
    residuals = (blocks, before, by_outputs)
    read = tf.nest.map_structure(recurrence.reader, residuals)
    written = []
    for tensor in recurrence.chosen(blocks, moving):
        shape = tensor.shape[1:]
        written.append(recurrence.empty_array(count, shape, tensor.dtype))

    def turn(block: Tensor, by_state: State, by_weights: Any, written: list) -> tuple:
        place = count - 1 - block
        now, before, upstream = recurrence.read_at(read, place)
        by_these, by_now, by_before = _block_gradient(
            step, recurrent, now, before, upstream, moving, by_state
        )
        by_weights = tf.nest.map_structure(tf.add, by_weights, by_these)
        written = recurrence.write_at(written, place, by_now)
        return block + 1, by_before, by_weights, written

    weights = (recurrent.matrices, recurrent.vectors)
    nothing = tf.nest.map_structure(tf.zeros_like, weights)
    start = (tf.constant(0), tuple(by_last), nothing, written)
    _, by_first, by_weights, written = recurrence.time_loop(count, turn, start)
    stacked = (_joined(array.stack()) for array in written)
    by_inputs = [next(stacked) if moves else None for moves in moving]
    by_flat_weights = tf.nest.flatten(by_weights)
    return [*by_flat_weights, *by_inputs, *by_first]


def _block_gradient(
    step: Step,
    recurrent: Recurrent,
    inputs: State,
    state: State,
    by_outputs: Tensor,
    moving: list[bool],
    by_state: State,
) -> Any:
    """Returns the gradients of one block, of the weights, the inputs and the state before it."""
    weights = (recurrent.matrices, recurrent.vectors)
    weights = tf.nest.map_structure(tf.identity, weights)
    matrices, vectors = weights
    held = recurrent._replace(matrices=matrices, vectors=vectors)
    units = by_outputs.shape[-1]
    moving_inputs = recurrence.chosen(inputs, moving)
    sources = (weights, moving_inputs, state)
    with tf.GradientTape() as tape:
        tape.watch(sources)
        outputs, after = recur(step, held, inputs, state, units, training=True)
    results = [outputs, *after]
    by_results = [by_outputs, *by_state]
    return tape.gradient(results, sources, output_gradients=by_results)


def _cut(sequence: Tensor, size: Number) -> Tensor:
    """Returns a sequence `[blocks * size, ...]` as `[blocks, size, ...]`."""
    length, *others = _shape(sequence)
    return tf.reshape(sequence, [length // size, size, *others])


def _joined(blocks: Tensor) -> Tensor:
    """Returns blocks `[blocks, size, ...]` as a sequence."""
    count, size, *others = _shape(blocks)
    return tf.reshape(blocks, [count * size, *others])


def _shape(tensor: Tensor) -> list[Number]:
    """Returns a shape, with integers where it is known."""
    shape: list[Number] = []
    for axis, size in enumerate(tensor.shape):
        if size is None:
            size = tf.shape(tensor)[axis]
        shape.append(size)
    return shape
