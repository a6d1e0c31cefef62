"""Counts the parameters of a layer by building it."""

import math
import random
from collections.abc import Callable, Sequence

import keras
import tensorflow as tf


def parameters(
    make: Callable[[], keras.layers.Layer], *shapes: Sequence[int | None]
) -> int:
    """Returns the number of trainable parameters of a layer.

    It takes some hundredths of a second and no memory, however large the layer is.

    Args:
        make: Returns the layer, not built yet.
        *shapes: What its `build` takes.
    """
    # Keras draws the seeds of initializers from Python's generator: a run has to find it as it was.
    state = random.getstate()
    try:
        # A graph that never runs gives its variables no memory.
        with tf.Graph().as_default():
            layer = make()
            layer.build(*shapes)
    finally:
        random.setstate(state)
    return sum(math.prod(each.shape) for each in layer.trainable_variables)
