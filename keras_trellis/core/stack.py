"""A stack of recurrent layers that may all read the input, computed layer by layer, step by step.

`StackedLSTM` is such a stack, and so are the groups of a network of infinite depth. With two taps
and dilation 1, a group of a mixed group convolution reads itself at the step before and the group
before it at its own step. Both have settled by then, so that infinitely many levels need no
iteration: group g is the g-th layer of a stack. This is Theorem 1 of Bai et al. 2019 without its
truncation.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

from keras import ops

from keras_trellis.core import masks, recurrence
from keras_trellis.core.convolution import masked, multiply, swapped, time_steps, zeros
from keras_trellis.core.gates import Gate
from keras_trellis.core.masks import Packing
from keras_trellis.core.network import Network, Weights, activate
from keras_trellis.core.recurrence import Loop, Reads, Recurrent, Step
from keras_trellis.types import Number, State, Tensor


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
    *,
    recur: Loop = recurrence.recur,
) -> tuple[list[Tensor], list[State]]:
    """Runs the layers over whole sequences, one after the other.

    Args:
        gate: the gate of each layer.
        layers: the layers, from the lowest up.
        sequences: `[B, T, p]`, packed.
        before: the state of each layer before the first step, each `[B, u]`.
        plan: how the sequences are packed.
        recur: runs a layer over time.

    Returns:
        h of each layer, `[T, B, u]`; the state of each layer at the last valid step.
    """
    step = _step(gate)
    time = time_steps(sequences)
    further = []
    may_be_empty = not sequences.shape[1]
    if may_be_empty:  # the loop needs a time step; this one is skipped
        one = zeros(sequences, 1, sequences.shape[-1])
        sequences = ops.concatenate([sequences, one], axis=1)
    if may_be_empty or plan is not None:
        step = _skipping(step)
        further = [_valid(sequences, time, plan)]
    inputs = swapped(sequences)
    # A layer's products by what it reads at its own steps are made for all steps before its loop.
    read: State = (inputs,)
    outputs = []
    states = []
    for layer, state in zip(layers, before, strict=True):
        now = (_entering(layer, read), *further)
        recurrent = Recurrent((layer.recurrent_kernel,), mask=layer.recurrent_mask)
        hidden, state = recur(step, recurrent, now, state)
        # The next layer reads this one at its own step: settled by now, layer by layer. This is the
        # present tap of Theorem 1.
        read = (hidden, inputs)
        outputs.append(hidden[:time] if may_be_empty else hidden)
        states.append(state)
    return outputs, states


def run_groups(
    network: Network,
    weights: Weights,
    sequences: Tensor,
    initial: State,
    plan: Packing | None = None,
    *,
    recur: Loop = recurrence.recur,
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
        recur: runs a layer over time.

    Returns:
        h `[B, T, units]`; the state at the last valid step, each `[B, units]`.
    """
    layers = _groups(network, weights)
    by_state = [ops.split(tensor, network.groups, axis=-1) for tensor in initial]
    before = list(zip(*by_state, strict=True))
    sequences = masked(sequences, weights.input_mask)  # one mask for all groups
    outputs, states = run(network.gate, layers, sequences, before, plan, recur=recur)
    last_by_state = zip(*states, strict=True)
    last = tuple(ops.concatenate(tensors, axis=-1) for tensors in last_by_state)
    joined = ops.concatenate(outputs, axis=-1)
    return swapped(joined), last


def _valid(sequences: Tensor, time: Number, plan: Packing | None) -> Tensor:
    """Returns which of the steps of `[B, T', p]` are valid, bool `[T', B, 1]`."""
    rows = ops.shape(sequences)[0]
    if plan is None:
        count = ops.full([rows], time, "int32")
    else:
        count = plan.count
    valid = masks.steps_until(count, time_steps(sequences))
    return ops.expand_dims(swapped(valid), -1)


def _groups(network: Network, weights: Weights) -> list[Layer]:
    """Returns each group as a layer."""
    groups = network.groups
    hidden = ops.unstack(ops.cast(weights.recurrent_kernel, weights.kernel.dtype))
    entering = _by_group(network, weights.kernel[0], network.injected_groups)
    nothing: list[Any] = [None] * groups
    biases = drops = nothing
    if weights.bias is not None:
        biases = _by_group(network, weights.bias, groups)
    if weights.state_mask is not None:
        drops = ops.split(weights.state_mask[:, 0], groups, axis=-1)
    layers = []
    for group in range(groups):
        # What each reads of the group before it and, where it does, of the input.
        below = [hidden[groups + group - 1]] if group else []
        kernels = (*below, *entering[group : group + 1])
        # That of the group before, and none for the first; the input is masked already.
        read_masks = (*drops[group - 1 : group], None)[: len(kernels)]
        layers.append(
            Layer(kernels, hidden[group], biases[group], read_masks, drops[group])
        )
    return layers


def _by_group(network: Network, tensor: Tensor, groups: int) -> list[Tensor]:
    """Cuts `[..., blocks * channels]`, where the channels of a block are those of all groups."""
    *before, channels = tensor.shape
    blocks = network.gate.blocks
    # Groups stand within each block, so a group's channels are not one slice.
    cut = ops.reshape(tensor, [*before, blocks, groups, channels // blocks // groups])
    shape = [*before, channels // groups]
    return [ops.reshape(part, shape) for part in ops.unstack(cut, axis=-2)]


def _entering(layer: Layer, read: State) -> Tensor:
    """Returns what does not depend on the layer's own past, `[T, B, blocks * u]`.

    Args:
        layer: the layer.
        read: what its kernels read, each `[T, B, channels]`; without a kernel, it is left out.
    """
    addends = []
    # A layer that does not read the input has a kernel less.
    triples = zip(read, layer.kernels, layer.masks, strict=False)
    for tensor, kernel, mask in triples:
        tensor = masked(tensor, mask)
        addends.append(multiply(tensor, kernel))
    if layer.bias is not None:
        addends.append(layer.bias)
    return functools.reduce(operator.add, addends)


def _step(gate: Gate) -> Step:
    """Returns a time step of a layer: its own h, dropped out, times its kernel; then the gate."""

    def step(reads: Reads, now: State, state: State) -> tuple[Tensor, State]:
        hidden = masked(state[0], reads.mask)
        total = reads.multiply(0, hidden) + now[0]
        after = activate(gate, total, state)
        return after[0], after

    return step


def _skipping(step: Step) -> Step:
    """Returns a step that leaves the state as it is where the last value before is false."""

    def skip(reads: Reads, now: State, state: State) -> tuple[Tensor, State]:
        valid = now[-1]
        hidden, after = step(reads, now[:-1], state)
        # The output may be anything: skipped steps come last, and no valid one reads them.
        pairs = zip(after, state, strict=True)
        state = tuple(ops.where(valid, *pair) for pair in pairs)
        return hidden, state

    return skip
