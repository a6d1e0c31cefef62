"""The loop over time in less memory: it keeps a state once a block, and computes blocks again."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from keras_trellis.engine import time_loop
from keras_trellis.engine.depth_loop import with_shape_of
from keras_trellis.engine.gradients import only_first
from keras_trellis.engine.recurrence import KEPT, Recurrent, Step, recur
from keras_trellis.types import Number, State


def recur_recomputing(
    step: Step, recurrent: Recurrent, inputs: State, state: State, units: int
) -> tuple[tf.Tensor, State]:
    """As `recurrence.recur` in training, but computes the steps of a block again.

    The memory beyond that of inputs and outputs grows with the square root of the number of
    steps, not with the number.
    """
    steps = time_loop.steps(inputs)
    size = _block(recurrent, state, steps)
    # At least one step remains: an array without elements has no shape.
    whole = (steps - 1) // size * size
    first = tuple(each[:whole] for each in inputs)
    rest = tuple(each[whole:] for each in inputs)

    def in_blocks() -> tuple[tf.Tensor, State]:
        return _in_blocks(step, recurrent, first, state, units, size)

    def nothing() -> tuple[tf.Tensor, State]:
        shape = [0, tf.shape(state[0])[0], units]
        return tf.zeros(shape, state[-1].dtype), tuple(map(tf.identity, state))

    if isinstance(whole, int):
        outputs, state = in_blocks() if whole else nothing()
    else:
        outputs, state = tf.cond(whole > 0, in_blocks, nothing)
    last, state = recur(step, recurrent, rest, state, units, training=True)
    return tf.concat([outputs, last], axis=0), state


def _block(recurrent: Recurrent, state: State, steps: Number) -> Number:
    """Returns how many steps make a block.

    What is kept is the state once a block, and the state, the products and what is multiplied
    at each step of one block. This size makes the sum least.
    """
    of_state = sum(each.shape[-1] for each in state)
    widths = sum(sum(each.shape) for each in recurrent.matrices)
    share = of_state / (of_state + recurrent.places * widths)
    if isinstance(steps, int):
        return max(1, round(math.sqrt(share * steps)))
    size = tf.sqrt(share * tf.cast(steps, "float32"))
    return tf.maximum(1, tf.cast(tf.round(size), "int32"))


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
        blocks = tuple(_cut(each, size) for each in now)
        outputs, last, before = _forward(step, held, blocks, first, units)

        def gradient(by_outputs: tf.Tensor, *by_last: tf.Tensor) -> list[Any]:
            upstream = _cut(by_outputs, size)
            found = _backward(step, held, blocks, before, upstream, by_last)
            return [only_first(each, KEPT) for each in found]

        return (_joined(outputs), *last), gradient

    outputs, *last = run(*tf.nest.flatten(structure))
    return outputs, tuple(last)


def _cut(sequence: tf.Tensor, size: Number) -> tf.Tensor:
    """Returns a sequence [blocks * size, ...] as [blocks, size, ...]."""
    length = sequence.shape[0]
    if isinstance(size, int) and length is not None:
        return tf.reshape(sequence, [length // size, size, *_shape(sequence)[1:]])
    return tf.reshape(sequence, [-1, size, *_shape(sequence)[1:]])


def _joined(blocks: tf.Tensor) -> tf.Tensor:
    """Returns blocks [blocks, size, ...] as a sequence."""
    return tf.reshape(blocks, [-1, *_shape(blocks)[2:]])


def _shape(tensor: tf.Tensor) -> list[Number]:
    """Returns a shape, with integers where it is known."""
    known = tensor.shape.as_list()
    return [
        tf.shape(tensor)[axis] if each is None else each
        for axis, each in enumerate(known)
    ]


def _forward(
    step: Step, recurrent: Recurrent, blocks: State, state: State, units: int
) -> tuple[tf.Tensor, State, list[tf.Tensor]]:
    """Returns the outputs of all blocks, the last state, and the state before each block."""
    count = time_loop.steps(blocks)
    _, size, batch_size, *_ = blocks[0].shape
    shapes = [[size, batch_size, units]]
    shapes += [[batch_size, each.shape[-1]] for each in state]
    dtype = state[-1].dtype
    written = [time_loop.array(count, shape, dtype) for shape in shapes]
    read = list(map(time_loop.reader, blocks))

    def turn(block: tf.Tensor, state: State, written: list) -> tuple:
        now = tuple(each.read(block) for each in read)
        outputs, after = recur(step, recurrent, now, state, units, training=False)
        after = tuple(map(with_shape_of, after, state))
        written = time_loop.write(written, block, [outputs, *state])
        return block + 1, after, written

    _, state, written = time_loop.loop(count, turn, (tf.constant(0), state, written))
    outputs, *before = [each.stack() for each in written]
    return outputs, state, before


def _backward(
    step: Step,
    recurrent: Recurrent,
    blocks: State,
    before: list[tf.Tensor],
    by_outputs: tf.Tensor,
    by_last: State,
) -> list[tf.Tensor | None]:
    """Returns the gradients of matrices, vectors, inputs and the first state."""
    count = time_loop.steps(blocks)
    units = by_outputs.shape[-1]
    moving = [each.dtype.is_floating for each in blocks]  # a mask is not
    read = tf.nest.map_structure(time_loop.reader, (blocks, tuple(before), by_outputs))
    shapes = [each.shape[1:] for each in time_loop.chosen(blocks, moving)]
    written = [time_loop.array(count, each, by_outputs.dtype) for each in shapes]
    weights = (recurrent.matrices, recurrent.vectors)

    def turn(
        block: tf.Tensor, by_state: State, by_weights: Any, written: list
    ) -> tuple:
        place = count - 1 - block
        # A copy each: a tape may otherwise watch an earlier capture.
        at = tf.nest.map_structure(lambda each: tf.identity(each.read(place)), read)
        now, state, upstream = at
        matrices, vectors = tf.nest.map_structure(tf.identity, weights)
        held = recurrent._replace(matrices=matrices, vectors=vectors)
        sources = ((matrices, vectors), time_loop.chosen(now, moving), state)
        with tf.GradientTape() as tape:
            tape.watch(sources)
            outputs, after = recur(step, held, now, state, units, training=True)
        by_these, by_now, by_before = tape.gradient(
            [outputs, *after], sources, output_gradients=[upstream, *by_state]
        )
        by_weights = tf.nest.map_structure(tf.add, by_weights, by_these)
        written = time_loop.write(written, place, by_now)
        return block + 1, by_before, by_weights, written

    nothing = tf.nest.map_structure(tf.zeros_like, weights)
    start = (tf.constant(0), tuple(by_last), nothing, written)
    _, by_first, by_weights, written = time_loop.loop(count, turn, start)
    stacked = iter([_joined(each.stack()) for each in written])
    by_inputs = [next(stacked) if moves else None for moves in moving]
    return [*tf.nest.flatten(by_weights), *by_inputs, *by_first]
