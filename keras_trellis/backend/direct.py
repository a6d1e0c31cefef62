"""What TensorFlow and torch have in common: code runs, and is differentiated, as it is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras


def fixed_point(
    find: Callable[..., tuple[Any, Any]],
    function: Callable[[Any, Any], Any],
    guess: Any,
    parameters: Any,
    solved: Any | None,
) -> tuple[Any, Any]:
    """Returns z with z = f(z, a); its gradient is that of the iterations.

    Args:
        find: `core.fixed_point.solve` with its tolerance and bound.
        function: f.
        guess: the first iterate.
        parameters: a, a nest of tensors.
        solved: as for `solve`.

    Returns:
        z, and how far it came.
    """
    return find(lambda z: function(z, parameters), guess, solved=solved)


def repeat(body: Callable[[int, Any], Any], state: Any, turns: int) -> Any:
    """Returns what a number of turns make of a state: the body of turn 0, then of turn 1, ..."""
    for turn in range(turns):
        state = body(turn, state)
    return state


def saving_products(function: Callable) -> Callable:
    """Returns the function: its gradient saves what it needs."""
    return function


def jitted(function: Callable, static: Sequence[str]) -> Callable:
    """Returns the function: it needs no compilation."""
    return function


sigmoid: Callable[[Any], Any] = keras.activations.sigmoid
"""The logistic function."""

tanh: Callable[[Any], Any] = keras.activations.tanh
"""The hyperbolic tangent."""
