"""Networks and weights, drawn at random, for the tests of the core and of the engine."""

import functools

import hypothesis.strategies as st
import numpy as np
import tensorflow as tf

from keras_trellis.core import gates
from keras_trellis.core.network import Network, Weights
from tests import nests

assert_close = functools.partial(nests.assert_close, tolerance=1e-10)

P, UNITS = 3, 6
DEPTHS = st.integers(1, 5)
WIDTHS = st.sampled_from([P, P, 20])
"""Channels of the input: few, or so many that all dilations share the products of the taps."""


@st.composite
def networks(draw, depth=DEPTHS):
    """Shapes of networks: everything that changes the equations."""
    kernel_size = draw(st.integers(1, 3))
    cycles = [(1,), (2,), (1, 2), (1, 2, 4), (3, 1, 2), (9,), (1, 20)]
    return Network(
        units=UNITS,
        depth=draw(depth),
        gate=gates.get(draw(st.sampled_from(["lstm", "gru", "tanh"]))),
        kernel_size=kernel_size,
        dilation_rate=draw(st.sampled_from(cycles)),
        inject_every=draw(st.integers(1, 3)),
        input_taps=draw(st.sampled_from([kernel_size, 1])),
        staggered=draw(st.sampled_from([1, 1, 2, 3])),
    )


def tensor(*shape, seed, scale=1.0):
    return tf.constant(scale * np.random.default_rng(seed).normal(size=shape))


def weights_of(network, batch, use_bias=True, drops=True, width=P):
    """Weights in float64, and with `drops` the masks of a call with dropout."""
    channels = network.channels
    bias = tensor(channels, seed=3) if use_bias else None
    input_mask = state_mask = None
    if drops:
        rng = np.random.default_rng(4)
        input_mask = tf.constant(1.25 * (rng.random((batch, 1, width)) < 0.8))
        state_mask = tf.constant(1.25 * (rng.random((batch, 1, UNITS)) < 0.8))
    return Weights(
        tensor(network.input_taps, width, channels, seed=1, scale=0.4),
        tensor(network.kernel_size, UNITS, channels, seed=2, scale=0.4),
        bias,
        input_mask,
        state_mask,
    )


def state_of(network, batch):
    return tuple(
        tensor(batch, UNITS, seed=10 + each) for each in range(network.gate.states)
    )


def draw_mask(batch, steps, seed=5):
    """Padding on the right, holes, a row without steps."""
    rng = np.random.default_rng(seed)
    mask = rng.random((batch, steps)) < 0.6
    if batch > 1:
        mask[0] = np.arange(steps) < rng.integers(0, steps + 1)
    if batch > 2:
        mask[1] = False
    return tf.constant(mask)


def with_gradients(run, weights, *tensors):
    """What `run` returns, and the gradients of a sum that weighs each of its numbers."""
    sources = tf.nest.flatten([weights.kernel, weights.recurrent_kernel, tensors])
    sources = [each for each in [*sources, weights.bias] if each is not None]
    with tf.GradientTape() as tape:
        tape.watch(sources)
        results = run(weights, *tensors)
        total = tf.constant(0.0, tf.float64)
        for seed, each in enumerate(tf.nest.flatten(results)):
            factors = np.random.default_rng(seed).normal(size=each.shape)
            total += tf.reduce_sum(each * factors)
    return results, tape.gradient(total, sources, unconnected_gradients="zero")
