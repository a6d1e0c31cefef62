"""The cache of a model as the inputs and outputs of signatures: flat, named, batch first."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from keras_trellis.core.caches import Layout, named
from keras_trellis.export.checks import Check, Tensors, all_checked
from keras_trellis.formats.checks import MODERATE, moderate
from keras_trellis.formats.limits import MOST_STEPS
from keras_trellis.formats.names import FINGERPRINT, STEPS

Advance: TypeAlias = Callable[[Any], tuple[tf.Tensor, Any]]
"""From a cache to what is computed of it, and to the next cache."""


class CacheFormat:
    """The names and shapes of a cache's tensors in requests and answers.

    The place of a tensor in the cache names it: `cache_inputs`, `cache_levels_0` ...,
    `cache_state_0` ... and `cache_steps` in a `keras_trellis.Cache`; `cache_0`, `cache_1` ... in a
    tuple. A tensor without elements is left out. `cache_steps` counts the tokens read so far; a
    cache that does not count them gets this tensor.

    Args:
        example: a cache of one row, a nest of tensors.
        left_out: the names of tensors that are left out too, and are zeros in a request's cache.
        fingerprint: of the model: `cache_fingerprint` of a cache has it in each row, and one with
            another is refused. None: there is no such tensor.

    Attributes:
        specs: `[None, ...]` of each tensor, by name.
    """

    def __init__(
        self,
        example: Any,
        *,
        left_out: Collection[str] = (),
        fingerprint: int | None = None,
    ) -> None:
        self._example = example
        names = [
            None if name in left_out or not math.prod(value.shape[1:]) else name
            for name, value in named("cache", example).items()
        ]
        self._layout = Layout(example, names)
        self._fingerprint = fingerprint
        self._first = self._named(example, tf.zeros([1], tf.int32))
        self.specs = {
            name: tf.TensorSpec([None, *value.shape[1:]], value.dtype, name)
            for name, value in self._first.items()
        }

    def described(self) -> dict[str, dict[str, Any]]:
        """Returns the dtype, the sizes of a row and the first values of each tensor, for JSON."""
        tensors = {}
        for name, spec in self.specs.items():
            values = self._first[name].numpy()[0]
            tensors[name] = {"dtype": spec.dtype.name, "sizes": list(spec.shape[1:])}
            if values.any():  # a cell may begin with something else
                tensors[name]["first"] = values.tolist()
        return tensors

    @property
    def row_bytes(self) -> int:
        """The bytes of a row's cache."""
        specs = self.specs.values()
        return sum(math.prod(spec.shape[1:]) * spec.dtype.size for spec in specs)

    def flatten(self, cache: Any, steps: tf.Tensor) -> Tensors:
        """Returns the tensors of a cache by name.

        Args:
            cache: the cache.
            steps: `[B]`, the tokens read so far.
        """
        tensors = self._named(cache, steps)
        return {
            name: tf.ensure_shape(tensors[name], spec.shape)
            for name, spec in self.specs.items()
        }

    def checked(self, tensors: Tensors) -> Tensors:
        """Returns the tensors of the cache in a request.

        Raises:
            tf.errors.InvalidArgumentError: as the graph runs: a tensor is not one that an earlier
                call returned.
        """
        checks = [self._check(name, tensors[name]) for name in self.specs]
        return dict(zip(self.specs, all_checked(checks), strict=True))

    def unflatten(self, tensors: Tensors) -> tuple[Any, tf.Tensor]:
        """Returns the cache of its tensors, and the number of tokens read so far."""
        steps = tensors[STEPS]
        return self._layout.pack(tensors, tf.shape(steps)[0]), steps

    def _named(self, cache: Any, steps: tf.Tensor) -> Tensors:
        tensors = self._layout.flatten(cache)
        tensors.setdefault(STEPS, steps)
        if self._fingerprint is not None:
            own = tf.constant(self._fingerprint, tf.int64)
            tensors[FINGERPRINT] = tf.fill(tf.shape(tensors[STEPS]), own)
        return tensors

    def _check(self, name: str, value: tf.Tensor) -> Check:
        if name == STEPS:
            fits = (value >= 0) & (value <= MOST_STEPS)
            return Check(name, value, fits, f"from 0 to {MOST_STEPS}")
        if name == FINGERPRINT:
            expected = f"{self._fingerprint}: the cache must be of this model"
            return Check(name, value, value == self._fingerprint, expected)
        if value.dtype.is_floating:
            return Check(name, value, moderate(value), MODERATE)
        fits = tf.ones_like(value, tf.bool)
        return Check(name, value, fits, "what an earlier call returned")


def unread(advances: Iterable[Advance], cache: Any) -> frozenset[str]:
    """Returns the names of a cache's tensors that nothing is computed of.

    Such are the output that a masked step repeats, where none comes first, and what another tensor
    of the cache holds too. Nothing depends on a tensor if NaN in its place reaches nothing, and
    other numbers change nothing, but for the tensor of its own place in the next cache.

    Args:
        advances: what the cache is given to.
        cache: a cache of one row, after some steps.
    """
    tensors = named("cache", cache)
    plain = [_outcome(advance, cache, tensors) for advance in advances]

    def reaches_nothing(name: str) -> bool:
        changed = set()
        for values in _others(tensors[name]):
            changed_tensors = tensors | {name: values}
            for advance, before in zip(advances, plain, strict=True):
                after = _outcome(advance, cache, changed_tensors)
                for other, expected in before.items():
                    if not np.array_equal(expected, after[other]):
                        changed.add(other)
        return changed <= {name}

    return frozenset(
        name
        for name, value in tensors.items()
        if value.dtype.is_floating and reaches_nothing(name)
    )


def _others(value: tf.Tensor) -> list[tf.Tensor]:
    """Returns what stands in the place of a tensor: NaN, and random numbers of two sizes."""
    noise = np.random.default_rng(0).normal(size=value.shape)
    return [
        tf.constant(each, value.dtype) for each in (noise * np.nan, noise, 30 * noise)
    ]


def _outcome(advance: Advance, nest: Any, tensors: Tensors) -> dict[str, np.ndarray]:
    outputs, after = advance(tf.nest.pack_sequence_as(nest, list(tensors.values())))
    results = {"outputs": outputs, **named("cache", after)}
    return {name: np.asarray(value) for name, value in results.items()}
