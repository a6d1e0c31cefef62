"""What a trellis network keeps of its past: the parts of a cache, and a stateful layer's memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_trellis.core.masks import Packing
from keras_trellis.types import Cache


class Memory(tf.Module):
    """The variables that hold a stateful layer's cache.

    They are not among the layer's weights, as an LSTM's are not: the weights of a layer trained
    without state fit the same layer with it.
    """

    def create(self, cache: Cache) -> None:
        """Creates the variables, with the values of `cache`."""
        self._cache = tf.nest.map_structure(self._variable, cache)

    @staticmethod
    def _variable(value: tf.Tensor) -> tf.Variable:
        # Under a strategy every replica goes on with its own rows.
        return tf.Variable(
            value,
            trainable=False,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )

    @property
    def states(self) -> tuple[tf.Variable, ...]:
        """The variables of the cache's state."""
        return self._cache.state

    def read(self) -> Cache:
        """Returns the variables' values."""
        return tf.nest.map_structure(lambda variable: variable.read_value(), self._cache)

    def write(self, cache: Cache) -> None:
        """Gives the variables the values of `cache`."""
        tf.nest.map_structure(lambda variable, value: variable.assign(value), self._cache, cache)

    def reset(self) -> None:
        """Sets all variables to zero, the cache of sequences that have not begun."""
        tf.nest.map_structure(
            lambda variable: variable.assign(tf.zeros_like(variable)), self._cache
        )


class StateVariable(np.lib.mixins.NDArrayOperatorsMixin):
    """One of the states that a stateful layer goes on from; counts as its value.

    Not the variable itself: a layer that is given another state has to forget its cache as well.

    Args:
        variable: the state, [B, units].
        restart: what to call when another value was assigned to it.
    """

    def __init__(self, variable: tf.Variable, restart: Callable[[], None]) -> None:
        self._variable, self._restart = variable, restart
        self.shape, self.dtype = variable.shape, variable.dtype

    def assign(self, value: Any) -> None:
        """Lets the layer go on from a value [B, units], as from an `initial_state`."""
        self._variable.assign(tf.cast(value, self.dtype))
        self._restart()

    @property
    def value(self) -> tf.Tensor:
        """The present value, [B, units]."""
        return self._variable.read_value()

    def numpy(self) -> np.ndarray:
        """Returns the present value as an array."""
        return self.value.numpy()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.numpy(), dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        arrays = [each.numpy() if isinstance(each, StateVariable) else each for each in inputs]
        return getattr(ufunc, method)(*arrays, **options)

    def __getitem__(self, key: Any) -> tf.Tensor:
        return self.value[key]

    def __repr__(self) -> str:
        return f"StateVariable({self.value!r})"


tf.register_tensor_conversion_function(
    StateVariable,
    lambda state, dtype=None, name=None, as_ref=False: tf.convert_to_tensor(state.value, dtype),
)


def keep(padded: tf.Tensor, width: int, plan: Packing | None) -> tf.Tensor:
    """Returns the last `width` valid steps of the past and the chunk together.

    Args:
        padded: [B, width + T, C], the past and the chunk, whose valid steps stand first.
        width: the length of the past.
        plan: the chunk's packing; None where all its steps are valid.

    Returns:
        [B, width, C].
    """
    if plan is None:
        steps = tf.shape(padded)[1] if padded.shape[1] is None else padded.shape[1]
        return padded[:, steps - width :]
    places = tf.expand_dims(plan.count, 1) + tf.range(width)
    return tf.gather(padded, places, axis=1, batch_dims=1)


def split_levels(levels: tf.Tensor, sizes: Sequence[tuple[int, int]]) -> list[tf.Tensor]:
    """Splits what the levels keep of one state by their place in the dilation cycle.

    Args:
        levels: [B, S, units], an entry of `Cache.levels`.
        sizes: for each place the number of its levels and the steps that each keeps.

    Returns:
        For each place [B, levels, steps, units].
    """
    parts = tf.split(levels, [count * width for count, width in sizes], axis=1)
    return [
        tf.reshape(part, [tf.shape(part)[0], count, width, part.shape[-1]])
        for part, (count, width) in zip(parts, sizes, strict=True)
    ]


def join_levels(parts: Sequence[tf.Tensor]) -> tf.Tensor:
    """Joins what `split_levels` splits: [B, levels, steps, units] a place to [B, S, units]."""
    joined = [tf.reshape(part, [tf.shape(part)[0], -1, part.shape[-1]]) for part in parts]
    return tf.concat(joined, axis=1)


def ends(sizes: Sequence[tuple[int, int]], dilations: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yields for each level, in their order, where its steps end in `Cache.levels`, its dilation.

    Args:
        sizes: as for `split_levels`.
        dilations: for each place the dilation of its levels.
    """
    end = 0
    for (count, width), dilation in zip(sizes, dilations, strict=True):
        for _ in range(count):
            end += width
            yield end, dilation


def push(
    levels: tf.Tensor,
    steps: tf.Tensor,
    sizes: Sequence[tuple[int, int]],
    plan: Packing | None,
) -> tf.Tensor:
    """Puts one more step at the end of what each level keeps, and drops the oldest.

    Args:
        levels: [B, S, units], an entry of `Cache.levels`.
        steps: [B, L, units], a step for each level, in the same order.
        sizes: as for `split_levels`.
        plan: the packing of the step; None where it is valid.

    Returns:
        [B, S, units].
    """
    widths = [width for count, width in sizes for _ in range(count)]
    total, places, begin = sum(widths), [], 0
    for level, width in enumerate(widths):
        places += [*range(begin + 1, begin + width), total + level]
        begin += width
    pushed = tf.gather(tf.concat([levels, steps], axis=1), places, axis=1)
    return pushed if plan is None else tf.where(tf.expand_dims(plan.mask, -1), pushed, levels)
