"""What a stateful layer remembers between batches: a cache in variables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_trellis.backend import current as backend
from keras_trellis.layers.hooks import SequenceHooks
from keras_trellis.types import Tensor


class CacheVariables(backend.Trackable):
    """The variables that hold a stateful layer's cache.

    They are not among the layer's weights, as an LSTM's are not: the weights of a layer trained
    without state fit the same layer with it.
    """

    def create(self, begin: Callable[[], Any]) -> None:
        """Creates the variables, with the values of a cache, a nest of tensors.

        Args:
            begin: makes the cache.
        """
        cache = backend.cache_variables(begin)
        self._cache = cache
        # TensorFlow wraps a nest that is an attribute, and Keras takes that for a single value.
        self._nest: Callable[[], Any] = lambda: cache

    @property
    def variables(self) -> list[Any]:
        """All variables, once there are any."""
        return keras.tree.flatten(getattr(self, "_cache", ()))

    @property
    def cache(self) -> Any:
        """The cache, of variables."""
        return self._nest()

    def read(self) -> Any:
        """Returns the variables' values."""
        return keras.tree.map_structure(backend.read, self._nest())

    def write(self, cache: Any) -> None:
        """Gives the variables the values of `cache`."""
        keras.tree.map_structure(
            lambda variable, value: variable.assign(value), self._nest(), cache
        )


class StateVariable(np.lib.mixins.NDArrayOperatorsMixin):
    """One of the states that a stateful layer goes on from; counts as its value.

    It is not the variable itself: a layer that is given another state has to forget its cache too.

    Args:
        variable: the state, `[B, units]`.
        restart: is called after another value was assigned.
    """

    def __init__(self, variable: Any, restart: Callable[[], None]) -> None:
        self._variable = variable
        self._restart = restart
        self.shape = variable.shape
        self.dtype = variable.dtype

    def assign(self, value: Any) -> None:
        """Lets the layer go on from a value `[B, units]`, as from an `initial_state`."""
        self._variable.assign(ops.cast(value, self.dtype))
        self._restart()

    @property
    def value(self) -> Tensor:
        """The present value, `[B, units]`."""
        return backend.read(self._variable)

    def numpy(self) -> np.ndarray:
        """Returns the present value as an array."""
        return keras.ops.convert_to_numpy(self.value)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.numpy(), dtype)

    def __array_ufunc__(
        self, ufunc: Any, method: str, *inputs: Any, **options: Any
    ) -> Any:
        arrays = [
            value.numpy() if isinstance(value, StateVariable) else value
            for value in inputs
        ]
        return getattr(ufunc, method)(*arrays, **options)

    def __getitem__(self, key: Any) -> Tensor:
        return self.value[key]


backend.register_as_tensor(StateVariable)


class Stateful(SequenceHooks):
    """What a stateful layer has for the user: its states, and a reset.

    A layer puts `CacheVariables` into `_past`.
    """

    built: bool
    stateful: bool
    get_initial_cache: Callable[..., Any]
    _past: CacheVariables

    @property
    def states(self) -> list[StateVariable] | None:
        """The state from which a stateful layer continues, as `keras.layers.LSTM.states`.

        `states[i].assign(value)` makes it continue from another state, as `initial_state` does.
        """
        if not (self.stateful and self.built):
            return None
        variables = self._state_in(self._past.cache)
        return [StateVariable(variable, self._restart) for variable in variables]

    def _restart(self) -> None:
        """Drops the cache, except the state."""
        self._past.write(self.cache_of_state(self._state_in(self._past.read())))

    def reset_state(self) -> None:
        """Lets a stateful layer begin anew, from the cache that `get_initial_cache` returns."""
        if self.states is not None:
            rows = self.states[0].shape[0]
            self._past.write(self.get_initial_cache(rows))

    def reset_states(self) -> None:
        """Does what `reset_state` does: its older name."""
        self.reset_state()
