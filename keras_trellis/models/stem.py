"""A stem: strided causal convolutions that leave a sequence layer fewer steps to read.

Output j of a convolution with stride s reads step j * s and those before it. So a series of T steps
has ceil(T / s) outputs, at least one, and its last (T - 1) % s steps are not read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import keras

from keras_trellis import arguments
from keras_trellis.core import masks
from keras_trellis.core.convolution import time_steps
from keras_trellis.types import Tensor

Stem = Sequence[Sequence[int]]
"""(filters, kernel size, strides) of each convolution, from the first one on."""


def convolutions(stem: Stem, dtype: Any = None) -> list[keras.layers.Conv1D]:
    """Returns the convolutions, each followed by ReLU, not yet built.

    Args:
        stem: their sizes; () for none.
        dtype: their dtype policy.

    Raises:
        ValueError: `stem` is no such sequence.
    """
    made = []
    for number, (filters, kernel_size, strides) in enumerate(sizes(stem), 1):
        convolution = keras.layers.Conv1D(
            filters,
            kernel_size,
            strides=strides,
            padding="causal",
            activation="relu",
            dtype=dtype,
            name=f"stem_{number}",
        )
        made.append(convolution)
    return made


def sizes(stem: Stem) -> tuple[tuple[int, int, int], ...]:
    """Returns `stem` as a tuple of tuples.

    Raises:
        ValueError: it is no sequence of three positive integers each.
    """
    checked = []
    for convolution in stem:
        try:
            filters, kernel_size, strides = convolution
        except (TypeError, ValueError):
            raise ValueError(
                "`stem` must have (filters, kernel_size, strides) of each convolution. "
                f"Received: stem={stem!r}"
            ) from None
        parts = (
            arguments.positive("filters", filters),
            arguments.positive("kernel_size", kernel_size),
            arguments.positive("strides", strides),
        )
        checked.append(parts)
    return tuple(checked)


def build(parts: Iterable[keras.layers.Conv1D], channels: int | None) -> int | None:
    """Creates the variables for sequences `[B, T, channels]`; returns the outputs' channels."""
    for part in parts:
        if not part.built:
            part.build((None, None, channels))
        channels = part.filters
    return channels


def read(
    parts: Sequence[keras.layers.Conv1D], sequences: Tensor, mask: Any = None
) -> tuple[Tensor, Any]:
    """Runs a stem over whole sequences.

    Args:
        parts: its convolutions.
        sequences: `[B, T, p]`.
        mask: bool `[B, T]`, or None. A step that is masked is skipped: those after it move up.

    Returns:
        the outputs `[B, T', filters]`, and their mask.
    """
    if not parts:
        return sequences, mask
    plan = masks.packing(mask)
    outputs = masks.pack(sequences, plan)
    for part in parts:
        outputs = part(outputs)
    if plan is None:
        return outputs, None
    count: Any = plan.count
    for part in parts:
        count = _shortened(part, count)
    return outputs, masks.steps_until(count, time_steps(outputs))


def steps(parts: Iterable[keras.layers.Conv1D], count: int) -> int:
    """Returns how many steps are left of `count`."""
    for part in parts:
        count = _shortened(part, count)
    return count


def stride(parts: Iterable[keras.layers.Conv1D]) -> int:
    """Returns how many steps there are for one that is left."""
    return math.prod(part.strides[0] for part in parts)


def receptive_field(
    parts: Sequence[keras.layers.Conv1D], layer_steps: int | None
) -> int | None:
    """Returns how many steps lie under so many outputs, which end together; None: all."""
    if layer_steps is None:
        return None
    reach = layer_steps
    for part in reversed(parts):
        reach = (reach - 1) * part.strides[0] + part.kernel_size[0]
    return reach


def _shortened(part: keras.layers.Conv1D, count: Any) -> Any:
    return (count + part.strides[0] - 1) // part.strides[0]
