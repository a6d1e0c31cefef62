"""Fixed points of causal maps: the state that the levels of a network of infinite depth settle in.

Source: Bai, Kolter, Koltun, "Deep Equilibrium Models", NeurIPS 2019,
https://arxiv.org/abs/1909.01377.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from keras import ops

from keras_trellis.backend import current as backend
from keras_trellis.core.convolution import at_least_float32
from keras_trellis.types import Convergence, Number, Tensor

# Every so many iterations the iterate is extrapolated from the last few; between, the map is
# applied plainly. The period must exceed the memory: the first iterate has none before it.
_PERIOD = 5
_MEMORY = 3
_RIDGE = 1e-6

Map = Callable[[Tensor], Tensor]


class _Loop(NamedTuple):
    """What goes from iteration to iteration.

    Attributes:
        iterate: z, `[B, T, C]`.
        after: the last f(z).
        error: the last f(z) - z.
        after_changes: how f(z) changed from one iteration to the next, the newest first.
        error_changes: how f(z) - z changed.
        convergence: `converged` is true of the steps that are solved and stay as they are.
    """

    iterate: Tensor
    after: Tensor
    error: Tensor
    after_changes: tuple[Tensor, ...]
    error_changes: tuple[Tensor, ...]
    convergence: Convergence


def fixed_point(
    function: Callable[[Tensor, Any], Tensor],
    guess: Tensor,
    parameters: Any,
    *,
    tolerance: float,
    max_iterations: int,
    solved: Tensor | None = None,
    by_period: bool = False,
) -> tuple[Tensor, Convergence]:
    """Returns z with z = f(z, a), differentiable with respect to a.

    The gradient is that of the iterations made, all of which it keeps; on JAX it is that of the
    implicit function theorem (`backend.jax`).

    Args:
        function: f, causal as for `solve`.
        guess: the first iterate.
        parameters: a, a nest of tensors: all tensors that f depends on besides z.
        tolerance: as for `solve`.
        max_iterations: as for `solve`.
        solved: as for `solve`; the gradient of these steps must be zero.
        by_period: as for `solve`.

    Returns:
        z, and how far it came.
    """
    find = functools.partial(
        solve, tolerance=tolerance, max_iterations=max_iterations, by_period=by_period
    )
    return backend.fixed_point(find, function, guess, parameters, solved)


def solve(
    function: Map,
    guess: Tensor,
    *,
    tolerance: float,
    max_iterations: int,
    solved: Tensor | None = None,
    reverse: bool = False,
    by_period: bool = False,
) -> tuple[Tensor, Convergence]:
    """Returns z with z = f(z), for a causal map f of sequences.

    Plain iteration, every fifth step an Anderson extrapolation instead (Anderson 1965;
    alternating the two: Banerjee, Suryanarayana, Pask 2016, "Periodic Pulay method"). The
    extrapolation's least squares and the residual are taken for each step over all steps up to it,
    and a step is left as it is once it and all before it are solved. So no step depends on a later
    one, no row on another, and a sequence's first steps are what they are alone.

    Args:
        function: f, `[B, T, C]` -> `[B, T, C]`; each step may depend on itself and those before it.
        guess: the first iterate.
        tolerance: the residual at which a step is solved; see `Convergence`.
        max_iterations: how many times f is applied at most.
        solved: bool `[B, T]`, the steps that need no solution; None for none.
        reverse: whether each step depends on itself and those *after* it.
        by_period: whether the loop makes a whole period in a turn, without a condition in it, which
            ONNX Runtime cannot hold. z is the same; `iterations` may count up to four more.

    Returns:
        z `[B, T, C]`, and how far it came.
    """

    def observe(loop: _Loop) -> _Loop:
        # A map whose static shape is less known would change the loop variables.
        after = backend.with_static_shape(function(loop.iterate), guess)
        return _observe(loop, after, tolerance, reverse)

    def proceed(count: Number, loop: _Loop, following: Tensor) -> _Loop:
        # The last iterate stays, so that what is returned is what the residual was taken of.
        is_last = count >= max_iterations - 1
        stays = ops.expand_dims(loop.convergence.converged | is_last, -1)
        iterate = ops.where(stays, loop.iterate, following)
        iterate = backend.with_static_shape(iterate, guess)
        return loop._replace(iterate=iterate)

    def advance(count: Number, loop: _Loop) -> tuple[Number, _Loop]:
        loop = observe(loop)
        following = ops.cond(
            ops.equal(count % _PERIOD, _PERIOD - 1),
            lambda: _extrapolate(loop, reverse),
            lambda: loop.after,
        )
        return count + 1, proceed(count, loop, following)

    def advance_period(count: Number, loop: _Loop) -> tuple[Number, _Loop]:
        for place in range(_PERIOD):
            loop = observe(loop)
            extrapolates = place == _PERIOD - 1
            following = _extrapolate(loop, reverse) if extrapolates else loop.after
            loop = proceed(count + place, loop, following)
        return count + _PERIOD, loop

    def goes_on(count: Number, loop: _Loop) -> Tensor:
        # Once at least: a result on which nothing was applied has no gradient, not even zero.
        return ops.equal(count, 0) | ~ops.all(loop.convergence.converged)

    start = (ops.zeros([], "int32"), _begin(guess, solved))
    turn, turns = advance, max_iterations
    if by_period:
        turn, turns = advance_period, -(-max_iterations // _PERIOD)
    _, loop = backend.while_loop(goes_on, turn, start, turns)
    return loop.iterate, loop.convergence


def _begin(guess: Tensor, solved: Tensor | None) -> _Loop:
    """Returns what goes into the first iteration."""
    empty = ops.zeros_like(guess)
    residual = ops.zeros_like(_squares(guess))
    if solved is None:
        solved = ops.zeros_like(residual, "bool")
    return _Loop(
        iterate=guess,
        after=empty,
        error=empty,
        after_changes=(empty,) * _MEMORY,
        error_changes=(empty,) * _MEMORY,
        convergence=Convergence(
            residual=residual,
            iterations=ops.zeros_like(residual, "int32"),
            converged=backend.with_static_shape(solved, residual),
        ),
    )


def _observe(loop: _Loop, after: Tensor, tolerance: float, reverse: bool) -> _Loop:
    """Records one application of the map."""
    error = after - loop.iterate
    before = loop.convergence
    residual = _residual(error, after, reverse)
    open_before = ops.logical_not(before.converged)
    # Where the residual is not a number, the step is open.
    still_open = open_before & ops.logical_not(residual <= tolerance)
    # A step is solved only with all those that it depends on: while one of them moves, so may it.
    open_so_far = _running_sum(ops.cast(still_open, "int32"), reverse)
    return _Loop(
        iterate=loop.iterate,
        after=after,
        error=error,
        after_changes=(after - loop.after, *loop.after_changes[:-1]),
        error_changes=(error - loop.error, *loop.error_changes[:-1]),
        convergence=Convergence(
            residual=ops.where(before.converged, before.residual, residual),
            iterations=before.iterations + ops.cast(open_before, "int32"),
            converged=before.converged | ops.equal(open_so_far, 0),
        ),
    )


def _extrapolate(loop: _Loop, reverse: bool) -> Tensor:
    """Returns f(z) - sum_i w_i df_i with the weights w that minimise |e - sum_i w_i de_i|.

    Anderson's method without constraints (Walker and Ni 2011, section 2); e = f(z) - z, and d is
    the change from one iteration to the next.
    """

    def product(left: Tensor, right: Tensor) -> Tensor:
        products = at_least_float32(left) * at_least_float32(right)
        return _running_sum(ops.sum(products, axis=-1), reverse)

    # The normal equations of each step's least squares, `[B, T, n, n + 1]`.
    columns = (*loop.error_changes, loop.error)
    gram = []
    for left in loop.error_changes:
        row = [product(left, right) for right in columns]
        gram.append(ops.stack(row, axis=-1))
    # Constants to a gradient: whatever the weights, the iterates settle in z.
    weights = _solve_positive(ops.stack(gram, axis=-2))
    weights = ops.stop_gradient(weights)
    weights = ops.cast(weights, loop.after.dtype)
    result = loop.after
    for place, change in enumerate(loop.after_changes):
        # On torch `-=` would write into `loop.after`.
        result = result - weights[..., place : place + 1] * change
    return result


def _solve_positive(system: Tensor) -> Tensor:
    """Solves small systems `[A, b]` with A positive semidefinite, slightly regularised.

    By elimination, since TensorFlow's solvers raise where a single system is not finite.

    Args:
        system: `[..., n, n + 1]`.

    Returns:
        `[..., n]`.
    """
    size = system.shape[-2]
    # A constant: OpenVINO has no rule for what `tf.eye` is made of.
    unit = ops.convert_to_tensor(np.eye(size, size + 1), system.dtype)
    # Where a column is zero, so is its weight.
    system = system + unit * (_RIDGE * system + 1e-30)
    for place in range(size):
        here = slice(place, place + 1)
        pivot = system[..., here, :]
        pivot = pivot / pivot[..., here]
        factors = system[..., here] - unit[:, here]
        system = system - factors * pivot
    return system[..., -1]


def _residual(error: Tensor, after: Tensor, reverse: bool) -> Tensor:
    error = ops.sqrt(_running_sum(_squares(error), reverse))
    after = ops.sqrt(_running_sum(_squares(after), reverse))
    # Not 0 / 0 where all is zero so far.
    is_exact = ops.equal(error, 0)
    return ops.where(is_exact, error, error / after)


def _squares(sequences: Tensor) -> Tensor:
    """Returns the squared norm of each step, `[B, T]`."""
    sequences = at_least_float32(sequences)
    return ops.sum(ops.square(sequences), axis=-1)


def _running_sum(values: Tensor, reverse: bool) -> Tensor:
    if not reverse:
        return ops.cumsum(values, axis=1)
    return ops.flip(ops.cumsum(ops.flip(values, axis=1), axis=1), axis=1)
