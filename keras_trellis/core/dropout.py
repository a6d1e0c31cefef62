"""Dropout masks as values: a layer draws them once a call and passes them on.

On TensorFlow and JAX a mask is a function of a call's seed and of a name, the same one. On torch it
is one draw of the layer's generator.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from keras_trellis import arguments
from keras_trellis.backend import current as backend
from keras_trellis.types import Number, Tensor


class Rate:
    """A dropout rate as an attribute of a layer: you may set it at any time, to a rate in [0, 1).

    The layer has a `seed`. Its constructor sets all rates first, then `seed_generator` to
    `generator_for(seed, *rates)`.

    On JAX a built layer without a generator takes no rate above 0: a compiled step would draw the
    mask that it drew first again and again.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    # There is no `__get__`: Python then reads the value among the layer's own attributes.
    def __set__(self, layer: Any, value: Any) -> None:
        rate = arguments.rate(self._name, value)
        needs_generator = rate and vars(layer).get("seed_generator", self) is None
        if needs_generator and backend.NAME == "jax" and layer.built:
            raise arguments.refusal(
                self._name,
                value,
                "0 where Keras runs on JAX and all rates were 0 when the layer was built; give the "
                "rate to the constructor",
            )
        vars(layer)[self._name] = rate
        if not needs_generator:
            return
        generator = keras.random.SeedGenerator(layer.seed)
        if backend.NAME == "jax":
            layer.seed_generator = generator
        else:
            # Not by assignment: Keras lets a built layer have no more variables. A generator from
            # the start, as an LSTM has it, would shift the variables of models saved before.
            object.__setattr__(layer, "seed_generator", generator)


def generator_for(seed: int | None, *rates: float) -> keras.random.SeedGenerator | None:
    """Returns the generator of masks; None if all rates are zero."""
    if any(rates):
        return keras.random.SeedGenerator(seed)
    return None


def next_seed(seed_generator: keras.random.SeedGenerator) -> Any:
    """Returns what the masks of one call are made from: a seed, int32 `[2]`; torch's generator."""
    return backend.next_seed(seed_generator)


def stream_mask(
    seed: Any, name: str, rate: float, shape: Sequence[Number], dtype: Any
) -> Tensor | None:
    """Returns a mask of inverted dropout: 0 with probability `rate`, else 1 / (1 - rate).

    Args:
        seed: the call's, from `next_seed`; None for a call without dropout, which has no mask.
        name: the name of the random stream. Give each use a name of its own.
        rate: the probability of a zero, in [0, 1); there is no mask at 0.
        shape: the mask's shape.
        dtype: the mask's type.
    """
    if seed is None or not rate:
        return None
    return backend.dropout_mask(seed, name, rate, shape, dtype)
