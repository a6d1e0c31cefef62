"""The initial values of the authors' code, in place of Keras's own."""

from typing import Any

import keras

_OF = ("kernel_initializer", "recurrent_initializer", "bias_initializer")


def initializers(deviation: float) -> dict[str, Any]:
    """Returns the arguments of a `TrellisLayer` whose kernels and bias begin as N(0, deviation^2).

    Args:
        deviation: Standard deviation; 0 for Keras's own initializers.
    """
    # One object each: an initializer draws the same numbers each time.
    names = _OF if deviation else ()
    return {name: keras.initializers.RandomNormal(stddev=deviation) for name in names}
