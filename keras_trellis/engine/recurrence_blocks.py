"""The loop over time in less memory: it keeps a state once a block, and computes blocks again."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from keras_trellis.backend.tensorflow import with_static_shape
from keras_trellis.core.convolution import axis_size
from keras_trellis.core.recurrence import Recurrent, Step, block_size
from keras_trellis.engine import recurrence
from keras_trellis.engine.depth_loop import handed_on
from keras_trellis.engine.recomputation import recomputed
from keras_trellis.types import Number, State, Tensor


def recur_recomputing(
    step: Step, recurrent: Recurrent, inputs: State, state: State, units: int
) -> tuple[Tensor, State]:
    """As `recurrence.recur` in training, but computes the steps of a block again.

    The memory beyond that of inputs and outputs grows with the square root of the number of
    steps, not with the number.
    """
    steps = axis_size(inputs[0], 0)
    size = block_size(recurrent, state, steps)
    # At least one step remains: an array without elements has no shape.
    count = (steps - 1) // size
    first = tuple(tensor[: count * size] for tensor in inputs)
    rest = tuple(tensor[count * size :] for tensor in inputs)
    run = functools.partial(recurrence.recur, step, units=units, training=True)

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
    blocks = [recurrence.reader(_cut(tensor, size)) for tensor in inputs]
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
    written = recurrence.empty_array(count, shape, state[-1].dtype)
    weights = (recurrent.matrices, recurrent.vectors)
    start = (tf.constant(0), state, weights, written)
    _, state, _, written = recurrence.time_loop(count, turn, start)
    return written.concat(), state


def _cut(sequence: Tensor, size: Number) -> Tensor:
    """Returns a sequence `[blocks * size, ...]` as `[blocks, size, ...]`."""
    count = axis_size(sequence, 0) // size
    return tf.reshape(sequence, [count, size, *tf.unstack(tf.shape(sequence)[1:])])
