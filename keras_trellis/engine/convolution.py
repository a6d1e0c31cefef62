"""The injected input in TensorFlow, of whole sequences and of single steps.

And what decides which parts of a training step XLA compiles.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from keras_trellis.core import injection
from keras_trellis.core.convolution import rows
from keras_trellis.core.network import Network, Weights
from keras_trellis.core.schedule import Steps
from keras_trellis.types import Tensor

Addends = dict[int, Tensor]
"""What joins the products of a level, by dilation.

That is the injected input and the bias, `[B, T, blocks * units]`; for 0, the levels that the input
does not enter, the bias alone, if any.
"""

# From so many steps times channels on XLA compiles parts of a training step.
_STEP_UNITS = 16_000


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
    past: Tensor | None,
    needed: Mapping[int, Steps] | None = None,
    *,
    training: bool = False,
) -> Addends:
    """Returns what joins the products; see `core.injection.inject`.

    `training` is what it is for `whole.run`.
    """
    bias = weights.bias
    add: Callable = _biased if training else operator.add
    run: Callable = functools.partial
    if training and pays(sequences, network.units):
        run = compiled
    addends = injection.inject(
        *(network, weights, sequences, past, needed),
        biased=lambda injected: injected if bias is None else add(injected, bias),
        run=run,
    )
    # Elsewhere the injected input has the bias in it.
    if bias is not None and network.inject_every > 1:
        addends[0] = bias
    return addends


def pays(sequences: Tensor, units: int) -> bool:
    """Returns whether to compile what stands between the products of a training step.

    XLA takes a second or two for each new shape. It is used in graphs alone, where the number of
    steps is known, and where sequences and channels are so many that the steps soon repay it.
    """
    steps = sequences.shape[1]
    if steps is None or tf.executing_eagerly():
        return False
    return steps * units >= _STEP_UNITS


# One function each, so that XLA compiles once for all levels.
@functools.lru_cache(maxsize=256)
def compiled(function: Callable, *static: Any) -> Callable:
    """Returns a function of tensors that XLA compiles, with its first arguments."""
    function = functools.partial(function, *static)
    return tf.function(function, jit_compile=True, autograph=False)


def addend(network: Network, addends: Addends, phase: int) -> Tensor:
    """Returns what joins the products of a level with level % period = phase."""
    if phase % network.inject_every == 0:
        return addends[network.dilation(phase)]
    if 0 in addends:
        return addends[0]
    # Zeros that broadcast: a level that adds nothing is still one turn of the same loop.
    injected, *_ = addends.values()
    return tf.zeros([network.channels], injected.dtype)
