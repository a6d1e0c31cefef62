"""The gradient of a fixed point on JAX.

The solver is a `jax.lax.while_loop`, which has no derivative in reverse. So the gradient is that of
the implicit function theorem always, in training and not: its memory is that of one application of
the map, for any number of iterations. As it takes the fixed point for exact, it has an error of the
size of the tolerance. It cannot be differentiated itself.

Source: Bai, Kolter, Koltun, "Deep Equilibrium Models", NeurIPS 2019,
https://arxiv.org/abs/1909.01377, theorem 1.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn

import jax

from keras_trellis.types import Tensor


def fixed_point(
    find: Callable[..., tuple[Tensor, Any]],
    function: Callable[[Tensor, Any], Tensor],
    guess: Tensor,
    parameters: Any,
    solved: Tensor | None,
) -> tuple[Tensor, Any]:
    """Returns z with z = f(z, a), and how far it came; differentiable with respect to a.

    For dL/dz = v the gradient is u df/da, where u solves u = v + u df/dz. That system is solved as
    z was, on products of u with the Jacobian of f at z.

    Args:
        find: `core.fixed_point.solve` with its tolerance and bound.
        function: f, which depends on no other array that has a gradient.
        guess: the first iterate.
        parameters: a, a nest of arrays.
        solved: as for `solve`.
    """

    @jax.custom_vjp
    def apply(parameters: Any, guess: Tensor, solved: Tensor | None) -> Any:
        def iterate(z: Tensor) -> Tensor:
            return function(z, parameters)

        return find(iterate, guess, solved=solved)

    def forward(parameters: Any, guess: Tensor, solved: Tensor | None) -> Any:
        state, convergence = apply(parameters, guess, solved)
        return (state, convergence), (state, parameters)

    def backward(residuals: Any, upstream: Any) -> Any:
        state, parameters = residuals
        by_after, _ = upstream

        def by_iterate(z: Tensor) -> Tensor:
            return function(z, parameters)

        _, pull_back = jax.vjp(by_iterate, state)

        def advance(u: Tensor) -> Tensor:
            (by_state,) = pull_back(u)
            return by_after + by_state

        u, _ = find(advance, by_after, reverse=True)
        by_parameters_alone = functools.partial(function, state)
        _, pull_back = jax.vjp(by_parameters_alone, parameters)
        (by_parameters,) = pull_back(_only_first(u))
        return by_parameters, None, None

    apply.defvjp(forward, backward)
    return apply(parameters, guess, solved)


@jax.custom_jvp
def _only_first(gradient: Tensor) -> Tensor:
    """Returns a gradient that cannot be differentiated."""
    return gradient


@_only_first.defjvp
def _refuse(primals: Any, tangents: Any) -> NoReturn:
    # It would miss that z, a constant in `backward`, depends on a.
    raise NotImplementedError(
        "An EquilibriumTrellisLayer has first gradients alone: its gradient cannot be "
        "differentiated."
    )
