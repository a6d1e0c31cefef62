"""What loops over time read and write: arrays with an element a step, or a block of steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from keras_trellis.types import Number


def loop(turns: Number, turn: Callable[..., tuple], start: tuple) -> tuple:
    """Returns what a `tf.while_loop` leaves; its first value counts the turns."""
    return tf.while_loop(
        lambda time, *_: time < turns,
        turn,
        start,
        maximum_iterations=turns,  # without it XLA cannot differentiate the loop
        parallel_iterations=1,
    )


def steps(sequences: Sequence[tf.Tensor]) -> Number:
    """Returns the length of sequences `[T, ...]`, as an integer if it is known."""
    known = sequences[0].shape[0]
    if known is None:
        return tf.shape(sequences[0])[0]
    return known


def array(size: Number, shape: Any, dtype: tf.DType) -> tf.TensorArray:
    """Returns an empty array of elements of a shape."""
    return tf.TensorArray(dtype, size=size, element_shape=shape)


def reader(sequence: tf.Tensor) -> tf.TensorArray:
    """Returns an array of what stands along the first dimension."""
    empty = array(steps([sequence]), sequence.shape[1:], sequence.dtype)
    return empty.unstack(sequence)


def read(arrays: Any, place: tf.Tensor) -> Any:
    """Returns what the arrays of a nest hold at a place."""
    # A copy each: a tape may otherwise watch an earlier capture.
    return tf.nest.map_structure(lambda array: tf.identity(array.read(place)), arrays)


def write(arrays: list, place: tf.Tensor, values: list[tf.Tensor]) -> list:
    """Returns arrays with a value each at a place."""
    pairs = zip(arrays, values, strict=True)
    return [array.write(place, value) for array, value in pairs]


def chosen(values: Sequence[tf.Tensor], choice: list[bool]) -> list[tf.Tensor]:
    """Returns the values that are chosen."""
    pairs = zip(values, choice, strict=True)
    return [value for value, is_chosen in pairs if is_chosen]
