"""A trellis network of infinite depth, written plainly.

All levels are one map with one set of weights. One turn is the levels of one period. The state
that a turn leaves as it is, z = f(z), is the output of a network without end. On TensorFlow
`keras_trellis.engine.equilibrium` computes the turns and the fixed point, faster.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_trellis.core import caches, masks, recurrence, stack, trellis
from keras_trellis.core.convolution import (
    at_least_float32,
    last_steps,
    pad_left,
    repeated,
    time_steps,
    zeros,
)
from keras_trellis.core.fixed_point import fixed_point
from keras_trellis.core.injection import inject
from keras_trellis.core.masks import Packing
from keras_trellis.core.network import Network, Weights
from keras_trellis.core.recurrence import Loop
from keras_trellis.types import Cache, Convergence, Number, State, Tensor

_EPSILON = {
    "float64": 2.0**-52,
    "float32": 2.0**-23,
    "float16": 2.0**-10,
    "bfloat16": 2.0**-7,
}


class Solver(NamedTuple):
    """How a fixed point is found.

    Attributes:
        tolerance: the residual at which a step counts as solved.
        max_iterations: how many turns are made at most.
        training: whether gradients are those of the implicit function theorem. The engine alone
            asks; see `core.fixed_point` for the others.
        by_period: as for `core.fixed_point.solve`; the plain network alone asks.
    """

    tolerance: float
    max_iterations: int
    training: bool
    by_period: bool = False

    def reachable(self, sequences: Tensor) -> float:
        """Returns the tolerance, where rounding does not set a larger one."""
        # Rounding in f alone leaves about so much: below it no step would ever count as solved.
        dtype = keras.backend.standardize_dtype(sequences.dtype)
        return max(self.tolerance, 4 * _EPSILON[dtype])


class Turn(NamedTuple):
    """One turn of the levels.

    Attributes:
        parameters: a nest of the tensors that it depends on.
        run_level: from these, the number of a level and the state of the level below to its state.
        fixed_point: finds the state that a turn leaves as it is, as `core.fixed_point.fixed_point`.
    """

    parameters: Any
    run_level: Callable[[Any, int, State], State]
    fixed_point: Callable[..., tuple[Tensor, Convergence]]


class Method(NamedTuple):
    """What computes a network of infinite depth: the plain network, or the engine.

    Attributes:
        begin: from the network's shape, its weights, the sequences and what stands to the left of
            them and of each level, and the solver to a turn.
        loop: from the network's shape and the solver to what runs a group over time.
    """

    begin: Callable[[Network, Weights, Tensor, Tensor, Sequence[State], Solver], Turn]
    loop: Callable[[Network, Solver], Loop]


def _begin(
    network: Network,
    weights: Weights,
    inputs: Tensor,
    left: Tensor,
    pasts: Sequence[State],
    solver: Solver,
) -> Turn:
    addends = inject(network, weights, inputs, left)

    def run_level(parameters: Any, phase: int, state: State) -> State:
        pasts, addends, weights = parameters
        padded = list(map(pad_left, pasts[phase], state))
        return trellis.run_level(network, weights, addends, padded, phase)

    find = functools.partial(fixed_point, by_period=solver.by_period)
    return Turn((pasts, addends, weights), run_level, find)


_PLAIN = Method(_begin, lambda network, solver: recurrence.recur)


def settle(
    network: Network,
    weights: Weights,
    sequences: Tensor,
    initial: State | None = None,
    mask: Tensor | None = None,
    *,
    num_outputs: Number | None = None,
    solver: Solver,
    method: Method = _PLAIN,
) -> tuple[Tensor, State, Convergence]:
    """Runs whole sequences.

    Args:
        network: the network's shape; its depth is one turn.
        weights: as for `core.trellis.trellis`, and so are those below.
        sequences: `[B, T, p]`.
        initial: the state to the left of every level, each `[B, units]`; None for zeros.
        mask: bool `[B, T]`, or None.
        num_outputs: how many of the last steps to return; None for all.
        solver: how the state is found.
        method: what computes it.

    Returns:
        h `[B, T, units]`, or `[B, num_outputs, units]`; the state at the last valid step, each
        `[B, units]`; how far the iteration came, `[B, T]` or `[B, num_outputs]`.
    """
    plan = masks.packing(mask)
    inputs = masks.pack(sequences, plan)
    before = initial or network.no_history(inputs)
    if stack.is_stack(network):
        loop = method.loop(network, solver)
        hidden, last = stack.run_groups(
            network, weights, inputs, before, plan, recur=loop
        )
        outputs = last_steps(masks.unpack(hidden, plan), num_outputs)
        return outputs, last, _at_once(outputs)
    # As for a network of finite depth: zeros left of the input, the initial state left of levels.
    left = zeros(inputs, network.input_width, inputs.shape[-1])
    pasts = []
    for phase in range(network.depth):
        pasts.append(tuple(map(repeated, before, network.widths(phase))))
    turn = method.begin(network, weights, inputs, left, pasts, solver)
    state, convergence = _solve(network, turn, inputs, plan, solver)
    outputs = last_steps(masks.unpack(state[0], plan), num_outputs)
    results = (last_steps(values, num_outputs) for values in _unpack(convergence, plan))
    return outputs, masks.last_valid(state, plan, before), Convergence(*results)


def stream(
    network: Network,
    weights: Weights,
    sequences: Tensor,
    cache: Cache,
    mask: Tensor | None = None,
    *,
    solver: Solver,
    method: Method = _PLAIN,
) -> tuple[Tensor, Cache]:
    """Goes on from a cache, as `core.trellis.stream`.

    The state that a step settles in depends on the past through what the levels of one turn have
    settled in at the steps before. So the cache holds no more of a past without end.
    """
    plan = masks.packing(mask)
    inputs = masks.pack(sequences, plan)
    if stack.is_stack(network):
        # One level, which holds the step before: the state of each group.
        before = tuple(tensor[:, -1] for tensor in cache.levels)
        loop = method.loop(network, solver)
        hidden, last = stack.run_groups(
            network, weights, inputs, before, plan, recur=loop
        )
        levels = tuple(ops.expand_dims(tensor, 1) for tensor in last)
        return caches.finish_chunk(network, inputs, cache, plan, hidden, last, levels)
    phases = range(network.depth)
    pasts = [caches.level_past(network, cache, phase) for phase in phases]
    turn = method.begin(network, weights, inputs, cache.inputs, pasts, solver)
    top, _ = _solve(network, turn, inputs, plan, solver)
    # The solver returns the top of a turn alone: the levels below it run once more.
    levels = _next_levels(network, turn, pasts, top, plan)
    last = masks.last_valid(top, plan, cache.state)
    return caches.finish_chunk(network, inputs, cache, plan, top[0], last, levels)


def _next_levels(
    network: Network,
    turn: Turn,
    pasts: Sequence[State],
    top: State,
    plan: Packing | None,
) -> State:
    """Returns `levels` of the next cache. Below the first level of a turn stands the last one."""
    below = top
    next_pasts: list[State] = []
    for phase, past in enumerate(pasts):
        if phase:
            below = turn.run_level(turn.parameters, phase - 1, below)
        padded = map(pad_left, past, below)
        widths = network.widths(phase)
        next_pasts.append(masks.last_valid_pasts(padded, widths, plan))
    return caches.joined_pasts(network, next_pasts)


def _at_once(outputs: Tensor) -> Convergence:
    """Returns the convergence of outputs `[B, n, C]` that need no iteration."""
    residual = ops.zeros_like(at_least_float32(outputs[..., 0]))
    return Convergence(
        residual=residual,
        iterations=ops.ones_like(residual, "int32"),
        converged=ops.ones_like(residual, "bool"),
    )


def _solve(
    network: Network,
    turn: Turn,
    inputs: Tensor,
    plan: Packing | None,
    solver: Solver,
) -> tuple[State, Convergence]:
    """Returns the state that one turn of the levels leaves as it is."""
    states = network.gate.states

    def run(joined: Tensor, parameters: Any) -> Tensor:
        # To the solver h and c are one vector, of which it takes residuals and extrapolations.
        state = tuple(ops.split(joined, states, axis=-1))
        for phase in range(network.depth):
            state = turn.run_level(parameters, phase, state)
        return ops.concatenate(state, axis=-1)

    steps = time_steps(inputs)
    solved = None
    if plan is not None:  # the steps that only fill up packed sequences
        solved = ops.logical_not(masks.steps_until(plan.count, steps))
    joined, convergence = turn.fixed_point(
        run,
        # From zeros, as a network of finite depth begins below level 0.
        zeros(inputs, steps, states * network.units),
        turn.parameters,
        tolerance=solver.reachable(inputs),
        max_iterations=solver.max_iterations,
        solved=solved,
    )
    return tuple(ops.split(joined, states, axis=-1)), convergence


def _unpack(convergence: Convergence, plan: Packing | None) -> Convergence:
    """Moves back what was found of packed steps; before the first valid one all is solved."""
    if plan is None:
        return convergence
    residual, iterations, converged = convergence
    none = ops.zeros_like(plan.count)
    nothing = ops.cast(none, residual.dtype)
    return Convergence(
        residual=masks.unpack(residual, plan, nothing),
        iterations=masks.unpack(iterations, plan, none),
        converged=masks.unpack(converged, plan, ops.equal(none, 0)),
    )
