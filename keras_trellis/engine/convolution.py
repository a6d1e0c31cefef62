"""Convolutions as `keras_trellis.core.convolution` has them, in TensorFlow's fastest form.

Among them that of the injected input: once for all levels that have the same dilation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from keras_trellis.backend.tensorflow import multiply
from keras_trellis.core import convolution
from keras_trellis.core.convolution import masked, pad_left, rows, time_steps
from keras_trellis.core.network import Network, Weights
from keras_trellis.core.schedule import ALL, Steps
from keras_trellis.types import Tensor

Addends = dict[int, Tensor]
"""What joins the products of a level, by dilation.

That is the injected input and the bias, `[B, T, blocks * units]`; for 0, the levels that the input
does not enter, the bias alone, if any.
"""


def delay(padded: Tensor, width: int, steps: int) -> Tensor:
    """Returns a sequence delayed by some steps, as `core.convolution.delay`."""
    # The gradient of a split takes a fraction of the time of that of an index. ONNX Runtime has no
    # split of size -1 where T is unknown.
    length = time_steps(padded) - width
    sizes = [width - steps, length, steps]
    _, delayed, _ = tf.split(padded, sizes, axis=1)
    return delayed


def take_steps(sequences: Tensor, needed: Steps) -> Tensor:
    """Returns the steps of `[B, T, C]` that are needed, as `core.convolution.take_steps`."""
    if needed is ALL:
        return sequences
    begin, every = needed
    if every > 1:
        return sequences[:, begin::every]
    # As in `delay`.
    sizes = [begin, time_steps(sequences) - begin]
    _, rest = tf.split(sequences, sizes, axis=1)
    return rest


def join_taps(
    padded: Tensor, width: int, taps: int, dilation: int, needed: Steps = ALL
) -> Tensor:
    """As `core.convolution.join_taps`, at the T' steps needed: `[B, T', k * C]`."""

    def delay_needed(padded: Tensor, width: int, steps: int) -> Tensor:
        return take_steps(delay(padded, width, steps), needed)

    return convolution.join_taps(padded, width, taps, dilation, delay=delay_needed)


def strided_convolution(
    padded: Tensor, kernel: Tensor, dilation: int, width: int, needed: Steps
) -> Tensor:
    """As `core.convolution.causal_convolution`, at the T' steps needed: `[B, T', C']`."""
    taps = join_taps(padded, width, kernel.shape[0], dilation, needed)
    return multiply(taps, rows(kernel))


@tf.custom_gradient
def _biased(sequences: Tensor, bias: Tensor) -> Any:
    """Returns the sum, whose gradient is by `sum_steps`."""

    def gradient(upstream: Tensor) -> tuple[Tensor, Tensor]:
        return upstream, sum_steps(upstream)

    return sequences + bias, gradient


def sum_steps(sequences: Tensor) -> Tensor:
    """Returns `[B, T, C]` summed over all steps of all rows, `[C]`.

    By a product: in a compiled training step XLA's own sum took seven times as long.
    """
    flat = rows(sequences)
    ones = tf.ones_like(flat[:, :1])
    return tf.matmul(ones, flat, transpose_a=True)[0]


def inject(
    network: Network,
    weights: Weights,
    sequences: Tensor,
    past: Tensor,
    needed: Mapping[int, Steps] | None = None,
    *,
    training: bool = False,
) -> Addends:
    """Returns what joins the products.

    Args:
        network: the network's shape.
        weights: its weights.
        sequences: `[B, T, p]`.
        past: what stands to its left, `[B, input_width, p]`.
        needed: for each dilation the steps to compute; None for all.
        training: as for `whole.run`.
    """
    padded = pad_left(past, sequences)
    padded = masked(padded, weights.input_mask)
    kernel = weights.kernel
    bias = weights.bias
    width = network.input_width
    if needed is None:
        needed = dict.fromkeys(network.cycle, ALL)
    addends = {}
    for dilation, steps in needed.items():
        injected = strided_convolution(padded, kernel, dilation, width, steps)
        if bias is not None:
            injected = _biased(injected, bias) if training else injected + bias
        addends[dilation] = injected
    return addends | _without_input(network, bias)


def _without_input(network: Network, bias: Tensor | None) -> Addends:
    if bias is None or network.inject_every == 1:
        return {}
    return {0: bias}


def inject_step(
    network: Network, weights: Weights, step: Tensor, past: Tensor
) -> Addends:
    """As `inject`, for a single step, whose present tap all dilations share."""
    dilations = sorted(set(network.cycle))
    taps = network.input_taps - 1
    if len(dilations) == 1 or not taps:
        return inject(network, weights, step, past)
    kernel = weights.kernel
    bias = weights.bias
    step = masked(step, weights.input_mask)
    present = multiply(step, kernel[taps])
    if bias is not None:
        present += bias
    past = masked(past, weights.input_mask)
    ends = [network.input_width] * len(dilations)
    products = past_products(past, kernel[:taps], ends, dilations)
    products += present
    by_dilation = tf.split(products, len(dilations), axis=1)
    addends = dict(zip(dilations, by_dilation, strict=True))
    return addends | _without_input(network, bias)


def past_products(
    past: Tensor, kernel: Tensor, ends: Sequence[int], dilations: Sequence[int]
) -> Tensor:
    """Returns the products of the past taps of several convolutions, for a single step.

    Args:
        past: `[B, W, C]`.
        kernel: `[taps, C, C']`, the past taps alone.
        ends: for each convolution where its steps end in `past`.
        dilations: the dilation of each convolution.

    Returns:
        `[B, convolutions, C']`.
    """
    taps, channels, _ = kernel.shape
    places: list[int] = []
    for end, dilation in zip(ends, dilations, strict=True):
        oldest = end - taps * dilation
        places += range(oldest, end, dilation)
    read = tf.gather(past, places, axis=1)
    shape = [-1, len(ends), taps * channels]
    read = tf.reshape(read, shape)
    return multiply(read, rows(kernel))


def addend(network: Network, addends: Addends, phase: int) -> Tensor:
    """Returns what joins the products of a level with level % period = phase."""
    if phase % network.inject_every == 0:
        return addends[network.dilation(phase)]
    if 0 in addends:
        return addends[0]
    injected, *_ = addends.values()
    return tf.zeros([network.channels], injected.dtype)
