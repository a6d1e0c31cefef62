"""Global pooling: an answer over all steps so far."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
from keras import layers, ops

from keras_trellis.core.convolution import at_least_float32, time_steps
from keras_trellis.models.streamed.rule import NotStreamableError, Rule, Signal
from keras_trellis.types import Number, Tensor


class Pooled(Rule):
    """What all poolings over all steps share; they count the steps."""

    def __init__(self, layer: Any, inputs: Signal) -> None:
        super().__init__(layer)
        if layer.data_format != "channels_last":
            raise NotStreamableError("must have data_format='channels_last'")
        self._channels = inputs.shape[2]

    def output_strides(self, stride: int, count: int) -> list[int | None]:
        """Returns that there is no time axis."""
        return [None]

    def get_initial_cache(self, batch_size: Number) -> dict[str, Tensor]:
        """Returns zeros."""
        # In float32 at least: in half precision the sum over a long stream would soon stop growing.
        pooled = ops.zeros([batch_size, self._channels], self.layer.compute_dtype)
        return {
            "pooled": at_least_float32(pooled),
            "steps": ops.zeros([batch_size], "int32"),
        }

    def answer(self, pooled: Tensor) -> Tensor:
        """Returns `[B, C]` in the form of the layer's outputs."""
        pooled = ops.cast(pooled, self.layer.compute_dtype)
        if self.layer.keepdims:
            pooled = ops.expand_dims(pooled, 1)
        return pooled


class Mean(Pooled):
    """`GlobalAveragePooling1D`: a mean over the valid steps."""

    past = "the sum and the number of the valid steps"

    def stream(
        self, cache: dict[str, Tensor], mask: Any, inputs: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Adds the valid steps."""
        count = time_steps(inputs)
        if mask is not None:
            mask = ops.cast(mask, "bool")
            valid = ops.expand_dims(mask, -1)
            # By `where`: a product with zero would keep the NaN of a masked step.
            inputs = ops.where(valid, inputs, 0)
            count = ops.sum(ops.cast(mask, "int32"), axis=1)
        before = cache["pooled"]
        inputs = ops.cast(inputs, before.dtype)
        total = before + ops.sum(inputs, axis=1)
        steps = cache["steps"] + ops.cast(count, "int32")
        divisor = ops.expand_dims(steps, -1)
        mean = total / ops.cast(divisor, before.dtype)
        return self.answer(mean), {"pooled": total, "steps": steps}


class Largest(Pooled):
    """`GlobalMaxPooling1D`, to which masks mean nothing."""

    past = "the largest numbers so far"

    def stream(
        self, cache: dict[str, Tensor], mask: Any, inputs: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Compares with the steps of the chunk."""
        before = cache["pooled"]
        largest = ops.max(inputs, axis=1)
        largest = ops.cast(largest, before.dtype)
        # The zeros of a first cache are no numbers of the stream, whose own may be negative.
        begun = ops.expand_dims(cache["steps"] > 0, -1)
        before = ops.where(begun, before, largest)
        largest = ops.maximum(before, largest)
        count = ops.cast(time_steps(inputs), "int32")
        steps = cache["steps"] + count
        return self.answer(largest), {"pooled": largest, "steps": steps}


LAYERS: dict[type[keras.layers.Layer], Callable[..., Rule]] = {
    layers.GlobalAveragePooling1D: Mean,
    layers.GlobalMaxPooling1D: Largest,
}
"""The poolings over all steps."""
