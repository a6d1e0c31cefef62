"""A trellis network of infinite depth: `keras_trellis.core.equilibrium`, fast."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from keras_trellis.core import equilibrium
from keras_trellis.core.equilibrium import Method, Solver, Turn
from keras_trellis.core.network import Network, Weights
from keras_trellis.core.recurrence import Loop
from keras_trellis.engine import convolution
from keras_trellis.engine.fixed_point import fixed_point
from keras_trellis.engine.level import Reach, hidden_kernel, level
from keras_trellis.engine.recurrence import recur
from keras_trellis.types import State, Tensor


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

    find = functools.partial(fixed_point, training=training)
    return Turn((pasts, addends, hidden.kernel), run_level, find)


def _loop(network: Network, solver: Solver) -> Loop:
    units = network.units // network.groups
    return functools.partial(recur, units=units, training=solver.training)


_ENGINE = Method(_begin, _loop)

settle = functools.partial(equilibrium.settle, method=_ENGINE)
"""`core.equilibrium.settle`, by the engine."""

stream = functools.partial(equilibrium.stream, method=_ENGINE)
"""`core.equilibrium.stream`, by the engine."""
