"""Fixed points of causal maps: the state that the levels of a network of infinite depth settle in.

Source: Bai, Kolter, Koltun, "Deep Equilibrium Models", NeurIPS 2019,
https://arxiv.org/abs/1909.01377.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from keras_trellis.core.precision import at_least_float32
from keras_trellis.engine.gradients import only_first
from keras_trellis.types import Convergence

# Every so many iterations the iterate is extrapolated from the last few; between, the map is
# applied plainly. The period must exceed the memory: the first iterate has none before it.
_PERIOD = 5
_MEMORY = 3
_RIDGE = 1e-6

Map = Callable[[tf.Tensor], tf.Tensor]


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

    iterate: tf.Tensor
    after: tf.Tensor
    error: tf.Tensor
    after_changes: tuple[tf.Tensor, ...]
    error_changes: tuple[tf.Tensor, ...]
    convergence: Convergence


def solve(
    function: Map,
    guess: tf.Tensor,
    *,
    tolerance: float,
    max_iterations: int,
    solved: tf.Tensor | None = None,
    reverse: bool = False,
) -> tuple[tf.Tensor, Convergence]:
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

    Returns:
        z `[B, T, C]`, and how far it came.
    """

    def advance(count: tf.Tensor, loop: _Loop) -> tuple[tf.Tensor, _Loop]:
        # A map whose static shape is less known would change the loop variables.
        after = tf.ensure_shape(function(loop.iterate), guess.shape)
        loop = _observe(loop, after, tolerance, reverse)
        extrapolates = tf.equal(count % _PERIOD, _PERIOD - 1)
        following = tf.cond(
            extrapolates, lambda: _extrapolate(loop, reverse), lambda: loop.after
        )
        # The last iterate stays, so that what is returned is what the residual was taken of.
        is_last = tf.equal(count, max_iterations - 1)
        stays = tf.expand_dims(loop.convergence.converged | is_last, -1)
        iterate = tf.where(stays, loop.iterate, following)
        iterate = tf.ensure_shape(iterate, guess.shape)
        return count + 1, loop._replace(iterate=iterate)

    def goes_on(count: tf.Tensor, loop: _Loop) -> tf.Tensor:
        # Once at least: a result on which nothing was applied has no gradient, not even zero.
        solved = tf.reduce_all(loop.convergence.converged)
        return tf.equal(count, 0) | tf.logical_not(solved)

    start = (tf.constant(0), _begin(guess, solved))
    _, loop = tf.while_loop(goes_on, advance, start, maximum_iterations=max_iterations)
    return loop.iterate, loop.convergence


def _begin(guess: tf.Tensor, solved: tf.Tensor | None) -> _Loop:
    """Returns what goes into the first iteration."""
    empty = tf.zeros_like(guess)
    residual = tf.zeros_like(_squares(guess))
    if solved is None:
        solved = tf.zeros_like(residual, tf.bool)
    return _Loop(
        iterate=guess,
        after=empty,
        error=empty,
        after_changes=(empty,) * _MEMORY,
        error_changes=(empty,) * _MEMORY,
        convergence=Convergence(
            residual=residual,
            iterations=tf.zeros_like(residual, tf.int32),
            converged=tf.ensure_shape(solved, residual.shape),
        ),
    )


def _observe(loop: _Loop, after: tf.Tensor, tolerance: float, reverse: bool) -> _Loop:
    """Records one application of the map."""
    error = after - loop.iterate
    before = loop.convergence
    residual = _residual(error, after, reverse)
    open_before = tf.cast(tf.logical_not(before.converged), tf.int32)
    still_open = tf.where(residual <= tolerance, 0, open_before)
    solved = tf.equal(_running_sum(still_open, reverse), 0)
    return _Loop(
        iterate=loop.iterate,
        after=after,
        error=error,
        after_changes=(after - loop.after, *loop.after_changes[:-1]),
        error_changes=(error - loop.error, *loop.error_changes[:-1]),
        convergence=Convergence(
            residual=tf.where(before.converged, before.residual, residual),
            iterations=before.iterations + open_before,
            converged=before.converged | solved,
        ),
    )


