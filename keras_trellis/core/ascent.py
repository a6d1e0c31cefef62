"""The loop over levels."""

from __future__ import annotations

from collections.abc import Callable

import keras

from keras_trellis.backend import current as backend
from keras_trellis.types import Number, State


def ascend(
    advance: Callable[[State, Number, int], State],
    state: State,
    first: int,
    last: int,
    period: int,
    *,
    recompute: bool = False,
) -> State:
    """Runs the levels from `first` up to, but without, `last`.

    On JAX whole periods are one loop, so that the time to compile does not grow with the depth.

    Args:
        advance: from the state of the level below, the number of a level and its place in the
            period to its state.
        state: the state below `first`.
        first: the lowest level.
        last: the number of the level after the highest one.
        period: after how many levels everything that differs between levels repeats.
        recompute: whether a period is computed again for its gradient.
    """

    def run_period(turn: Number, state: State) -> State:
        # `turn` may be traced; the place is a Python integer, so that what differs is constant.
        begin = first + turn * period
        for place in range(period):
            state = advance(state, begin + place, (first + place) % period)
        return state

    if recompute:
        run_period = keras.remat(run_period)
    turns = (last - first) // period
    state = backend.repeat(run_period, state, turns)
    for level in range(first + turns * period, last):
        state = advance(state, level, level % period)
    return state
