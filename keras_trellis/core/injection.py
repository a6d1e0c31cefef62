"""The injected input: one convolution for each dilation, of which all levels have the kernel.

What a tap gives is the same for every dilation, at another delay. So one product by all taps side
by side is enough, of which each dilation adds up the delayed parts. It pays where the input has
more than a few channels.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence

from keras import ops

from keras_trellis.backend import current as backend
from keras_trellis.core.convolution import (
    causal_convolution,
    delay,
    masked,
    multiply,
    pad_left,
    time_steps,
    zeros,
)
from keras_trellis.core.network import Network, Weights
from keras_trellis.core.schedule import ALL, Steps
from keras_trellis.types import Tensor

Addends = dict[int, Tensor]
"""The injected input of the levels by their dilation, `[B, T, blocks * units]`."""

# Adding up what a tap gives takes as long as so many more channels of the input would.
_ADDED_CHANNELS = 8


def inject(
    network: Network,
    weights: Weights,
    sequences: Tensor,
    past: Tensor | None,
    needed: Mapping[int, Steps] | None = None,
    *,
    biased: Callable[[Tensor], Tensor] = lambda sequences: sequences,
    run: Callable[..., Callable[..., list[Tensor]]] = functools.partial,
) -> Addends:
    """Convolves the input, once for each dilation.

    Args:
        network: the network's shape.
        weights: its weights.
        sequences: the input, `[B, T, p]`.
        past: what stands to its left, `[B, input_width, p]`; None for zeros.
        needed: for each dilation the steps to compute; None for all.
        biased: adds the bias, if anything.
        run: from a function and its first arguments to one of the others.
    """
    needed = needed or dict.fromkeys(network.cycle, ALL)
    width = network.input_width
    if _shares_taps(network, sequences, past, needed):
        products = _tap_products(weights, sequences, past)
        # To the present tap alone: it is the only one without a delay, so no step lacks the bias.
        products[-1] = biased(products[-1])
        before = None if past is None else width
        # A tuple: the engine's `run` remembers what it compiled by these arguments.
        sums = run(_sum_taps, tuple(needed), before)(products)
        return dict(zip(needed, sums, strict=True))
    if past is None:
        past = zeros(sequences, width, sequences.shape[-1])
    padded = masked(pad_left(past, sequences), weights.input_mask)
    return {
        dilation: biased(
            causal_convolution(padded, weights.kernel, dilation, width, steps)
        )
        for dilation, steps in needed.items()
    }


def _shares_taps(
    network: Network,
    sequences: Tensor,
    past: Tensor | None,
    needed: Mapping[int, Steps],
) -> bool:
    """Returns whether one product by all taps takes less than one for each dilation.

    The arguments are those of `inject`. Where single steps are left out it takes more.
    """
    _, steps, channels = sequences.shape
    if any(each is not ALL for each in needed.values()):
        return False
    read = 1.0  # steps, for each step of the input
    if past is not None:
        is_known = isinstance(steps, int) and steps > 0  # JAX exports with symbols
        read = 1 + network.input_width / steps if is_known else math.inf
    # A product for each dilation costs their number * channels. The shared one costs read *
    # channels, and its sums their number * added.
    added = _ADDED_CHANNELS if network.input_taps > 1 else 0
    return bool(len(needed) * (channels - added) > read * channels)


def _tap_products(
    weights: Weights, sequences: Tensor, past: Tensor | None
) -> list[Tensor]:
    """Returns the input times each tap of the kernel, the oldest first.

    The arguments are those of `inject`.

    Returns:
        each `[B, W + T, blocks * units]`, of the past too if there is one.
    """
    taps, channels, after = weights.kernel.shape
    # Taps side by side among the outputs. For the hidden product they stand among the inputs.
    kernel = ops.transpose(weights.kernel, [1, 0, 2])
    kernel = ops.reshape(kernel, [channels, taps * after])
    read = sequences if past is None else pad_left(past, sequences)
    products = multiply(masked(read, weights.input_mask), kernel)
    return backend.split(products, [after] * taps)


def _sum_taps(
    dilations: Sequence[int], width: int | None, products: Sequence[Tensor]
) -> list[Tensor]:
    """Returns the causal convolution of each dilation, `[B, T, blocks * units]`.

    Args:
        dilations: the dilation of each.
        width: W; None where `products` have no past.
        products: what `_tap_products` returns.
    """
    oldest = len(products) - 1
    sums = []
    for dilation in dilations:
        lags = [(oldest - tap) * dilation for tap in range(oldest + 1)]
        delayed = map(functools.partial(_delay, width), products, lags)
        sums.append(functools.reduce(operator.add, delayed))
    return sums


def _delay(width: int | None, product: Tensor, lag: int) -> Tensor:
    if width is not None:
        return delay(product, width, lag)
    # Zeros before the products are the products of zeros before the input.
    padded = ops.pad(product, [[0, 0], [lag, 0], [0, 0]])
    return padded[:, : time_steps(product)]
