"""Layers that read windows of time steps, and poolings over all steps so far."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import keras
from keras import layers, ops

from keras_trellis.core.convolution import (
    at_least_float32,
    last_steps,
    pad_left,
    time_steps,
)
from keras_trellis.core.lines import Line, read
from keras_trellis.models.streamed.rule import NotStreamableError, Rule, Signal
from keras_trellis.types import Number, Tensor


class Window(Rule):
    """A layer whose j-th output reads `size` steps from step j * stride - W on.

    W zeros stand in front of the first step. If size - stride <= W < size, a chunk of m * stride
    steps makes m outputs wherever it stands: the m-th window ends in it, the next one behind it.

    Args:
        layer: the layer.
        inputs: its input.
        size: how many steps a window spans.
        padding: how many zeros the layer puts in front of the first step.
        run: computes the outputs of all whole windows of `[B, n, C]`.
        run_window: computes the output of windows `[B, taps, C]` that hold what is read alone; None
            where a window is read without gaps.
        dilation: the distance between the steps that a window reads.
    """

    def __init__(
        self,
        layer: Any,
        inputs: Signal,
        size: int,
        padding: int,
        run: Callable[[Tensor], Tensor],
        run_window: Callable[[Tensor], Tensor] | None = None,
        dilation: int = 1,
    ) -> None:
        super().__init__(layer)
        _check_layout(layer, inputs)
        (self.stride,) = layer.strides
        self._width = inputs.lead + padding
        self._channels = inputs.shape[2]
        assert self._channels is not None, "a window reads channels of a known number"
        self._run = run
        self._run_window = run_window
        # A layer that cannot run on single taps reads all steps of its window, those between taps
        # too.
        begins = range(0, size, dilation if run_window else 1)
        # From the first step of an output; those within the chunk are zero or negative.
        delays = tuple(self._width - begin for begin in reversed(begins))
        dtype = layer.compute_dtype
        self._line = Line((self._channels,), delays, dtype, self.stride)
        # What makes m outputs of m * stride steps, see the class.
        _check_windows(size, self.stride, self._width)
        if self._width:
            self.past = f"the last {self._width} steps of its input"

    def get_initial_cache(self, batch_size: Number) -> Any:
        """Returns zeros, as a whole pass has in front of the first step."""
        if not self._width:
            return ()
        sizes = [batch_size, self._width, self._channels]
        return {"past": ops.zeros(sizes, self.layer.compute_dtype)}

    def stream(self, cache: Any, mask: Any, inputs: Tensor) -> tuple[Tensor, Any]:
        """Puts the past in front of the chunk; masks mean nothing to these layers."""
        if not self._width:
            return self._run(inputs), cache
        inputs = ops.cast(inputs, self.layer.compute_dtype)
        # With the past in front all windows are whole: nothing is to be padded.
        padded = pad_left(cache["past"], inputs)
        return self._run(padded), {"past": last_steps(padded, self._width)}

    def lines(self) -> dict[str, Line]:
        """Returns that of its input."""
        return {"past": self._line} if self._width else {}

    def advance(
        self, past: Mapping[str, Tensor], inputs: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Runs the windows that end in the chunk."""
        inputs = ops.cast(inputs, self.layer.compute_dtype)
        if not self._width:
            return self._run(inputs), {}
        entries = past["past"]
        pushed = {"past": inputs}
        if entries.shape[1] == self._width:  # without gaps
            return self._run(pad_left(entries, inputs)), pushed
        assert self._run_window is not None
        delays = self._line.delays[::-1]
        taps = read(self._line, entries, inputs, [delays])
        # Each window is a row of its own, of the steps that it reads: no gaps, and so no dilation.
        windows = ops.reshape(taps, [-1, len(delays), self._channels])
        outputs = self._run_window(windows)
        count = inputs.shape[1] // self.stride
        return ops.reshape(outputs, [-1, count, outputs.shape[-1]]), pushed


class Padding(Rule):
    """A `ZeroPadding1D` in front of a window, which keeps what it pads."""

    def __init__(self, layer: Any, inputs: Signal) -> None:
        super().__init__(layer)
        _check_layout(layer, inputs)
        self.lead, after = layer.padding
        if after:
            raise NotStreamableError("pads the end of a sequence, which is not known")

    def stream(self, cache: Any, mask: Any, inputs: Tensor) -> tuple[Tensor, Any]:
        """Returns the chunk."""
        return inputs, cache


