"""A single step of a stream, as in serving.

The products of the past taps of all levels are one product, and only those of the present tap go
level by level. Where rows are few, the time is that of reading the kernel, and this reads about
half as much. XLA compiles nothing here: servers may lack it.
"""

from __future__ import annotations

import functools
import operator
from typing import NamedTuple

import tensorflow as tf

from keras_trellis.backend.tensorflow import multiply
from keras_trellis.core import caches
from keras_trellis.core.convolution import masked, pad_left
from keras_trellis.core.masks import Packing
from keras_trellis.core.network import Network, Weights
from keras_trellis.engine import convolution
from keras_trellis.engine.convolution import Addends
from keras_trellis.engine.level import activate
from keras_trellis.types import Cache, Number, State, Tensor

# So many levels go without a loop; where there are more, they are one turn of it: a level takes so
# little time that a turn for each would take much of it.
_LEVELS = 8


class _Levels(NamedTuple):
    """What all levels of a step share.

    Attributes:
        network: the network's shape.
        addends: what joins the products.
        kernel: the hidden kernel of the present tap, `[units, blocks * units]`.
        mask: the dropout mask of what enters the product, `[B, 1, units]`, or None.
        delayed: for each state what the gates read of the past, `[B, L, units]`.
        products: the products of the past taps, `[B, L, blocks * units]`; None for k = 1.
    """

    network: Network
    addends: Addends
    kernel: Tensor
    mask: Tensor | None
    delayed: list[Tensor]
    products: Tensor | None


def run(
    network: Network,
    weights: Weights,
    step: Tensor,
    cache: Cache,
    plan: Packing | None,
) -> tuple[State, State]:
    """Runs all levels on a single step.

    Args:
        network: the network's shape.
        weights: its weights.
        step: `[B, 1, p]`.
        cache: the past.
        plan: the packing of the step; None where it is valid.

    Returns:
        the top state, each `[B, 1, units]`, and `levels` of the next cache.
    """
    period = network.period
    if period < _LEVELS:
        period *= _LEVELS // period
    turns = (network.depth - 1) // period
    if turns == 1:  # a loop would only take longer to trace
        turns = 0
    levels = _levels(network, weights, step, cache)
    zero = tuple(tf.zeros_like(tensor[:, :1]) for tensor in cache.levels)
    state, rows = _climb(levels, zero, 0, range(1))

    if turns:
        # For each state those below the levels. A TensorArray has no place in ONNX outside of a
        # loop, nor in LiteRT for any number of rows.
        multiples = [turns, 1, period, 1]
        written = [tf.tile(tensor[None], multiples) for tensor in zero]
        numbers = range(1, 1 + period)
        _, state, written = tf.while_loop(
            lambda index, *_: index < turns,
            functools.partial(_turn, levels, numbers),
            (tf.constant(0), state, written),
            maximum_iterations=turns,
            parallel_iterations=1,  # a turn that starts early only waits
        )
        for below, tensor in zip(rows, written, strict=True):
            below.append(_joined(tensor))
    last = range(1 + turns * period, network.depth)
    state, above = _climb(levels, state, 0, last)
    pasts = []
    for past, below, rest in zip(cache.levels, rows, above, strict=True):
        steps = tf.concat([*below, *rest], axis=1)
        pasts.append(_push(past, steps, network, plan))
    return state, tuple(pasts)


def _levels(network: Network, weights: Weights, step: Tensor, cache: Cache) -> _Levels:
    kernel = tf.cast(weights.recurrent_kernel, step.dtype)
    addends = convolution.inject_step(network, weights, step, cache.inputs)
    levels = range(network.depth)
    dilations = [network.dilation(level) for level in levels]
    ends = caches.ends(network)
    places = list(map(operator.sub, ends, dilations))
    delayed = [tf.gather(tensor, places, axis=1) for tensor in cache.levels]
    products = None
    if network.kernel_size > 1:
        hidden = masked(cache.levels[0], weights.state_mask)
        products = convolution.past_products(hidden, kernel[:-1], ends, dilations)
    return _Levels(
        network=network,
        addends=addends,
        kernel=kernel[-1],
        mask=weights.state_mask,
        delayed=delayed,
        products=products,
    )


def _climb(
    levels: _Levels, state: State, begin: Number, numbers: range
) -> tuple[State, list[list[Tensor]]]:
    """Runs levels.

    Args:
        levels: what they share.
        state: the state below the first one.
        begin: what is added to their numbers, a multiple of the period.
        numbers: their numbers.

    Returns:
        the state above the last one, and for each state those below all of them, `[B, 1, units]`.
    """
    rows: list[list[Tensor]] = [[] for _ in state]
    for number in numbers:
        for below, tensor in zip(rows, state, strict=True):
            below.append(tensor)
        state = _advance(levels, state, begin + number, number)
    return state, rows


def _turn(
    levels: _Levels,
    numbers: range,
    index: Number,
    state: State,
    written: list[Tensor],
) -> tuple[Number, State, list[Tensor]]:
    """Runs the levels of one turn, and writes the states below them."""
    begin = index * len(numbers)
    state, rows = _climb(levels, state, begin, numbers)
    place = tf.reshape(index, [1, 1])
    updated = []
    for tensor, below in zip(written, rows, strict=True):
        steps = tf.concat(below, axis=1)[None]
        updated.append(tf.tensor_scatter_nd_update(tensor, place, steps))
    return index + 1, state, updated


def _joined(written: Tensor) -> Tensor:
    """Returns what turns have written, `[turns, B, period, units]`, as `[B, levels, units]`."""
    turns, _, period, units = written.shape
    by_row = tf.transpose(written, [1, 0, 2, 3])
    return tf.reshape(by_row, [-1, turns * period, units])


def _advance(levels: _Levels, state: State, level: Number, number: int) -> State:
    """Runs a level. The state below the first one is zero."""
    network = levels.network
    phase = number % network.period
    total = convolution.addend(network, levels.addends, phase)
    if number:
        hidden = masked(state[0], levels.mask)
        total += multiply(hidden, levels.kernel)
    if levels.products is not None:
        total += _part(levels.products, level)
    delayed = tuple(_part(tensor, level) for tensor in levels.delayed)
    after = activate(network.gate, None, total, (), delayed)
    return network.begun(after, level)


def _part(by_level: Tensor, index: Number) -> Tensor:
    """Returns the part of one level, `[B, 1, C]`."""
    return tf.gather(by_level, [index], axis=1)


def _push(
    levels: Tensor, steps: Tensor, network: Network, plan: Packing | None
) -> Tensor:
    """Puts one more step at the end of what each level keeps, and drops the oldest.

    Args:
        levels: `[B, S, units]`, an entry of `Cache.levels`.
        steps: `[B, L, units]`, a step for each level, from the lowest up.
        network: the network's shape.
        plan: the packing of the step; None where it is valid.

    Returns:
        `[B, S, units]`.
    """
    places: list[int] = []
    begin = 0
    for level in caches.order(network):
        end = begin + network.width(level)
        places += range(begin + 1, end)
        places.append(network.cached_steps + level)
        begin = end
    padded = pad_left(levels, steps)
    pushed = tf.gather(padded, places, axis=1)
    if plan is None:
        return pushed
    valid = tf.expand_dims(plan.valid, -1)
    return tf.where(valid, pushed, levels)
