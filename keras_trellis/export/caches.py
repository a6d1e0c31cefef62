"""The cache of a model as the inputs and outputs of signatures: flat, named, batch first."""

from __future__ import annotations

import math
from collections.abc import Mapping

import tensorflow as tf

from keras_trellis.export.checks import MODERATE, Check, all_checked, moderate
from keras_trellis.types import Cache

__all__ = ["CacheFormat"]

_STEPS = "cache_steps"


class CacheFormat:
    """What the tensors of a cache are called on the wire, and their shapes.

    `cache_inputs`, `cache_levels_0` ..., `cache_state_0` ... (one for each state of the gate) and
    `cache_steps`, as the attributes of `keras_trellis.Cache`; one without elements is left out.

    Args:
        example: a cache of one row.

    Attributes:
        specs: `[None, ...]` of each tensor, by name.
    """

    def __init__(self, example: Cache) -> None:
        self._example = example
        self.specs = {
            name: tf.TensorSpec([None, *value.shape[1:]], value.dtype, name)
            for name, value in _named(example).items()
            if math.prod(value.shape[1:])
        }

    @property
    def row_bytes(self) -> int:
        """How many bytes a row's cache has."""
        return sum(math.prod(s.shape[1:]) * s.dtype.size for s in self.specs.values())

    def flatten(self, cache: Cache) -> dict[str, tf.Tensor]:
        """Returns a cache's tensors by name."""
        named = _named(cache)
        return {name: tf.ensure_shape(named[name], spec.shape) for name, spec in self.specs.items()}

    def unflatten(self, tensors: Mapping[str, tf.Tensor]) -> Cache:
        """Returns the cache that a request brought.

        Raises:
            tf.errors.InvalidArgumentError: as the graph runs: a tensor is not one that an earlier
                call returned.
        """
        batch = tf.shape(tensors[_STEPS])[0]
        values = all_checked([_check(name, tensors[name]) for name in self.specs])
        given = dict(zip(self.specs, values, strict=True))
        leaves = [
            given[name] if name in given else tf.zeros([batch, *empty.shape[1:]], empty.dtype)
            for name, empty in _named(self._example).items()
        ]
        return tf.nest.pack_sequence_as(self._example, leaves)


def _named(cache: Cache) -> dict[str, tf.Tensor]:
    """Returns the tensors of a cache by name, in its own order."""
    named = {"cache_inputs": cache.inputs}
    named |= {f"cache_levels_{index}": each for index, each in enumerate(cache.levels)}
    named |= {f"cache_state_{index}": each for index, each in enumerate(cache.state)}
    return {**named, _STEPS: cache.steps}


def _check(name: str, value: tf.Tensor) -> Check:
    if value.dtype.is_integer:
        return Check(name, value, value >= 0, "at least 0")
    return Check(name, value, moderate(value), MODERATE)
