"""A stack of recurrent layers that may all read the input, computed layer by layer, step by step.

`StackedLSTM` is such a stack, and so are the groups of a network of infinite depth. With two taps
and dilation 1, a group of a mixed group convolution reads itself at the step before and the group
before it at its own step. Both have settled by then, so that infinitely many levels need no
iteration: group g is the g-th layer of a stack. This is Theorem 1 of Bai et al. 2019 without its
truncation. On TensorFlow `keras_trellis.engine.stack` computes the same, faster.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

from keras import ops

from keras_trellis.core import masks, no_steps
from keras_trellis.core.convolution import masked, multiply, time_steps
from keras_trellis.core.gates import Gate
from keras_trellis.core.masks import Packing
from keras_trellis.core.network import Network, Weights
from keras_trellis.core.trellis import activate
from keras_trellis.types import State, Tensor


def is_stack(network: Network) -> bool:
    """Returns whether infinitely many levels of a network are a stack of recurrent layers."""
    return (
        network.groups > 1
        and network.kernel_size == 2
        and network.cycle == (1,)
        and network.inject_every == 1
    )


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
    recurrent_kernel: Tensor
    bias: Tensor | None
    masks: tuple[Tensor | None, ...]
    recurrent_mask: Tensor | None


def run(
    gate: Gate,
    layers: Sequence[Layer],
    sequences: Tensor,
    before: Sequence[State],
    plan: Packing | None = None,
) -> tuple[list[Tensor], list[State]]:
    """Runs the layers over whole sequences, one after the other.

    Args:
        gate: the gate of each layer.
        layers: the layers, from the lowest up.
        sequences: `[B, T, p]`, packed.
        before: the state of each layer before the first step, each `[B, u]`.
        plan: how the sequences are packed.

    Returns:
        h of each layer, `[B, T, u]`; the state of each layer at the last valid step.
    """
    valid = None
    if plan is not None:
        valid = masks.steps_until(plan.count, time_steps(sequences))
    read: State = (sequences,)
    outputs = []
    states = []
    for layer, state in zip(layers, before, strict=True):
        loop = functools.partial(_recur, gate, layer)
        hidden, state = no_steps.run(loop, _entering(layer, read), state, valid)
        read = (hidden, sequences)
        outputs.append(hidden)
        states.append(state)
    return outputs, states


def run_groups(
    network: Network,
    weights: Weights,
    sequences: Tensor,
    initial: State,
    plan: Packing | None = None,
) -> tuple[Tensor, State]:
    """Runs the groups of a network over whole sequences.

    Args:
        network: the network's shape; `is_stack` is true of it.
        weights: its weights, but for the kernels, which have only what the groups read: of the
            input `[1, p, blocks * u]`, or `[1, p, blocks * units]` if it enters all groups; of the
            state `[2 * groups - 1, u, blocks * u]`, each group's of itself, then of the one before.
        sequences: `[B, T, p]`, packed.
        initial: the state before the first step, each `[B, units]`.
        plan: how the sequences are packed.

    Returns:
        h `[B, T, units]`; the state at the last valid step, each `[B, units]`.
    """
    layers = _groups(network, weights)
    by_state = [ops.split(tensor, network.groups, axis=-1) for tensor in initial]
    before = list(zip(*by_state, strict=True))
    sequences = masked(sequences, weights.input_mask)  # one mask for all groups
    outputs, states = run(network.gate, layers, sequences, before, plan)
    by_state = zip(*states, strict=True)
    last = tuple(ops.concatenate(tensors, axis=-1) for tensors in by_state)
    return ops.concatenate(outputs, axis=-1), last


def _groups(network: Network, weights: Weights) -> list[Layer]:
    """Returns each group as a layer."""
    blocks, groups = network.gate.blocks, network.groups
    units = network.units // groups
    dtype = weights.kernel.dtype
    hidden = ops.unstack(ops.cast(weights.recurrent_kernel, dtype))
    # The channels of a block are those of all groups.
    kernel = ops.reshape(weights.kernel, [-1, blocks, network.injected_groups, units])
    bias = weights.bias
    if bias is not None:
        bias = ops.reshape(bias, [blocks, groups, units])
    mask = weights.state_mask
    if mask is not None:
        mask = ops.split(mask[:, 0], groups, axis=-1)
    shape = [-1, blocks * units]
    layers = []
    for group in range(groups):
        kernels: list[Tensor] = []
        read_masks: list[Tensor | None] = []
        if group:
            kernels.append(hidden[groups + group - 1])
            read_masks.append(None if mask is None else mask[group - 1])
        if group < network.injected_groups:
            kernels.append(ops.reshape(kernel[:, :, group], shape))
            read_masks.append(None)
        one = Layer(
            tuple(kernels),
            hidden[group],
            None if bias is None else ops.reshape(bias[:, group], [-1]),
            tuple(read_masks),
            None if mask is None else mask[group],
        )
        layers.append(one)
    return layers


def _entering(layer: Layer, read: State) -> Tensor:
    """Returns what does not depend on the layer's own past, `[B, T, blocks * u]`.

    Args:
        layer: the layer.
        read: what its kernels read, each `[B, T, channels]`; without a kernel, it is left out.
    """
    terms = [] if layer.bias is None else [layer.bias]
    # A layer that does not read the input has a kernel less.
    for tensor, kernel, mask in zip(read, layer.kernels, layer.masks, strict=False):
        step_mask = None if mask is None else ops.expand_dims(mask, 1)
        terms.append(multiply(masked(tensor, step_mask), kernel))
    return sum(terms)


def _recur(
    gate: Gate, layer: Layer, entering: Tensor, state: State, valid: Tensor | None
) -> tuple[Tensor, State]:
    """Runs a layer's own loop over time.

    Args:
        gate: the gate.
        layer: the layer.
        entering: what joins the products of h, `[B, T, blocks * u]`.
        state: the state before the first step, each `[B, u]`.
        valid: which steps change the state, bool `[B, T]`; None: all do.

    Returns:
        h `[B, T, u]`; the state after the last step.
    """

    def step(before: State, now: State) -> tuple[State, State]:
        hidden = masked(before[0], layer.recurrent_mask)
        total = ops.matmul(hidden, layer.recurrent_kernel) + now[0]
        after = activate(gate, total, before)
        if valid is not None:
            pairs = zip(after, before, strict=True)
            after = tuple(ops.where(now[1], *pair) for pair in pairs)
        return after, after

    steps = [entering] if valid is None else [entering, ops.expand_dims(valid, -1)]
    by_time = tuple(ops.swapaxes(tensor, 0, 1) for tensor in steps)
    # On TensorFlow each step has to return what it carries on.
    last, states = ops.scan(step, tuple(state), by_time)
    return ops.swapaxes(states[0], 0, 1), tuple(last)
