"""The cache of a model as the inputs and outputs of signatures: flat, named, batch first."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from keras_trellis.core.caches import named
from keras_trellis.export.checks import MODERATE, Check, Tensors, all_checked, moderate

_STEPS = "cache_steps"


class CacheFormat:
    """The names and shapes of a cache's tensors in requests and answers.

    The place of a tensor in the cache names it: `cache_inputs`, `cache_levels_0` ...,
    `cache_state_0` ... and `cache_steps` in a `keras_trellis.Cache`; `cache_0`, `cache_1` ... in a
    tuple. A tensor without elements is left out. `cache_steps` counts the tokens read so far; a
    cache that does not count them gets this tensor.

    Args:
        example: a cache of one row, a nest of tensors.

    Attributes:
        specs: `[None, ...]` of each tensor, by name.
    """

    def __init__(self, example: Any) -> None:
        self._example = example
        self.specs = {}
        named = self._with_steps(example, tf.zeros([1], tf.int32))
        for name, value in named.items():
            sizes = value.shape[1:]
            if math.prod(sizes):
                self.specs[name] = tf.TensorSpec([None, *sizes], value.dtype, name)

    @property
    def row_bytes(self) -> int:
        """The bytes of a row's cache."""
        total = 0
        for spec in self.specs.values():
            total += math.prod(spec.shape[1:]) * spec.dtype.size
        return total

    def flatten(self, cache: Any, steps: tf.Tensor) -> Tensors:
        """Returns the tensors of a cache by name.

        Args:
            cache: the cache.
            steps: `[B]`, the tokens read so far.
        """
        named = self._with_steps(cache, steps)
        tensors = {}
        for name, spec in self.specs.items():
            tensors[name] = tf.ensure_shape(named[name], spec.shape)
        return tensors

    def unflatten(self, tensors: Tensors) -> tuple[Any, tf.Tensor]:
        """Returns the cache in a request, and the number of tokens read so far.

        Raises:
            tf.errors.InvalidArgumentError: as the graph runs: a tensor is not one that an earlier
                call returned.
        """
        checks = [_check(name, tensors[name]) for name in self.specs]
        given = dict(zip(self.specs, all_checked(checks), strict=True))
        steps = given[_STEPS]
        batch = tf.shape(steps)[0]
        leaves = []
        for name, example in named("cache", self._example).items():
            if name not in given:
                given[name] = tf.zeros([batch, *example.shape[1:]], example.dtype)
            leaves.append(given[name])
        return tf.nest.pack_sequence_as(self._example, leaves), steps

    def _with_steps(self, cache: Any, steps: tf.Tensor) -> Tensors:
        tensors = named("cache", cache)
        tensors.setdefault(_STEPS, steps)
        return tensors


def _check(name: str, value: tf.Tensor) -> Check:
    if name == _STEPS:
        return Check(name, value, value >= 0, "at least 0")
    if value.dtype.is_floating:
        return Check(name, value, moderate(value), MODERATE)
    return Check(
        name, value, tf.ones_like(value, tf.bool), "what an earlier call returned"
    )