def _check_layout(layer: Any, inputs: Signal) -> None:
    if layer.data_format != "channels_last" or len(inputs.shape) != 3:
        raise NotStreamableError(
            "must read `[B, T, channels]`, with data_format='channels_last'"
        )


def _check_windows(size: int, stride: int, width: int) -> None:
    if width < size - stride:
        raise NotStreamableError(
            f"waits at the beginning: its windows of {size} steps overlap by {size - stride}, so "
            "that the first chunk would have fewer outputs. With padding='causal', or a "
            f"ZeroPadding1D(({size - stride}, 0)) in front, it does not"
        )
    if width >= size:
        raise NotStreamableError(
            f"has whole windows of padding: {width} zeros before windows of {size} steps"
        )


def _check_padding(layer: Any, inputs: Signal, size: int) -> None:
    if layer.padding not in ("causal", "valid", "same"):
        raise NotStreamableError(
            f"pads by {layer.padding!r}. padding='causal' is streamed"
        )
    # Where windows do not overlap, whole strides get no padding.
    if layer.padding == "same" and (inputs.lead or size > layer.strides[0]):
        raise NotStreamableError(
            "looks ahead: with padding='same' half of a window is still to come"
        )


def convolution(
    layer: Any, inputs: Signal, rule: Callable[..., Window] = Window
) -> Window:
    """Returns the rule of a convolution."""
    (kernel_size,) = layer.kernel_size
    (dilation,) = layer.dilation_rate
    size = (kernel_size - 1) * dilation + 1
    _check_padding(layer, inputs, size)
    padding = size - 1 if layer.padding == "causal" else 0
    if not isinstance(layer, layers.Conv1D):
        return Window(layer, inputs, size, padding, layer)
    run = functools.partial(_convolve, layer, dilation=dilation)
    run_window = functools.partial(_convolve, layer, dilation=1)
    return rule(layer, inputs, size, padding, run, run_window, dilation)


class Stem(Window):
    """A convolution before the layer of a `TrellisClassifier`, which skips masked steps."""

    def stream(self, cache: Any, mask: Any, inputs: Tensor) -> tuple[Tensor, Any]:
        """Runs the windows that end in the chunk; a mask would change which steps they hold."""
        if mask is not None:
            raise ValueError(
                "`mask` must be None for a classifier with a stem, whose windows reach over "
                "chunks: leave masked steps out of the stream. Received: a mask of time steps"
            )
        return super().stream(cache, mask, inputs)


def stem(layer: layers.Conv1D, inputs: Signal) -> Window:
    """Returns the rule of a convolution before the layer of a classifier."""
    return convolution(layer, inputs, Stem)


def _convolve(layer: layers.Conv1D, padded: Tensor, dilation: int) -> Tensor:
    """Runs a convolution whose padding is there: a causal one would pad each chunk anew."""
    outputs = ops.conv(
        padded,
        ops.cast(layer.kernel, layer.compute_dtype),
        strides=list(layer.strides),
        padding="valid",
        dilation_rate=dilation,
        data_format="channels_last",
    )
    if layer.use_bias:
        outputs = outputs + ops.cast(layer.bias, layer.compute_dtype)
    activated: Tensor = layer.activation(outputs)
    return activated


def pooling(layer: Any, inputs: Signal) -> Window:
    """Returns the rule of a pooling over windows."""
    (size,) = layer.pool_size
    _check_padding(layer, inputs, size)
    return Window(layer, inputs, size, 0, layer)


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
    layers.AveragePooling1D: pooling,
    layers.Conv1D: convolution,
    layers.DepthwiseConv1D: convolution,
    layers.GlobalAveragePooling1D: Mean,
    layers.GlobalMaxPooling1D: Largest,
    layers.MaxPooling1D: pooling,
    layers.SeparableConv1D: convolution,
    layers.ZeroPadding1D: Padding,
}
"""The layers of Keras that read windows, or all steps so far."""
