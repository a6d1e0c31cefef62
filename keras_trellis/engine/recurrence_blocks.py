"""The loop over time in less memory: it keeps a state once a block, and computes blocks again."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from keras_trellis.backend.tensorflow import with_static_shape
from keras_trellis.core.recurrence import Recurrent, Step, block_size
from keras_trellis.engine import recurrence
from keras_trellis.engine.recurrence import recur
from keras_trellis.types import Number, State


def recur_recomputing(
    step: Step, recurrent: Recurrent, inputs: State, state: State, units: int
) -> tuple[tf.Tensor, State]:
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

    def in_blocks() -> tuple[tf.Tensor, State]:
        return _in_blocks(step, recurrent, first, state, units, size)

    def nothing() -> tuple[tf.Tensor, State]:
        rows = tf.shape(state[0])[0]
        outputs = tf.zeros([0, rows, units], state[-1].dtype)
        return outputs, tuple(map(tf.identity, state))

    if not isinstance(whole, int):
        outputs, state = tf.cond(whole > 0, in_blocks, nothing)
    elif whole:
        outputs, state = in_blocks()
    else:
        outputs, state = nothing()
    last, state = recur(step, recurrent, rest, state, units, training=True)
    return tf.concat([outputs, last], axis=0), state


def _in_blocks(
    step: Step,
    recurrent: Recurrent,
    inputs: State,
    state: State,
    units: int,
    size: Number,
) -> tuple[tf.Tensor, State]:
    """Runs a cell over whole blocks; their gradient keeps the state before each block."""
    structure = (recurrent.matrices, recurrent.vectors, inputs, state)

    @tf.custom_gradient
    def run(*flat: tf.Tensor) -> Any:
        matrices, vectors, now, first = tf.nest.pack_sequence_as(structure, flat)
        held = recurrent._replace(matrices=matrices, vectors=vectors)
        blocks = tuple(_cut(tensor, size) for tensor in now)
        outputs, last, before = _forward(step, held, blocks, first, units)

        def gradient(by_outputs: tf.Tensor, *by_last: tf.Tensor) -> list[Any]:
            upstream = _cut(by_outputs, size)
            gradients = _backward(step, held, blocks, before, upstream, by_last)
            return recurrence.without_gradients(gradients)

        return (_joined(outputs), *last), gradient

    outputs, *last = run(*tf.nest.flatten(structure))
    return outputs, tuple(last)


def _forward(
    step: Step, recurrent: Recurrent, blocks: State, state: State, units: int
) -> tuple[tf.Tensor, State, State]:
    """Returns the outputs of all blocks, the last state, and the state before each block."""
    count = recurrence.num_steps(blocks)
    _, size, batch_size, *_ = blocks[0].shape
    dtype = state[-1].dtype
    written = [recurrence.empty_array(count, [size, batch_size, units], dtype)]
    for tensor in state:
        array = recurrence.empty_array(count, [batch_size, tensor.shape[-1]], dtype)
        written.append(array)
    read = list(map(recurrence.reader, blocks))

    def turn(block: tf.Tensor, state: State, written: list) -> tuple:
        now = tuple(array.read(block) for array in read)
        outputs, after = recur(step, recurrent, now, state, units, training=False)
        after = tuple(map(with_static_shape, after, state))
        written = recurrence.write_at(written, block, [outputs, *state])
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
    by_outputs: tf.Tensor,
    by_last: State,
) -> list[tf.Tensor | None]:
    """Returns the gradients of matrices, vectors, inputs and the first state."""
    count = recurrence.num_steps(blocks)
    moving = [tensor.dtype.is_floating for tensor in blocks]  # a mask is not
    residuals = (blocks, before, by_outputs)
    read = tf.nest.map_structure(recurrence.reader, residuals)
    written = []
    for tensor in recurrence.chosen(blocks, moving):
        written.append(recurrence.empty_array(count, tensor.shape[1:], tensor.dtype))

    def turn(
        block: tf.Tensor, by_state: State, by_weights: Any, written: list
    ) -> tuple:
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
    stacked = iter([_joined(array.stack()) for array in written])
    by_inputs = [next(stacked) if moves else None for moves in moving]
    return [*tf.nest.flatten(by_weights), *by_inputs, *by_first]


def _block_gradient(
    step: Step,
    recurrent: Recurrent,
    inputs: State,
    state: State,
    by_outputs: tf.Tensor,
    moving: list[bool],
    by_state: State,
) -> Any:
    """Returns the gradients of one block, of the weights, the inputs and the state before it."""
    weights = (recurrent.matrices, recurrent.vectors)
    weights = tf.nest.map_structure(tf.identity, weights)
    matrices, vectors = weights
    held = recurrent._replace(matrices=matrices, vectors=vectors)
    units = by_outputs.shape[-1]
    sources = (weights, recurrence.chosen(inputs, moving), state)
    with tf.GradientTape() as tape:
        tape.watch(sources)
        outputs, after = recur(step, held, inputs, state, units, training=True)
    by_after = [by_outputs, *by_state]
    return tape.gradient([outputs, *after], sources, output_gradients=by_after)


def _cut(sequence: tf.Tensor, size: Number) -> tf.Tensor:
    """Returns a sequence `[blocks * size, ...]` as `[blocks, size, ...]`."""
    length, *others = _shape(sequence)
    return tf.reshape(sequence, [length // size, size, *others])


def _joined(blocks: tf.Tensor) -> tf.Tensor:
    """Returns blocks `[blocks, size, ...]` as a sequence."""
    count, size, *others = _shape(blocks)
    return tf.reshape(blocks, [count * size, *others])


def _shape(tensor: tf.Tensor) -> list[Number]:
    """Returns a shape, with integers where it is known."""
    shape: list[Number] = []
    for axis, known in enumerate(tensor.shape):
        shape.append(tf.shape(tensor)[axis] if known is None else known)
    return shape
