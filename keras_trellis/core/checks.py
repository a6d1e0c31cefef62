"""Checks of tensors, before a graph runs or as it runs.

A shape or a value that is known and wrong is a ValueError. In a graph that does not know it, it is
a `tf.errors.InvalidArgumentError` with the same message. XLA leaves assertions out: there a wrong
shape fails at a reshape, and a wrong id makes NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from keras_trellis.types import Number

Sizes: TypeAlias = Sequence[Number | None]

_NARROW = (tf.int8, tf.uint8, tf.int16, tf.uint16, tf.int32)


def integers(name: str, value: Any) -> tf.Tensor:
    """Returns `value` as int32, or as int64 where its dtype has larger numbers.

    Raises:
        ValueError: its rows differ in length, or it is not made of integers.
    """
    if isinstance(value, (tf.RaggedTensor, tf.SparseTensor)):
        raise ValueError(
            f"`{name}` must be an array, its rows of one length: `to_tensor()` pads them; `mask`, "
            "or in `fit` a `sample_weight` of 0, says what is padding. "
            f"Received: {name} of type {type(value).__name__}"
        )
    try:
        tensor = tf.convert_to_tensor(value)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"`{name}` must be an array of integers, its rows of one length. "
            f"Received: {name}={value!r:.200}"
        ) from error
    # An empty list becomes a tensor of floats.
    is_empty = tensor.dtype.is_floating and tensor.shape.num_elements() == 0
    if not (tensor.dtype.is_integer or is_empty):
        raise ValueError(
            f"`{name}` must be integers. Received: {name} of dtype {tensor.dtype.name}"
        )
    dtype = tf.int32 if tensor.dtype in _NARROW else tf.int64
    return tf.cast(tensor, dtype)


def sizes(tensor: tf.Tensor) -> list[Any]:
    """Returns the shape of a tensor of known rank: integers where known, else scalar tensors."""
    shape = tf.shape(tensor)
    return [
        shape[axis] if size is None else size for axis, size in enumerate(tensor.shape)
    ]


def with_shape(
    name: str,
    tensor: Any,
    wanted: Sizes,
    expected: str,
) -> tf.Tensor:
    """Returns a tensor once its shape is checked.

    Args:
        name: the argument's.
        tensor: of any shape, of unknown rank too.
        wanted: the size of each axis, as from `sizes`; None: any size.
        expected: what the argument must be.

    Raises:
        ValueError: it is not of this shape.
    """
    tensor = with_known_shape(name, tensor, wanted, expected)
    static = _static(wanted)
    is_static = not any(map(tf.is_tensor, wanted))
    if is_static and tensor.shape.is_subtype_of(static):
        return tensor
    shape = tf.shape(tensor)
    numbers = tf.stack([-1 if size is None else size for size in wanted])
    fits = (shape == numbers) | (numbers < 0)
    holds = (tf.size(shape) == len(static)) & tf.reduce_all(fits)
    message = _message(name, expected)
    with tf.control_dependencies(
        [_assertion(holds, message, shape, "instead of", numbers)]
    ):
        tensor = tf.identity(tensor)
    if None not in wanted:
        tensor = tf.reshape(tensor, numbers)  # XLA refuses other sizes here
    # After `tf.ensure_shape` XLA does not know the sizes any more.
    tensor.set_shape(static)
    return tensor


def with_known_shape(
    name: str,
    tensor: Any,
    wanted: Sizes,
    expected: str,
) -> tf.Tensor:
    """As `with_shape`, but checks only the sizes that are known; so it adds nothing to a graph.

    Raises:
        ValueError: a size that is known is another one.
    """
    tensor = tf.convert_to_tensor(tensor)
    static = _static(wanted)
    if not tensor.shape.is_compatible_with(static):
        instead = "" if set(static) == {None} else f" instead of {_text(static)}"
        raise ValueError(f"{_message(name, expected)} {_text(tensor.shape)}{instead}")
    return tensor


def within(
    name: str,
    ids: tf.Tensor,
    size: int,
    what: str = "the vocabulary",
) -> tf.Tensor:
    """Returns integers once they are checked to be in [0, size).

    Raises:
        ValueError: one is outside.
    """
    least = tf.reduce_min(ids)
    most = tf.reduce_max(ids)
    holds = (least >= 0) & (most < size)
    message = f"`{name}` must be in [0, {size}), {what}. Received: {name} from"
    if tf.executing_eagerly():
        if not holds:
            raise ValueError(f"{message} {least} to {most}")
        return ids
    with tf.control_dependencies([_assertion(holds, message, least, "to", most)]):
        return tf.identity(ids)


def require(
    holds: tf.Tensor,
    message: str,
    value: tf.Tensor,
) -> None:
    """Raises an error with a message and a value unless something holds."""
    if not tf.executing_eagerly():
        _assertion(holds, message, value)
    elif not holds:
        raise ValueError(f"{message} {value}")


def check_real(name: str, dtype: Any, target: str) -> None:
    """Refuses tensors of a dtype that is no real number, complex ones for instance.

    Args:
        name: the argument.
        dtype: the dtype received.
        target: the dtype that real numbers and booleans are cast to.
    """
    received = tf.as_dtype(dtype)
    if not (received.is_floating or received.is_integer or received.is_bool):
        raise ValueError(
            f"`{name}` must be real numbers, which are cast to {target}. "
            f"Received: {name} of dtype {received.name}"
        )


def real(name: str, value: Any, dtype: str) -> tf.Tensor:
    """Returns real numbers, integers or booleans in a dtype of real numbers."""
    value = tf.convert_to_tensor(value)
    check_real(name, value.dtype, dtype)
    return tf.cast(value, dtype)


def _message(name: str, expected: str) -> str:
    return f"`{name}` must be {expected}. Received: {name} of shape"


def _static(wanted: Sizes) -> tf.TensorShape:
    return tf.TensorShape([None if tf.is_tensor(size) else size for size in wanted])


def _assertion(holds: tf.Tensor, *data: Any) -> tf.Operation:
    # `tf.debugging.Assert` would put a tf.cond around it, two functions more in the graph.
    return tf.raw_ops.Assert(condition=holds, data=list(data), summarize=8)


def _text(shape: tf.TensorShape) -> str:
    if shape.rank is None:
        return "unknown"
    return str(tuple(shape))
