"""A recurrent cell run over time, written plainly.

What does not read the state was computed before, for all steps at once. On TensorFlow
`keras_trellis.engine.recurrence` computes the same, faster.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import keras
from keras import ops

from keras_trellis.backend import current as backend
from keras_trellis.core.convolution import time_steps, zeros
from keras_trellis.types import Number, State, Tensor


class Recurrent(NamedTuple):
    """What the state meets in a step.

    Attributes:
        matrices: what values that depend on the state are multiplied by, each `[C, C']`.
        vectors: further weights; vectors or scalars.
        mask: the dropout mask of the state that the gates read, `[B, C]`, or None.
        places: how many rows of a product each row of the batch has. They stand
            together: the products are `[B * places, C']`.
    """

    matrices: State = ()
    vectors: State = ()
    mask: Tensor | None = None
    places: int = 1

    def rows(self, batch_size: int | None) -> int | None:
        """Returns the number of rows of a product, if it is known."""
        if batch_size is None:
            return None
        return batch_size * self.places


class Reads(NamedTuple):
    """What the state meets, as a step of a cell sees it.

    Attributes:
        multiply: (i, values) -> the product with matrix i. A step multiplies by each matrix
            once, in their order.
        vectors: see `Recurrent`.
        mask: see `Recurrent`.
    """

    multiply: Callable[[int, Tensor], Tensor]
    vectors: State
    mask: Tensor | None


Step: TypeAlias = Callable[[Reads, State, State], tuple[Tensor, State]]
"""One time step of a cell.

It takes what the state meets, what was computed of this step before, and the state. It
returns the output and the next state.
"""

Loop: TypeAlias = Callable[[Step, Recurrent, State, State], tuple[Tensor, State]]
"""What runs a step over time: `recur`, or the engine's."""


def plain_reads(recurrent: Recurrent) -> Reads:
    """Returns what a step reads where nothing is kept for a gradient."""
    matrices, vectors, mask, _ = recurrent

    def multiply(index: int, values: Tensor) -> Tensor:
        return values @ matrices[index]

    return Reads(multiply, vectors, mask)


def recur(
    step: Step,
    recurrent: Recurrent,
    inputs: State,
    state: State,
    *,
    unroll: bool = False,
    recompute: bool = False,
) -> tuple[Tensor, State]:
    """Runs a cell over time.

    Args:
        step: one step of the cell.
        recurrent: what the state meets.
        inputs: what was computed before, each `[T, B, channels]` with T >= 1.
        state: the state at the beginning, each `[B, channels]`.
        unroll: whether there is no loop.
        recompute: whether the gradient keeps a state once a block of steps, and computes the
            steps of a block again. The memory beyond that of inputs and outputs then grows with
            the square root of T.

    Returns:
        the outputs `[T, B, units]`, and the state after the last step.
    """
    reads = plain_reads(recurrent)

    def advance(state: State, now: State) -> tuple[State, Tensor]:
        output, state = step(reads, now, state)
        return state, output

    steps = inputs[0].shape[0]
    if unroll or steps == 1:
        return unrolled(step, reads, inputs, state)
    if recompute:
        size = block_size(recurrent, state, steps)
        return _in_blocks(advance, inputs, state, size)
    state, outputs = backend.scan(advance, state, inputs)
    return outputs, state


def unrolled(
    step: Step, reads: Reads, inputs: State, state: State
) -> tuple[Tensor, State]:
    """Runs a cell over time without a loop; see `recur`."""
    outputs = []
    by_input = map(ops.unstack, inputs)
    for now in zip(*by_input, strict=True):
        output, state = step(reads, now, state)
        outputs.append(output)
    return ops.stack(outputs), state


def block_size(recurrent: Recurrent, state: State, steps: Number) -> Number:
    """Returns how many steps make a block.

    What is kept is the state once a block, and the state, the products and what is multiplied
    at each step of one block. This size makes the sum least.
    """
    state_size = sum(tensor.shape[-1] for tensor in state)
    step_size = state_size
    for matrix in recurrent.matrices:
        step_size += recurrent.places * sum(matrix.shape)
    # steps / size * state_size + size * step_size is least at the root of steps * share.
    share = state_size / step_size
    if isinstance(steps, int):
        size = math.sqrt(share * steps)
        return max(1, round(size))
    steps = ops.cast(steps, "float32")
    return ops.maximum(1, ops.cast(ops.round(ops.sqrt(share * steps)), "int32"))


def _in_blocks(
    advance: Callable[[State, State], tuple[State, Tensor]],
    inputs: State,
    state: State,
    size: Number,
) -> tuple[Tensor, State]:
    """Runs a cell over blocks of `size` steps, and over those that remain, one at least."""
    steps = inputs[0].shape[0]
    whole = (steps - 1) // size * size

    def run(state: State, block: State) -> tuple[State, Tensor]:
        return backend.scan(advance, state, block)

    blocks = []
    for tensor in inputs:
        shape = [-1, size, *tensor.shape[1:]]
        blocks.append(ops.reshape(tensor[:whole], shape))
    rest = tuple(tensor[whole:] for tensor in inputs)
    # Kept for the gradient is the state before each block; its steps are run again there.
    state, outputs = backend.scan(keras.remat(run), state, tuple(blocks))
    state, last = run(state, rest)
    shape = [whole, *outputs.shape[2:]]
    outputs = ops.reshape(outputs, shape)
    outputs = ops.concatenate([outputs, last], axis=0)
    return outputs, state


def run_any_steps(
    loop: Callable[[Tensor, State, Any], tuple[Tensor, State]],
    sequences: Tensor,
    state: State,
    mask: Tensor | None,
) -> tuple[Tensor, State]:
    """Runs a loop over time. Without a step there are no outputs, and the state stays.

    Args:
        loop: from sequences `[B, T, p]` with T >= 1, a state and a mask to the outputs and the
            state after the last step.
        sequences: `[B, T, p]`.
        state: the state before the first step, each `[B, channels]`.
        mask: bool `[B, T]`, or None.

    Returns:
        the outputs `[B, T, channels]` and the state after the last step.
    """
    if sequences.shape[1]:
        return loop(sequences, state, mask)
    time = time_steps(sequences)
    is_empty = ops.equal(time, 0)
    # A length that is known stays known: an array of JAX has no other.
    missing = 1 if sequences.shape[1] == 0 else ops.cast(is_empty, "int32")
    more = zeros(sequences, missing, sequences.shape[-1])
    sequences = ops.concatenate([sequences, more], axis=1)
    if mask is not None:
        mask = ops.pad(mask, [[0, 0], [0, missing]])
    outputs, after = loop(sequences, state, mask)
    # The step that was put in is a row of zeros, which would still change the state.
    pairs = zip(state, after, strict=True)
    return outputs[:, :time], tuple(ops.where(is_empty, *pair) for pair in pairs)
