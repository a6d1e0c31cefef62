"""Counts the parameters of a layer by building it without values."""

import math
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import keras


def parameters(
    make: Callable[[], keras.layers.Layer], *shapes: Sequence[int | None]
) -> int:
    """Returns the number of trainable parameters of a layer.

    It takes some hundredths of a second and no memory, however large the layer is.

    Args:
        make: returns the layer, built or not.
        *shapes: what its `build` takes.

    Raises:
        ValueError: the layer cannot be made or built.
    """
    # Keras draws the seeds of initializers from Python's generator: a run has to find it as it was.
    state = random.getstate()
    try:
        # Keras lists the variables of the scope, to give them values at the end of a later one. The
        # list is of a thread, and goes with it.
        with ThreadPoolExecutor(max_workers=1) as thread:
            return thread.submit(_count, make, shapes).result()
    finally:
        random.setstate(state)


def _count(
    make: Callable[[], keras.layers.Layer], shapes: Sequence[Sequence[int | None]]
) -> int:
    with keras.StatelessScope(initialize_variables=False):
        layer = make()
        if not layer.built:
            layer.build(*shapes)
    return sum(math.prod(variable.shape) for variable in layer.trainable_variables)
