"""Whole sequences: `keras_trellis.core.trellis`, fast."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping

import tensorflow as tf

from keras_trellis.backend.tensorflow import with_static_shape
from keras_trellis.core import masks
from keras_trellis.core.network import Network, Weights
from keras_trellis.core.schedule import ALL, Steps
from keras_trellis.core.trellis import Carry, Levels, Method, trellis
from keras_trellis.engine import convolution, tiles
from keras_trellis.engine.depth_loop import ascend, ascend_recomputing, handed_on
from keras_trellis.engine.level import HiddenKernel, Reach, hidden_kernel, level
from keras_trellis.types import Number, State, Tensor


def run(
    network: Network,
    weights: Weights,
    sequences: Tensor,
    initial: State | None = None,
    mask: Tensor | None = None,
    *,
    stops: Collection[int] = (),
    num_outputs: Number | None = None,
    training: bool = False,
    recompute: bool = False,
) -> tuple[list[Tensor], State]:
    """Runs all levels over whole sequences.

    Args:
        network: as for `core.trellis.trellis`, and so are those below.
        weights: its weights.
        sequences: `[B, T, p]`.
        initial: the state to the left of every level, each `[B, units]`; None for zeros.
        mask: bool `[B, T]`, or None.
        stops: after how many levels to collect h.
        num_outputs: how many of the last steps to return of each collected h; None for all.
        training: whether the levels have gradients of their own, parts of which XLA may compile.
            Otherwise there is nothing but TensorFlow's own operations and gradients.
        recompute: whether to keep less for the gradient in training, and compute it again: by tiles
            of time where these pay, else by blocks of levels.

    Returns:
        what `core.trellis.trellis` returns.
    """
    recompute = recompute and training
    # A tile keeps a cache, a block of levels the states of all steps: where T is large, that is
    # more.
    if recompute and tiles.pay(network, sequences, num_outputs):
        return tiles.run(network, weights, sequences, initial, mask, stops, num_outputs)
    loop: Callable = ascend
    if recompute:
        loop = functools.partial(ascend_recomputing, network)
    method = Method(
        functools.partial(_begin, training),
        functools.partial(_climb, weights.state_mask, training, loop),
    )
    return trellis(
        *(network, weights, sequences, initial, mask),
        stops=stops,
        num_outputs=num_outputs,
        method=method,
    )


def _begin(
    training: bool,
    network: Network,
    weights: Weights,
    inputs: Tensor,
    initial: State | None,
    needed: Mapping[int, Steps],
) -> Carry:
    """Returns what the levels share; it goes along, so that its gradient is carried back.

    That is one sum for all levels. TensorFlow keeps a sum for each loop that captures it, all of
    them in memory from the beginning.
    """
    hidden = hidden_kernel(weights, training)
    addends = convolution.inject(
        network, weights, inputs, None, needed, training=training
    )
    return Carry((), addends, initial or (), (hidden.kernel, hidden.rounded))


def _climb(
    mask: Tensor | None, training: bool, loop: Callable, levels: Levels, carry: Carry
) -> Carry:
    """Runs the levels of a segment; the first one alone if it is unlike those of the loop."""
    network, part, *_, valid = levels
    first = part.first
    # Level 0 reads zeros, and a level that leaves a grid reads another one than it computes.
    if not first or part.before != part.after:
        filled = _filled(levels, carry)
        carry = _advance(
            levels, mask, training, carry, first, first, filled, levels.reached
        )
        first += 1
    advance = functools.partial(_advance, levels, mask, training)
    carry = loop(advance, carry, first=first, last=part.last, period=network.period)
    # Once a segment is enough: `Network.segments` ends one after each level that has groups to
    # begin.
    state = network.begun(carry.state, part.last - 1)
    return carry._replace(state=masks.held(valid, carry.initial, state))


def _filled(levels: Levels, carry: Carry) -> int | None:
    """Returns how many of the first steps have taps that are not zero; None: all may have.

    Below level 0 all is zero but what stands to its left, and masked steps that come first.
    """
    network, part, reached, valid = levels
    if part.first:
        return None
    if not carry.initial:
        return 0
    if reached is not ALL or valid is not None:
        return None
    return network.width(0) // part.before.stride


def _advance(
    levels: Levels,
    mask: Tensor | None,
    training: bool,
    carry: Carry,
    _: Number,
    phase: int,
    filled: int | None = None,
    reached: Steps = ALL,
) -> Carry:
    """Runs a level with level % period = phase."""
    network = levels.network
    stride = levels.part.before.stride
    widths = [width // stride for width in network.widths(phase)]
    dilation = network.dilation(phase) // stride
    past = network.left(carry.initial, widths, carry.state)
    reach = Reach(network.kernel_size, dilation, filled, reached)
    kernel, rounded = carry.weights
    hidden = HiddenKernel(kernel, rounded, mask)
    run_level = level(network.gate, reach, hidden, training=training)
    addend = convolution.addend(network, carry.addends, phase)
    state = run_level(past, carry.state, addend)
    state = masks.held(levels.valid, carry.initial, state)
    if reached is ALL:
        state = tuple(map(with_static_shape, state, carry.state))
    # In the loop a gradient by what comes along is one sum. See `_begin`.
    shared = carry._replace(state=())
    # Without a gradient there are no sums, and tf2onnx would merge the copies wrongly.
    if training:
        shared = tf.nest.map_structure(handed_on, shared)
    return shared._replace(state=state)
