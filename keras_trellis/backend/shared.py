"""What JAX and torch have in common: sizes are known, and Keras's own variables hold a cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
from keras import ops


def is_ragged(value: Any) -> bool:
    """Returns False: only TensorFlow has ragged tensors."""
    return False


def dtype_name(dtype: Any) -> str:
    """Returns the name of any dtype, such as "float32"."""
    return keras.backend.standardize_dtype(dtype)


def static_shape(tensor: Any) -> tuple[int, ...]:
    """Returns the shape."""
    return tuple(tensor.shape)


def with_dynamic_shape(tensor: Any, wanted: Any, static: Any, message: str) -> Any:
    """Returns the tensor: all sizes are known, and are checked before this."""
    return tensor


def static_value(number: Any) -> int:
    """Returns an integer."""
    return int(number)


def with_static_shape(tensor: Any, other: Any) -> Any:
    """Returns the tensor: all shapes are known."""
    return tensor


def with_sizes(tensor: Any, sizes: Any) -> Any:
    """Returns the tensor: all sizes are known."""
    return tensor


def random_words() -> Any:
    """Returns two random words, int32 `[2]`."""
    return keras.random.randint([2], 0, 2**31 - 1)


class Trackable:
    """What an object with variables of its own derives from."""


def cache_variables(begin: Callable[[], Any]) -> Any:
    """Returns variables, not among a layer's weights, with the values of a nest of tensors."""

    def variable(value: Any) -> keras.Variable:
        dtype = dtype_name(value.dtype)
        return keras.Variable(value, dtype=dtype, trainable=False)

    return keras.tree.map_structure(variable, begin())


def value(variable: keras.Variable) -> Any:
    """Returns the value of one of Keras's variables."""
    return variable.value


def register_as_tensor(kind: type) -> None:
    """Does nothing: NumPy's protocol is enough."""


def matmul(
    one: Any, other: Any, transpose_one: bool = False, transpose_other: bool = False
) -> Any:
    """Returns the product of two matrices, each transposed first if it says so."""
    if transpose_one:
        one = one.T
    if transpose_other:
        other = other.T
    return one @ other


def rows(sequences: Any) -> Any:
    """Returns `[B, T, C]` as `[B * T, C]`."""
    return sequences.reshape(-1, sequences.shape[-1])


def multiply(sequences: Any, matrix: Any) -> Any:
    """Returns `[B, T, C]` times `[C, C']`, `[B, T, C']`."""
    # On torch `ops.matmul` multiplies float64 in float32.
    return sequences @ matrix


def scan(
    step: Callable[[Any, Any], tuple[Any, Any]], state: tuple, inputs: tuple
) -> tuple[tuple, Any]:
    """Runs a step over the first axis of inputs; returns the last state and all outputs."""
    return ops.scan(step, state, inputs)


def num_replicas() -> int:
    """Returns 1: a model is one program, over however many devices."""
    return 1


def replica_sum(value: Any) -> Any:
    """Returns the value, which is that of all devices."""
    return value
