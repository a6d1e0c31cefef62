"""A stack of recurrent layers that may all read the input, computed layer by layer, step by step.

`StackedLSTM` is such a stack, and so are the groups of a network of infinite depth. With two taps
and dilation 1, a group of a mixed group convolution reads itself at the step before and the group
before it at its own step. Both have settled by then, so that infinitely many levels need no
iteration: group g is the g-th layer of a stack. This is Theorem 1 of Bai et al. 2019 without its
truncation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from keras_trellis.core.convolution import masked, multiply, time_steps, zeros
from keras_trellis.core.gates import Gate
from keras_trellis.core.masks import Packing
from keras_trellis.core.network import Network, Weights
from keras_trellis.engine.level import activate
from keras_trellis.engine.recurrence import Reads, Recurrent, Step, recur
from keras_trellis.engine.time_loop import swapped
from keras_trellis.types import Number, State


def is_stack(network: Network) -> bool:
    """Returns whether infinitely many levels of a network are a stack of recurrent layers."""
    reads_one_step_back = network.kernel_size == 2 and network.cycle == (1,)
    return network.groups > 1 and reads_one_step_back and network.inject_every == 1


class Layer(NamedTuple):
    """What one recurrent layer of a stack computes with; it has u channels.

    Attributes:
        kernels: of what it reads at its own step: of the layer below `[u, blocks * u]`, if there is
            one, then of the input `[p, blocks * u]`, if it reads it.
        recurrent_kernel: `[u, blocks * u]`.
        bias: `[blocks * u]`, or None.
        masks: the dropout masks of what the kernels read, each `[B, channels]` or None.
        recurrent_mask: the dropout mask of its own h, `[B, u]`, or None.
    """

    kernels: State
    recurrent_kernel: tf.Tensor
    bias: tf.Tensor | None
    masks: tuple[tf.Tensor | None, ...]
    recurrent_mask: tf.Tensor | None


def run(
    gate: Gate,
    layers: Sequence[Layer],
    sequences: tf.Tensor,
    before: Sequence[State],
    plan: Packing | None = None,
    *,
    training: bool,
) -> tuple[list[tf.Tensor], list[State]]:
    """Runs the layers over whole sequences, one after the other.

    Args:
        gate: the gate of each layer.
        layers: the layers, from the lowest up.
        sequences: `[B, T, p]`, packed.
        before: the state of each layer before the first step, each `[B, u]`.
        plan: how the sequences are packed.
        training: as for `recurrence.recur`.

    Returns:
        h of each layer, `[T, B, u]`; the state of each layer at the last valid step.
    """
    step = _step(gate)
    time = time_steps(sequences)
    further = []
    may_be_empty = not sequences.shape[1]
    if may_be_empty:  # the loop needs a time step; this one is skipped
        one = zeros(sequences, 1, sequences.shape[-1])
        sequences = tf.concat([sequences, one], axis=1)
    if may_be_empty or plan is not None:
        step = _skipping(step)
        further = [_valid(sequences, time, plan)]
    inputs = swapped(sequences)
    read: State = (inputs,)
    outputs = []
    states = []
    for layer, state in zip(layers, before, strict=True):
        now = (_entering(layer, read), *further)
        recurrent = Recurrent((layer.recurrent_kernel,), mask=layer.recurrent_mask)
        units = layer.recurrent_kernel.shape[0]
        hidden, state = recur(step, recurrent, now, state, units, training=training)
        read = (hidden, inputs)
        outputs.append(hidden[:time] if may_be_empty else hidden)
        states.append(state)
    return outputs, states


def run_groups(
    network: Network,
    weights: Weights,
    sequences: tf.Tensor,
    initial: State,
    plan: Packing | None = None,
    *,
    training: bool,
) -> tuple[tf.Tensor, State]:
    """Runs the groups of a network over whole sequences.

    Args:
        network: the network's shape; `is_stack` is true of it.
        weights: its weights, but for the kernels, which have only what the groups read: of the
            input `[1, p, blocks * u]`, or `[1, p, blocks * units]` if it enters all groups; of the
            state `[2 * groups - 1, u, blocks * u]`, each group's of itself, then of the one before.
        sequences: `[B, T, p]`, packed.
        initial: the state before the first step, each `[B, units]`.
        plan: how the sequences are packed.
        training: as for `recurrence.recur`.

    Returns:
        h `[B, T, units]`; the state at the last valid step, each `[B, units]`.
    """
    layers = _groups(network, weights)
    by_state = [tf.split(tensor, network.groups, axis=-1) for tensor in initial]
    before = list(zip(*by_state, strict=True))
    sequences = masked(sequences, weights.input_mask)  # one mask for all groups
    outputs, states = run(
        network.gate, layers, sequences, before, plan, training=training
    )
    last = tuple(tf.concat(tensors, axis=-1) for tensors in zip(*states, strict=True))
    return swapped(tf.concat(outputs, axis=-1)), last


def _valid(sequences: tf.Tensor, time: Number, plan: Packing | None) -> tf.Tensor:
    """Returns which of the steps of `[B, T', p]` are valid, bool `[T', B, 1]`."""
    rows = tf.shape(sequences)[0]
    count = tf.fill([rows], time) if plan is None else plan.count
    valid = tf.sequence_mask(count, time_steps(sequences))
    return tf.expand_dims(tf.transpose(valid), -1)


def _groups(network: Network, weights: Weights) -> list[Layer]:
    """Returns each group as a layer."""
    blocks, groups = network.gate.blocks, network.groups
    units = network.units // groups
    dtype = weights.kernel.dtype
    hidden = tf.unstack(tf.cast(weights.recurrent_kernel, dtype))
    # The channels of a block are those of all groups.
    kernel = tf.reshape(weights.kernel, [-1, blocks, network.injected_groups, units])
    bias = weights.bias
    if bias is not None:
        bias = tf.reshape(bias, [blocks, groups, units])
    mask = weights.state_mask
    if mask is not None:
        mask = tf.split(mask[:, 0], groups, axis=-1)
    shape = [-1, blocks * units]
    layers = []
    for group in range(groups):
        kernels = []
        masks = []
        if group:
            kernels.append(hidden[groups + group - 1])
            masks.append(None if mask is None else mask[group - 1])
        if group < network.injected_groups:
            kernels.append(tf.reshape(kernel[:, :, group], shape))
            masks.append(None)
        layer = Layer(
            tuple(kernels),
            hidden[group],
            None if bias is None else tf.reshape(bias[:, group], [-1]),
            tuple(masks),
            None if mask is None else mask[group],
        )
        layers.append(layer)
    return layers


def _entering(layer: Layer, read: State) -> tf.Tensor:
    """Returns what does not depend on the layer's own past, `[T, B, blocks * u]`.

    Args:
        layer: the layer.
        read: what its kernels read, each `[T, B, channels]`; without a kernel, it is left out.
    """
    products = []
    # A layer that does not read the input has a kernel less.
    for tensor, kernel, mask in zip(read, layer.kernels, layer.masks, strict=False):
        products.append(multiply(masked(tensor, mask), kernel))
    total = tf.add_n(products)
    if layer.bias is None:
        return total
    return total + layer.bias


def _step(gate: Gate) -> Step:
    """Returns a time step of a layer: its own h, dropped out, times its kernel; then the gate."""

    def step(reads: Reads, now: State, state: State) -> tuple[tf.Tensor, State]:
        total = reads.multiply(0, masked(state[0], reads.mask)) + now[0]
        after = activate(gate, None, total, (), state)
        return after[0], after

    return step


def _skipping(step: Step) -> Step:
    """Returns a step that leaves the state as it is where the last value before is false."""

    def skip(reads: Reads, now: State, state: State) -> tuple[tf.Tensor, State]:
        valid = now[-1]
        hidden, after = step(reads, now[:-1], state)
        pairs = zip(after, state, strict=True)
        return hidden, tuple(tf.where(valid, *pair) for pair in pairs)

    return skip
