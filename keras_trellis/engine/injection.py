"""The injected input: convolved once for all levels that have the same dilation."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from keras_trellis.core.convolution import (
    ALL,
    Kept,
    causal_convolution,
    keep_steps,
    masked,
    multiply,
    pad_left,
    rows,
)
from keras_trellis.core.network import Network, Weights

Addends = dict[int, tf.Tensor]
"""What joins the products of a level: for each dilation the injected input and the bias, [B, T,
blocks * units]; for 0, the levels that the input does not enter, the bias alone, if any."""


def inject(
    network: Network,
    weights: Weights,
    sequences: tf.Tensor,
    past: tf.Tensor,
    kept: Mapping[int, Kept] | None = None,
) -> Addends:
    """Returns what joins the products.

    Args:
        network: the network's shape.
        weights: its weights.
        sequences: [B, T, p].
        past: what stands to its left, [B, input_width, p].
        kept: for each dilation the steps to compute; None for all.
    """
    padded = masked(pad_left(past, sequences), weights.input_mask)
    addends = {}
    for dilation, steps in (kept or dict.fromkeys(network.cycle, ALL)).items():
        injected = causal_convolution(padded, weights.kernel, dilation, network.input_width, steps)
        addends[dilation] = injected if weights.bias is None else injected + weights.bias
    if weights.bias is not None and network.inject_every > 1:
        addends[0] = weights.bias
    return addends


def inject_step(network: Network, weights: Weights, step: tf.Tensor, past: tf.Tensor) -> Addends:
    """As `inject`, for a single step, whose present tap all dilations share."""
    dilations = sorted(set(network.cycle))
    if len(dilations) == 1:
        return inject(network, weights, step, past)
    kernel, taps, width = weights.kernel, network.input_taps - 1, network.input_width
    padded = masked(pad_left(past, step), weights.input_mask)
    present = multiply(padded[:, width:], kernel[taps])
    if weights.bias is not None:
        present += weights.bias
    addends = dict.fromkeys(dilations, present)
    if taps:
        places = [width - tap * each for each in dilations for tap in range(taps, 0, -1)]
        read = tf.gather(padded, places, axis=1)
        read = tf.reshape(read, [-1, len(dilations), taps * kernel.shape[1]])
        products = tf.split(multiply(read, rows(kernel[:taps])), len(dilations), axis=1)
        for dilation, product in zip(dilations, products, strict=True):
            addends[dilation] = product + present
    if network.inject_every > 1:
        nothing = tf.zeros([network.channels], step.dtype)
        addends[0] = nothing if weights.bias is None else weights.bias
    return addends


def addend(network: Network, addends: Addends, phase: int) -> tf.Tensor:
    """Returns what joins the products of a level with level % period = phase."""
    dilation = network.dilation(phase)
    if phase % network.inject_every == 0:
        return addends[dilation]
    if 0 in addends:
        return addends[0]
    return tf.zeros([network.channels], next(iter(addends.values())).dtype)


def keep_addends(addends: Addends, cuts: Mapping[int, Kept]) -> Addends:
    """Keeps of some dilations' addends the steps that are still needed."""
    return addends | {each: keep_steps(addends[each], steps) for each, steps in cuts.items()}
