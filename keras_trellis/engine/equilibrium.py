"""A trellis network of infinite depth: what `whole` and `streaming` are for a finite one.

All levels are one map with one set of weights. One turn is the levels of one period. The state
that a turn leaves as it is, z = f(z), is the output of a network without end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from keras_trellis.core import masks
from keras_trellis.core.convolution import last_steps, pad_left, zeros
from keras_trellis.core.masks import Packing
from keras_trellis.core.network import Network, Weights
from keras_trellis.engine import caches, injection, streaming
from keras_trellis.engine.fixed_point import Convergence, fixed_point
from keras_trellis.engine.injection import Addends
from keras_trellis.engine.level import HiddenKernel, Reach, hidden_kernel, level
from keras_trellis.engine.whole import context
from keras_trellis.types import Cache, State

_EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


class Solver(NamedTuple):
    """How a fixed point is found.

    Attributes:
        tolerance: the residual at which a step counts as solved.
        max_iterations: how many turns are made at most.
        training: whether gradients are those of the implicit function theorem.
    """

    tolerance: float
    max_iterations: int
    training: bool


class _Turn(NamedTuple):
    """What one turn of the levels depends on: `pasts` stand to the left, level by level."""

    network: Network
    pasts: Sequence[State]
    addends: Addends
    hidden: HiddenKernel
    training: bool

    def level(self, phase: int, state: State) -> State:
        """Returns the state of one level from that of the level below."""
        reach = Reach(self.network.kernel_size, self.network.dilation(phase))
        run_level = level(self.network.gate, reach, self.hidden, training=self.training)
        addend = injection.addend(self.network, self.addends, phase)
        return run_level(self.pasts[phase], state, addend)


def settle(
    network: Network,
    weights: Weights,
    sequences: tf.Tensor,
    initial: State | None = None,
    mask: tf.Tensor | None = None,
    *,
    kept: int | tf.Tensor | None = None,
    solver: Solver,
) -> tuple[tf.Tensor, State, Convergence]:
    """Runs whole sequences.

    Args:
        network: the network's shape; its depth is one turn.
        weights: as for `core.trellis.trellis`, and so are those below.
        sequences: [B, T, p].
        initial: the state to the left of every level, each [B, units]; None for zeros.
        mask: bool [B, T], or None.
        kept: how many of the last steps to return; None for all.
        solver: how the state is found.

    Returns:
        h [B, T, units], or [B, kept, units]; the state at the last valid step, each [B, units]; how
        far the iteration came, [B, T] or [B, kept].
    """
    plan = masks.packing(mask)
    sequences = masks.pack(sequences, plan)
    past = zeros(sequences, network.input_width, sequences.shape[-1])
    addends = injection.inject(network, weights, sequences, past)
    empty = (zeros(sequences, None, network.units),) * network.gate.states
    pasts = [context(empty, initial, network.width(phase)) for phase in range(network.depth)]
    hidden = hidden_kernel(weights, solver.training)
    turn = _Turn(network, pasts, addends, hidden, solver.training)
    state, convergence = _solve(turn, empty, plan, solver)
    outputs = last_steps(masks.unpack(state[0], plan), kept)
    before = initial or tuple(tf.reduce_sum(each, axis=1) for each in empty)
    found = (last_steps(each, kept) for each in _unpack(convergence, plan))
    return outputs, masks.last_valid(state, plan, before), Convergence(*found)


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
    addends = injection.inject(network, weights, sequences, cache.inputs)
    # Levels stand in the cache by their place in the dilation cycle.
    order = sorted(range(network.depth), key=lambda phase: phase % len(network.cycle))
    widths = [network.width(phase) for phase in order]
    parts = zip(*(tf.split(each, widths, axis=1) for each in cache.levels), strict=True)
    by_phase = dict(zip(order, parts, strict=True))
    pasts = [by_phase[phase] for phase in range(network.depth)]
    hidden = hidden_kernel(weights, solver.training)
    turn = _Turn(network, pasts, addends, hidden, solver.training)
    empty = (zeros(sequences, None, network.units),) * network.gate.states
    top, _ = _solve(turn, empty, plan, solver)
    below, kept = top, {}
    for phase, past in enumerate(pasts):
        if phase:
            below = turn.level(phase - 1, below)
        kept[phase] = [
            caches.keep(pad_left(left, each), left.shape[1], plan)
            for left, each in zip(past, below, strict=True)
        ]
    columns = zip(*(kept[phase] for phase in order), strict=True)
    levels = tuple(tf.concat(each, axis=1) for each in columns)
    return streaming.next_cache(network, sequences, cache, plan, top, levels)


def _solve(
    turn: _Turn, empty: State, plan: Packing | None, solver: Solver
) -> tuple[State, Convergence]:
    """Returns the state that one turn of the levels leaves as it is."""
    states = turn.network.gate.states

    def run(joined: tf.Tensor, variable: Any) -> tf.Tensor:
        pasts, addends, kernel = variable
        hidden = turn.hidden._replace(kernel=kernel)
        here = turn._replace(pasts=pasts, addends=addends, hidden=hidden)
        state = tuple(tf.split(joined, states, axis=-1))
        for phase in range(turn.network.depth):
            state = here.level(phase, state)
        return tf.concat(state, axis=-1)

    dtype = empty[0].dtype.name
    solved = None
    if plan is not None:  # the steps that only fill up packed sequences
        valid = tf.sequence_mask(plan.count, tf.shape(plan.mask)[1])
        solved = tf.logical_not(valid)
    joined, convergence = fixed_point(
        run,
        tf.concat(empty, axis=-1),
        (turn.pasts, turn.addends, turn.hidden.kernel),
        tolerance=max(solver.tolerance, 4 * _EPSILON[dtype]),
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

    def move(values: tf.Tensor, before: Any) -> tf.Tensor:
        first = tf.fill([tf.shape(values)[0], 1], tf.cast(before, values.dtype))
        return tf.squeeze(masks.unpack(tf.expand_dims(values, -1), plan, first), -1)

    return Convergence(move(residual, 0), move(iterations, 0), move(converged, True))
