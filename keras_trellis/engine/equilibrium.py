"""A trellis network of infinite depth: `keras_trellis.core.equilibrium`, fast.

Source: Bai, Kolter, Koltun, "Deep Equilibrium Models", NeurIPS 2019,
https://arxiv.org/abs/1909.01377.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from keras_trellis.core import equilibrium
from keras_trellis.core.equilibrium import Method, Solver, Turn
from keras_trellis.core.fixed_point import solve
from keras_trellis.core.network import Network, Weights
from keras_trellis.core.recurrence import Loop
from keras_trellis.engine import convolution
from keras_trellis.engine.level import Reach, hidden_kernel, level
from keras_trellis.engine.recurrence import recur
from keras_trellis.types import Convergence, State, Tensor


def _begin(
    network: Network,
    weights: Weights,
    sequences: Tensor,
    left: Tensor,
    pasts: Sequence[State],
    solver: Solver,
) -> Turn:
    """Returns a turn; its parameters are what has a gradient."""
    training = solver.training
    addends = convolution.inject(network, weights, sequences, left)
    hidden = hidden_kernel(weights, training)

    def run_level(parameters: Any, phase: int, state: State) -> State:
        pasts, addends, kernel = parameters
        reach = Reach(network.kernel_size, network.dilation(phase))
        # The kernel comes in among the parameters: in training these alone have a gradient.
        here = hidden._replace(kernel=kernel)
        run = level(network.gate, reach, here, training=training)
        addend = convolution.addend(network, addends, phase)
        return run(pasts[phase], state, addend)

    find = functools.partial(_fixed_point, training=training)
    return Turn((pasts, addends, hidden.kernel), run_level, find)


def _fixed_point(
    function: Callable[[Tensor, Any], Tensor],
    guess: Tensor,
    parameters: Any,
    *,
    tolerance: float,
    max_iterations: int,
    solved: Tensor | None = None,
    training: bool,
) -> tuple[Tensor, Convergence]:
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
    def apply(*flat: Tensor) -> Any:
        nest = tf.nest.pack_sequence_as(parameters, flat)
        state, convergence = find(lambda z: function(z, nest), guess, solved=solved)

        def gradient(upstream: Tensor, *_: Tensor) -> Any:
            # One application of f is taped, once: each product with its Jacobian is a pass back
            # over it.
            with tf.GradientTape(persistent=True) as tape:
                tape.watch((state, flat))
                after = function(state, nest)

            def pull_back(u: Tensor) -> Tensor:
                return upstream + tape.gradient(after, state, output_gradients=u)

            # The Jacobian transposed: in it a step depends on itself and on those after it.
            u, _ = find(pull_back, upstream, reverse=True)
            # A derivative of it would miss that z, a constant here, depends on a.
            message = "The equilibrium has first gradients."
            u = tf.raw_ops.PreventGradient(input=u, message=message)
            zero = tf.UnconnectedGradients.ZERO
            return tape.gradient(after, list(flat), u, unconnected_gradients=zero)

        return (state, *convergence), gradient

    flat_parameters = tf.nest.flatten(parameters)
    state, *convergence = apply(*flat_parameters)
    return state, Convergence(*convergence)


def _loop(network: Network, solver: Solver) -> Loop:
    units = network.units // network.groups
    return functools.partial(recur, units=units, training=solver.training)


_ENGINE = Method(_begin, _loop)

settle = functools.partial(equilibrium.settle, method=_ENGINE)
"""`core.equilibrium.settle`, by the engine."""

stream = functools.partial(equilibrium.stream, method=_ENGINE)
"""`core.equilibrium.stream`, by the engine."""
