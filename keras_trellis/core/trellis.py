"""The trellis network, written plainly.

This is the definition: `keras_trellis.engine.whole` computes the same, fast.
"""

from __future__ import annotations

from collections.abc import Collection

import tensorflow as tf

from keras_trellis.core import masks
from keras_trellis.core.convolution import (
    causal_convolution,
    delay,
    last_steps,
    masked,
    pad_left,
    repeated,
    time_steps,
    zeros,
)
from keras_trellis.core.network import Network, Weights
from keras_trellis.types import Number, State


def trellis(
    network: Network,
    weights: Weights,
    sequences: tf.Tensor,
    initial: State | None = None,
    mask: tf.Tensor | None = None,
    *,
    stops: Collection[int] = (),
    num_outputs: Number | None = None,
) -> tuple[list[tf.Tensor], State]:
    """Runs all levels over whole sequences.

    Args:
        network: the network's shape.
        weights: its weights.
        sequences: `[B, T, p]`.
        initial: the state to the left of every level, each `[B, units]`; None for zeros.
        mask: bool `[B, T]`, true at the valid steps; None where all are.
        stops: after how many levels to collect h.
        num_outputs: how many of the last steps to return of each collected h; None for all.

    Returns:
        h after each stop, `[B, T, units]`, or `[B, num_outputs, units]`; the state of the top level
        at the last valid step, each `[B, units]`.
    """
    plan = masks.packing(mask)
    inputs = masks.pack(sequences, plan)
    gate = network.gate
    state = network.bottom(inputs, time_steps(inputs))
    initial = initial or network.no_history(inputs)
    past = zeros(inputs, network.input_width, inputs.shape[-1])
    inputs = masked(pad_left(past, inputs), weights.input_mask)
    collected = []
    for level in range(network.depth):
        dilation = network.dilation(level)
        width = network.width(level)
        left = [repeated(tensor, width) for tensor in initial]
        padded = list(map(pad_left, left, state))
        hidden = masked(padded[0], weights.state_mask)
        total = causal_convolution(hidden, weights.recurrent_kernel, dilation, width)
        if level % network.inject_every == 0:
            total += causal_convolution(
                inputs, weights.kernel, dilation, network.input_width
            )
        if weights.bias is not None:
            total += weights.bias
        shifted = tuple(delay(tensor, width, dilation) for tensor in padded)
        blocks = tf.split(total, gate.blocks, axis=-1)
        state = network.begun(gate.step(blocks, shifted), level)
        if level + 1 in stops:
            outputs = masks.unpack(state[0], plan)
            collected.append(last_steps(outputs, num_outputs))
    return collected, masks.last_valid(state, plan, initial)
