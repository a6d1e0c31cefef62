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
    found = tf.shape(tensor)
    return [
        found[axis] if size is None else size for axis, size in enumerate(tensor.shape)
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
    found = tf.shape(tensor)
    numbers = tf.stack([-1 if size is None else size for size in wanted])
    fits = (found == numbers) | (numbers < 0)
    holds = (tf.size(found) == len(static)) & tf.reduce_all(fits)
    message = _message(name, expected)
    with tf.control_dependencies(
        [_assertion(holds, message, found, "instead of", numbers)]
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


def next_tokens(
    name: str,
    targets: tf.Tensor,
    ids_name: str,
    ids: tf.Tensor,
) -> tf.Tensor:
    """Returns targets as integers; their shape must be that of the ids."""
    return with_shape(
        name,
        integers(name, targets),
        sizes(ids),
        f"of the shape of `{ids_name}`, the token after each of them: of a text, text[:, :-1] and "
        "text[:, 1:]",
    )


def begun(name: str, ids: tf.Tensor) -> tf.Tensor:
    """Returns ids `[B, T]`; T must be at least 1."""
    if ids.shape[1] == 0:
        raise ValueError(
            f"`{name}` must have at least one token a row. "
            f"Received: {name} of shape {tuple(ids.shape)}"
        )
    return ids


def where_valid(mask: Any, values: tf.Tensor) -> tf.Tensor:
    """Returns values with zeros at masked positions, so that nothing reads what padding holds."""
    if mask is None:
        return values
    return tf.where(tf.cast(mask, tf.bool), values, 0)


def scored(
    model: Any,
    targets: Any,
    ids: tf.Tensor,
    mask: Any,
    sample_weight: Any,
    names: tuple[str, str] = ("targets", "ids"),
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the targets of a loss, 0 where they are not scored, and their weights.

    Args:
        model: the language model.
        targets: integers `[B, T]`.
        ids: `[B, T]`.
        mask: None, or booleans `[B, T]`.
        sample_weight: None, or weights `[B]` or `[B, T]`.
        names: what to call targets and ids in errors.

    Returns:
        the targets, and their weights in at least float32, both `[B, T]`.

    Raises:
        ValueError: targets or weights have another shape, or a target is outside of the vocabulary.
    """
    dtype = tf.float64 if model.compute_dtype == "float64" else tf.float32
    targets = next_tokens(names[0], targets, names[1], ids)
    weights = _position_weights(sample_weight, ids, names[1], dtype)
    weights = where_valid(mask, weights)
    targets = where_valid(weights != 0, targets)
    return within(names[0], targets, model.vocabulary_size), weights


def _position_weights(
    sample_weight: Any,
    ids: tf.Tensor,
    ids_name: str,
    dtype: tf.DType,
) -> tf.Tensor:
    """Returns how much each position counts, `[B, T]`."""
    rows, steps = sizes(ids)
    ones = tf.ones([rows, steps], dtype)
    if sample_weight is None:
        return ones
    weights = tf.cast(sample_weight, dtype)
    expected = f"of shape [B], or of that of `{ids_name}`, [B, T]"
    if weights.shape.rank in (0, 1):
        weights = with_shape("sample_weight", weights, [rows], expected)
    if weights.shape.rank in (1, None):  # Keras makes one graph for all ranks
        weights = tf.reshape(weights, [rows, -1])
    columns = sizes(weights)[1]
    if tf.is_tensor(columns):
        columns = tf.where(columns == 1, 1, steps)
    elif columns != 1:
        columns = steps
    return ones * with_shape("sample_weight", weights, [rows, columns], expected)


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
