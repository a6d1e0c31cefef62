"""Checks of tensors, before a graph runs or as it runs.

A shape or a value that is known and wrong is a ValueError. In a graph of TensorFlow that does not
know it, it is a `tf.errors.InvalidArgumentError` with the same message. XLA leaves assertions out:
there a wrong shape fails at a reshape, and a wrong id makes NaN. Under `jit` of JAX, where all
shapes are known, a wrong id makes NaN too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import keras
import numpy as np
from keras import ops

from keras_trellis.backend import current as backend
from keras_trellis.types import Number, Tensor

Sizes: TypeAlias = Sequence[Number | None]

_NARROW = ("int8", "uint8", "int16", "uint16", "int32")


def integers(name: str, value: Any) -> Tensor:
    """Returns `value` as int32, or as int64 where its dtype has larger numbers.

    Raises:
        ValueError: its rows differ in length, or it is not made of integers.
    """
    if backend.is_ragged(value) or backend.is_sparse(value):
        raise ValueError(
            f"`{name}` must be an array, its rows of one length: `to_tensor()` pads them; `mask`, "
            "or in `fit` a `sample_weight` of 0, says what is padding. "
            f"Received: {name} of type {type(value).__name__}"
        )
    try:
        tensor = backend.to_tensor(value)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"`{name}` must be an array of integers, its rows of one length. "
            f"Received: {name}={value!r:.200}"
        ) from error
    dtype = keras.backend.standardize_dtype(tensor.dtype)
    # An empty list becomes a tensor of floats.
    is_empty = _is_floating(dtype) and 0 in tensor.shape
    if not (_is_integer(dtype) or is_empty):
        raise ValueError(
            f"`{name}` must be integers. Received: {name} of dtype {dtype}"
        )
    is_narrow = is_empty or dtype in _NARROW
    return ops.cast(tensor, "int32" if is_narrow else "int64")


def sizes(tensor: Tensor) -> list[Any]:
    """Returns the shape of a tensor of known rank: integers where known, else scalar tensors."""
    return list(ops.shape(tensor))


def with_shape(name: str, tensor: Any, wanted: Sizes, expected: str) -> Tensor:
    """Returns a tensor once its shape is checked.

    Args:
        name: the argument's.
        tensor: of any shape, of unknown rank too.
        wanted: the size of each axis, as from `sizes`; None: any size.
        expected: what the argument must be.

    Raises:
        ValueError: it is not of this shape.
    """
    known = with_known_shape(name, tensor, wanted, expected)
    static = static_sizes(wanted)
    shape = backend.static_shape(known)
    # What is known has been checked above; only the rest costs an operation in the graph.
    is_static = all(size is None or isinstance(size, int) for size in wanted)
    if is_static and shape is not None and None not in _needed(shape, static):
        return known
    return backend.with_dynamic_shape(known, wanted, static, _message(name, expected))


def _needed(shape: Sequence[int | None], static: Sequence[int | None]) -> list[Any]:
    """Returns the sizes of a shape that are asked for."""
    pairs = zip(shape, static, strict=True)
    return [size for size, wanted in pairs if wanted is not None]


def with_known_shape(name: str, tensor: Any, wanted: Sizes, expected: str) -> Tensor:
    """As `with_shape`, but checks only the sizes that are known; so it adds nothing to a graph.

    Raises:
        ValueError: a size that is known is another one.
    """
    known = backend.to_tensor(tensor)
    static = static_sizes(wanted)
    shape = backend.static_shape(known)
    if not compatible(shape, static):
        instead = "" if set(static) == {None} else f" instead of {static}"
        raise ValueError(f"{_message(name, expected)} {shape}{instead}")
    return known


def static_sizes(sizes: Sizes) -> tuple[int | None, ...]:
    """Returns the sizes that are known, None in the place of others."""
    return tuple(size if isinstance(size, int) else None for size in sizes)


def compatible(
    shape: Sequence[int | None] | None, expected: Sequence[int | None]
) -> bool:
    """Returns whether a shape may be the expected one; None stands for what is not known."""
    if shape is None:
        return True
    if len(shape) != len(expected):
        return False
    pairs = zip(shape, expected, strict=True)
    return all(None in pair or pair[0] == pair[1] for pair in pairs)


def within(name: str, ids: Tensor, size: int, what: str = "the vocabulary") -> Tensor:
    """Returns integers once they are checked to be in [0, size).

    Raises:
        ValueError: one is outside.
    """
    if 0 in ids.shape:
        return ids
    # Those of no ids at all hold; without an `initial` Keras refuses them.
    limits = np.iinfo(keras.backend.standardize_dtype(ids.dtype))
    least = ops.min(ids, initial=limits.max)
    most = ops.max(ids, initial=limits.min)
    holds = (least >= 0) & (most < size)
    message = f"`{name}` must be in [0, {size}), {what}. Received: {name} from"
    return backend.verified(ids, holds, message, least, "to", most)


def require(holds: Tensor, message: str, value: Tensor) -> None:
    """Raises an error with a message and a value unless something holds."""
    backend.verified(value, holds, message, value)


def check_real(name: str, dtype: Any, target: str) -> None:
    """Refuses tensors of a dtype that is no real number, complex ones for instance.

    Args:
        name: the argument.
        dtype: the dtype received.
        target: the dtype that real numbers and booleans are cast to.
    """
    received = backend.dtype_name(dtype)
    if not (_is_floating(received) or _is_integer(received) or received == "bool"):
        raise ValueError(
            f"`{name}` must be real numbers, which are cast to {target}. "
            f"Received: {name} of dtype {received}"
        )


def real(name: str, value: Any, dtype: str) -> Tensor:
    """Returns real numbers, integers or booleans in a dtype of real numbers."""
    value = backend.to_tensor(value)
    check_real(name, value.dtype, dtype)
    return ops.cast(value, dtype)


def _is_floating(dtype: str) -> bool:
    return "float" in dtype


def _is_integer(dtype: str) -> bool:
    return dtype.startswith(("int", "uint"))


def _message(name: str, expected: str) -> str:
    return f"`{name}` must be {expected}. Received: {name} of shape"
