"""What a call of a sequence layer returns: its results, their shapes and their masks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from keras_trellis.core import masks
from keras_trellis.types import State, Tensor


def call_results(
    layer: Any,
    outputs: Tensor,
    state: State,
    auxiliary: Tensor | None,
    mask: Tensor | None,
) -> Any:
    """Returns the outputs, or a tuple of all results that the layer returns.

    Args:
        layer: the layer.
        outputs: `[B, T, output_units]`.
        state: each `[B, units]`.
        auxiliary: the auxiliary outputs, `[B, M, T, output_units]`, or None.
        mask: the mask of the outputs, `[B, T]`, or None.
    """
    if mask is not None and layer.zero_output_for_mask:
        outputs = masks.zero_masked(outputs, mask)
        if auxiliary is not None:
            auxiliary = masks.zero_masked(auxiliary, mask[:, None])
    if not layer.return_sequences:  # zeros where there is no step
        (outputs,) = masks.last_valid((outputs,), None)
    results = [outputs]
    if layer.return_state:
        results += state
    if auxiliary is not None:
        results.append(auxiliary)
    if len(results) > 1:
        return tuple(results)
    return outputs


def call_shapes(
    layer: Any, sequences_shape: Sequence[int | None], auxiliary: int, discard: int
) -> tuple[Any, ...]:
    """Returns the shape of the outputs, or a tuple of the shapes of all results.

    Args:
        layer: the layer.
        sequences_shape: `[B, T, p]`.
        auxiliary: the number of auxiliary outputs, M; 0 for none.
        discard: how many of the first outputs are left out.
    """
    batch_size, time, _ = sequences_shape
    steps: list[int | None] = []
    if layer.return_sequences:
        steps = [None if time is None else time - discard]
    shapes = [(batch_size, *steps, layer.output_units)]
    if layer.return_state:
        shapes += [(batch_size, units) for units in layer.state_units]
    if auxiliary:
        shapes.append((batch_size, auxiliary, *steps, layer.output_units))
    if len(shapes) > 1:
        return tuple(shapes)
    return shapes[0]


def call_mask(layer: Any, sequences: Any, mask: Any) -> Any:
    """Returns the mask of the outputs, that of the sequences; None for each state."""
    if isinstance(mask, (list, tuple)):
        mask = mask[0]
    outputs_mask = masks.steps_mask(sequences, mask) if layer.return_sequences else None
    if outputs_mask is not None and layer.go_backwards:
        outputs_mask = keras.ops.flip(outputs_mask, axis=1)
    if not layer.return_state:
        return outputs_mask
    return [outputs_mask] + [None] * len(layer.state_units)