def _extrapolate(loop: _Loop, reverse: bool) -> tf.Tensor:
    """Returns f(z) - sum_i w_i df_i with the weights w that minimise |e - sum_i w_i de_i|.

    Anderson's method without constraints (Walker and Ni 2011, section 2); e = f(z) - z, and d is
    the change from one iteration to the next.
    """

    def product(left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
        products = at_least_float32(left) * at_least_float32(right)
        return _running_sum(tf.reduce_sum(products, axis=-1), reverse)

    columns = (*loop.error_changes, loop.error)
    gram = []
    for left in loop.error_changes:
        row = [product(left, right) for right in columns]
        gram.append(tf.stack(row, axis=-1))
    # Constants to TensorFlow's own gradient: whatever the weights, the iterates settle in z.
    weights = _solve_positive(tf.stack(gram, axis=-2))
    weights = tf.cast(tf.stop_gradient(weights), loop.after.dtype)
    result = loop.after
    for place, change in enumerate(loop.after_changes):
        result -= weights[..., place : place + 1] * change
    return result


def _solve_positive(system: tf.Tensor) -> tf.Tensor:
    """Solves small systems `[A, b]` with A positive semidefinite, slightly regularised.

    By elimination, since TensorFlow's solvers raise where a single system is not finite.

    Args:
        system: `[..., n, n + 1]`.

    Returns:
        `[..., n]`.
    """
    size = system.shape[-2]
    # A constant: OpenVINO has no rule for what `tf.eye` is made of.
    unit = tf.constant(np.eye(size, size + 1), system.dtype)
    # Where a column is zero, so is its weight.
    system += unit * (_RIDGE * system + 1e-30)
    for place in range(size):
        here = slice(place, place + 1)
        pivot = system[..., here, :]
        pivot /= pivot[..., here]
        system -= (system[..., here] - unit[:, here]) * pivot
    return system[..., -1]


def _residual(error: tf.Tensor, after: tf.Tensor, reverse: bool) -> tf.Tensor:
    error = tf.sqrt(_running_sum(_squares(error), reverse))
    after = tf.sqrt(_running_sum(_squares(after), reverse))
    return tf.where(tf.equal(error, 0), error, error / after)


def _squares(sequences: tf.Tensor) -> tf.Tensor:
    """Returns the squared norm of each step, `[B, T]`."""
    return tf.reduce_sum(tf.square(at_least_float32(sequences)), axis=-1)


def _running_sum(values: tf.Tensor, reverse: bool) -> tf.Tensor:
    return tf.cumsum(values, axis=1, reverse=reverse)


def fixed_point(
    function: Callable[[tf.Tensor, Any], tf.Tensor],
    guess: tf.Tensor,
    parameters: Any,
    *,
    tolerance: float,
    max_iterations: int,
    solved: tf.Tensor | None = None,
    training: bool,
) -> tuple[tf.Tensor, Convergence]:
    """Returns z with z = f(z, a), differentiable with respect to a.

    In training the gradient is that of the implicit function theorem: for dL/dz = v it is u df/da,
    where u solves u = v + u df/dz. That system is solved as z was, with the same tolerance and
    bound, on products of u with the Jacobian of one application of f. It keeps z and a in memory.
    Otherwise the gradient is TensorFlow's own, that of the iterations made, all of which it keeps.

    Args:
        function: f, causal as for `solve`. Whatever else it depends on counts as constant.
        guess: the first iterate; there is no gradient with respect to it.
        parameters: a, a nest of tensors.
        tolerance: as for `solve`.
        max_iterations: as for `solve`.
        solved: as for `solve`; the gradient of these steps must be zero.
        training: whether the gradient is that of the theorem.

    Returns:
        z, and how far it came.
    """
    find = functools.partial(solve, tolerance=tolerance, max_iterations=max_iterations)
    if not training:
        return find(lambda z: function(z, parameters), guess, solved=solved)

    @tf.custom_gradient
    def apply(*flat: tf.Tensor) -> Any:
        nest = tf.nest.pack_sequence_as(parameters, flat)
        state, convergence = find(lambda z: function(z, nest), guess, solved=solved)

        def gradient(upstream: tf.Tensor, *_: tf.Tensor) -> Any:
            with tf.GradientTape(persistent=True) as tape:
                tape.watch((state, flat))
                after = function(state, tf.nest.pack_sequence_as(parameters, flat))

            def pull_back(u: tf.Tensor) -> tf.Tensor:
                return upstream + tape.gradient(after, state, output_gradients=u)

            u, _ = find(pull_back, upstream, reverse=True)
            # A derivative of it would miss that z, a constant here, depends on a.
            u = only_first(u, "The equilibrium has first gradients.")
            zero = tf.UnconnectedGradients.ZERO
            return tape.gradient(after, list(flat), u, unconnected_gradients=zero)

        return (state, *convergence), gradient

    state, *convergence = apply(*tf.nest.flatten(parameters))
    return state, Convergence(*convergence)
