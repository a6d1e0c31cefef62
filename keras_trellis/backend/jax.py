"""JAX: masks by draws of Keras's generator, checks of values that are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.experimental.sparse
import keras
import numpy as np
from jax import numpy as jnp


def is_ragged(value: Any) -> bool:
    """Returns False: JAX has no ragged tensors."""
    return False


def is_sparse(value: Any) -> bool:
    """Returns whether a value is a sparse array of JAX."""
    return isinstance(value, jax.experimental.sparse.JAXSparse)


def to_tensor(value: Any) -> jax.Array:
    """Returns a value as an array, of its own dtype if JAX has it.

    Raises:
        TypeError, ValueError: it is no array, or holds integers that JAX would cut off.
    """
    if isinstance(value, jax.Array):
        return value
    array = np.asarray(value)
    tensor = jnp.asarray(array)
    if array.dtype.kind in "iu" and not np.array_equal(array, tensor):
        raise ValueError(
            f"integers beyond {tensor.dtype}, the widest without JAX_ENABLE_X64=1"
        )
    return tensor


def dtype_name(dtype: Any) -> str:
    """Returns the name of any dtype, such as "float32"."""
    return jnp.dtype(dtype).name


def static_shape(tensor: jax.Array) -> tuple[int, ...]:
    """Returns the shape."""
    return tuple(tensor.shape)


def with_dynamic_shape(
    tensor: jax.Array, wanted: Any, static: Any, message: str
) -> jax.Array:
    """Returns the tensor: all sizes are known, and are checked before this."""
    return tensor


def static_value(number: Any) -> int:
    """Returns an integer."""
    return int(number)


def with_static_shape(tensor: jax.Array, other: jax.Array) -> jax.Array:
    """Returns the tensor: all shapes are known."""
    return tensor


class Trackable:
    """What an object with variables of its own derives from."""


def cache_variables(begin: Callable[[], Any]) -> Any:
    """Returns variables, not among a layer's weights, with the values of a nest of tensors."""
    return keras.tree.map_structure(
        lambda value: keras.Variable(
            value, dtype=dtype_name(value.dtype), trainable=False
        ),
        begin(),
    )


def read(variable: keras.Variable) -> jax.Array:
    """Returns the value of a variable of `cache_variables`."""
    return variable.value


def value(variable: keras.Variable) -> jax.Array:
    """Returns the value of one of Keras's variables."""
    return variable.value


def register_as_tensor(kind: type) -> None:
    """Does nothing: NumPy's protocol is enough."""


def jitted(function: Callable, static: Sequence[str]) -> Callable:
    """Returns a function that is compiled once for each shape and each static value.

    Called eagerly, a loop of JAX is compiled again each time, which takes seconds.

    Args:
        function: a function of arrays alone: the value of a variable that it read would stay.
        static: the names of the arguments that are no arrays, and can be hashed.
    """
    return jax.jit(function, static_argnames=static)


def tanh(tensor: jax.Array) -> jax.Array:
    """Returns the hyperbolic tangent; Keras's takes that of float64 in float32."""
    return jnp.tanh(tensor)


def gather_steps(sequences: jax.Array, places: jax.Array) -> jax.Array:
    """Returns the steps of `[B, T, ...]` at places `[B, n]` of each row: `[B, n, ...]`."""
    channels = sequences.ndim - places.ndim
    places = places.reshape(places.shape + (1,) * channels)
    return jnp.take_along_axis(sequences, places, axis=1)


def split(tensor: jax.Array, sizes: Sequence[int], axis: int = -1) -> list[jax.Array]:
    """Returns the parts of a tensor that have these sizes along an axis."""
    return jnp.split(tensor, np.cumsum(sizes)[:-1], axis)


def verified(tensor: jax.Array, holds: Any, message: str, *data: Any) -> Any:
    """Returns a tensor once something holds.

    Under `jit` the values are not there to be checked: real numbers become NaN, and integers the
    largest one, which is no id of a word, so that what is looked up with it is NaN.

    Args:
        tensor: what is returned.
        holds: a bool scalar.
        message: of the error, which `data` ends.
        *data: arrays and strings.

    Raises:
        ValueError: it is known not to hold.
    """
    if isinstance(holds, jax.core.Tracer):
        if jnp.issubdtype(tensor.dtype, jnp.integer):
            return jnp.where(holds, tensor, jnp.iinfo(tensor.dtype).max)
        return jnp.where(holds, tensor, jnp.nan)
    if not holds:
        raise ValueError(" ".join([message, *map(str, data)]))
    return tensor


def next_seed(
    seed_generator: keras.random.SeedGenerator,
) -> keras.random.SeedGenerator:
    """Returns the generator, of which each mask is a draw."""
    return seed_generator


def dropout_mask(
    seed: keras.random.SeedGenerator,
    name: str,
    rate: float,
    shape: Sequence[int],
    dtype: Any,
) -> jax.Array:
    """Returns a mask of inverted dropout: 0 with probability `rate`, else 1 / (1 - rate).

    Args:
        seed: the generator, which is advanced.
        name: the name of the random stream, which decides nothing here.
        rate: the probability of a zero, in [0, 1).
        shape: the mask's shape.
        dtype: the mask's type.
    """
    is_retained = keras.random.uniform(shape, seed=seed) >= rate
    return is_retained.astype(dtype) / jnp.asarray(1 - rate, dtype)
