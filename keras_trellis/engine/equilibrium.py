"""A trellis network of infinite depth: what `whole` and `streaming` are for a finite one.

All levels are one map with one set of weights. One turn is the levels of one period. The state
that a turn leaves as it is, z = f(z), is the output of a network without end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from keras_trellis.core import caches, masks
from keras_trellis.core.convolution import (
    last_steps,
    pad_left,
    repeated,
    time_steps,
    zeros,
)
from keras_trellis.core.equilibrium import Solver
from keras_trellis.core.masks import Packing
from keras_trellis.core.network import Network, Weights
from keras_trellis.core.precision import at_least_float32
from keras_trellis.core.stack import is_stack
from keras_trellis.core.trellis import finish_chunk
from keras_trellis.engine import injection, stack
from keras_trellis.engine.fixed_point import fixed_point
from keras_trellis.engine.injection import Addends
from keras_trellis.engine.level import HiddenKernel, Reach, hidden_kernel, level
from keras_trellis.types import Cache, Convergence, Number, State


class _Turn(NamedTuple):
    """What one turn of the levels depends on.

    Attributes:
        network: the network's shape.
        solver: how the state is found.
        plan: the packing of the sequences.
        pasts: what stands to the left of each level, each `[B, W, units]`.
        addends: what joins the products.
        hidden: the hidden kernel.
    """

    network: Network
    solver: Solver
    plan: Packing | None
    pasts: Sequence[State]
    addends: Addends
    hidden: HiddenKernel

    def level(self, phase: int, state: State) -> State:
        """Returns the state of one level from that of the level below."""
        gate = self.network.gate
        reach = Reach(self.network.kernel_size, self.network.dilation(phase))
        run_level = level(gate, reach, self.hidden, training=self.solver.training)
        addend = injection.addend(self.network, self.addends, phase)
        return run_level(self.pasts[phase], state, addend)


def settle(
    network: Network,
    weights: Weights,
    sequences: tf.Tensor,
    initial: State | None = None,
    mask: tf.Tensor | None = None,
    *,
    num_outputs: Number | None = None,
    solver: Solver,
) -> tuple[tf.Tensor, State, Convergence]:
    """Runs whole sequences.

    Args:
        network: the network's shape; its depth is one turn.
        weights: as for `core.trellis.trellis`, and so are those below.
        sequences: `[B, T, p]`.
        initial: the state to the left of every level, each `[B, units]`; None for zeros.
        mask: bool `[B, T]`, or None.
        num_outputs: how many of the last steps to return; None for all.
        solver: how the state is found.

    Returns:
        h `[B, T, units]`, or `[B, num_outputs, units]`; the state at the last valid step, each
        `[B, units]`; how far the iteration came, `[B, T]` or `[B, num_outputs]`.
    """
    plan = masks.packing(mask)
    sequences = masks.pack(sequences, plan)
    before = initial or network.no_history(sequences)
    if is_stack(network):
        hidden, last = stack.run_groups(
            network, weights, sequences, before, plan, training=solver.training
        )
        outputs = last_steps(masks.unpack(hidden, plan), num_outputs)
        return outputs, last, _at_once(outputs)
    past = zeros(sequences, network.input_width, sequences.shape[-1])
    addends = injection.inject(network, weights, sequences, past)
    pasts = []
    for phase in range(network.depth):
        width = network.width(phase)
        pasts.append(tuple(repeated(tensor, width) for tensor in before))
    hidden = hidden_kernel(weights, solver.training)
    turn = _Turn(network, solver, plan, pasts, addends, hidden)
    state, convergence = _solve(turn, sequences)
    outputs = last_steps(masks.unpack(state[0], plan), num_outputs)
    results = (last_steps(values, num_outputs) for values in _unpack(convergence, plan))
    return outputs, masks.last_valid(state, plan, before), Convergence(*results)


def stream(
    network: Network,
    weights: Weights,
    sequences: tf.Tensor,
    cache: Cache,
    mask: tf.Tensor | None = None,
    *,
    solver: Solver,
) -> tuple[tf.Tensor, Cache]:
    """Goes on from a cache, as `streaming.run`.

    The state that a step settles in depends on the past through what the levels of one turn have
    settled in at the steps before. So the cache holds no more of a past without end.
    """
    plan = masks.packing(mask)
    sequences = masks.pack(sequences, plan)
    if is_stack(network):
        return _stream_groups(
            network, weights, sequences, cache, plan, training=solver.training
        )
    addends = injection.inject(network, weights, sequences, cache.inputs)
    pasts = _split_pasts(network, cache)
    hidden = hidden_kernel(weights, solver.training)
    turn = _Turn(network, solver, plan, pasts, addends, hidden)
    top, _ = _solve(turn, sequences)
    levels = _next_levels(turn, top)
    last = masks.last_valid(top, plan, cache.state)
    return finish_chunk(network, sequences, cache, plan, top[0], last, levels)


def _stream_groups(
    network: Network,
    weights: Weights,
    sequences: tf.Tensor,
    cache: Cache,
    plan: Packing | None,
    *,
    training: bool,
) -> tuple[tf.Tensor, Cache]:
    """Goes on from a cache where the groups are a stack of recurrent layers."""
    # One level, which holds the step before: the state of each group.
    before = tuple(tensor[:, -1] for tensor in cache.levels)
    hidden, last = stack.run_groups(
        network, weights, sequences, before, plan, training=training
    )
    levels = tuple(tensor[:, None] for tensor in last)
    return finish_chunk(network, sequences, cache, plan, hidden, last, levels)


def _split_pasts(network: Network, cache: Cache) -> list[State]:
    """Returns what each level of one turn keeps of its past, from the lowest up."""
    order = caches.order(network)
    widths = [network.width(phase) for phase in order]
    split = [tf.split(tensor, widths, axis=1) for tensor in cache.levels]
    by_level = zip(*split, strict=True)
    by_phase = dict(zip(order, by_level, strict=True))
    return [by_phase[phase] for phase in range(network.depth)]


def _next_levels(turn: _Turn, top: State) -> State:
    """Returns `levels` of the next cache. Below the first level of a turn stands the last one."""
    network = turn.network
    below = top
    next_pasts = []
    for phase, past in enumerate(turn.pasts):
        if phase:
            below = turn.level(phase - 1, below)
        width = network.width(phase)
        padded = map(pad_left, past, below)
        steps = [masks.last_valid_steps(tensor, width, turn.plan) for tensor in padded]
        next_pasts.append(steps)
    by_state = zip(*(next_pasts[phase] for phase in caches.order(network)), strict=True)
    return tuple(tf.concat(pieces, axis=1) for pieces in by_state)


def _at_once(outputs: tf.Tensor) -> Convergence:
    """Returns the convergence of outputs `[B, n, C]` that need no iteration."""
    shape = tf.shape(outputs)[:2]
    residual = tf.zeros(shape, at_least_float32(outputs[:0]).dtype)
    return Convergence(
        residual=residual,
        iterations=tf.ones(shape, tf.int32),
        converged=tf.ones(shape, tf.bool),
    )


def _solve(turn: _Turn, sequences: tf.Tensor) -> tuple[State, Convergence]:
    """Returns the state that one turn of the levels leaves as it is."""
    network, solver, plan, pasts, addends, hidden = turn
    states = network.gate.states

    def run(joined: tf.Tensor, parameters: Any) -> tf.Tensor:
        pasts, addends, kernel = parameters
        here = turn._replace(pasts=pasts, addends=addends)
        here = here._replace(hidden=hidden._replace(kernel=kernel))
        state = tuple(tf.split(joined, states, axis=-1))
        for phase in range(network.depth):
            state = here.level(phase, state)
        return tf.concat(state, axis=-1)

    solved = None
    if plan is not None:  # the steps that only fill up packed sequences
        valid = tf.sequence_mask(plan.count, time_steps(sequences))
        solved = tf.logical_not(valid)
    joined, convergence = fixed_point(
        run,
        zeros(sequences, time_steps(sequences), states * network.units),
        (pasts, addends, hidden.kernel),
        tolerance=solver.reachable(sequences),
        max_iterations=solver.max_iterations,
        solved=solved,
        training=solver.training,
    )
    return tuple(tf.split(joined, states, axis=-1)), convergence


def _unpack(convergence: Convergence, plan: Packing | None) -> Convergence:
    """Moves back what was found of packed steps; before the first valid one all is solved."""
    if plan is None:
        return convergence
    residual, iterations, converged = convergence
    none = tf.zeros_like(plan.count)
    nothing = tf.cast(none, residual.dtype)
    return Convergence(
        residual=masks.unpack(residual, plan, nothing),
        iterations=masks.unpack(iterations, plan, none),
        converged=masks.unpack(converged, plan, tf.equal(none, 0)),
    )
