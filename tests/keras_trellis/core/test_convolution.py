"""The causal convolution against a loop over time and taps."""

import numpy as np
import pytest
import tensorflow as tf

from keras_trellis.core import convolution


def draw(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


@pytest.mark.parametrize("taps", [1, 2, 3])
@pytest.mark.parametrize("dilation", [1, 2, 5])
@pytest.mark.parametrize("spare", [0, 3])
def test_causal_convolution(taps, dilation, spare):
    steps, width = 4, (taps - 1) * dilation + spare
    past = draw(2, width, 3)
    x = draw(2, steps, 3, seed=1)
    kernel = draw(taps, 3, 5, seed=2)
    padded = convolution.pad_left(tf.constant(past), tf.constant(x))
    got = convolution.causal_convolution(padded, tf.constant(kernel), dilation, width)
    whole = np.concatenate([past, x], axis=1)
    expected = np.zeros((2, steps, 5))
    for t in range(steps):
        for tap in range(taps):
            expected[:, t] += (
                whole[:, width + t - (taps - 1 - tap) * dilation] @ kernel[tap]
            )
    np.testing.assert_allclose(got, expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("steps", [0, 1, 4])
@pytest.mark.parametrize("delay", [0, 1, 6])
def test_delay(steps, delay):
    past, x = draw(2, 6, 3), draw(2, steps, 3, seed=1)
    padded = convolution.pad_left(tf.constant(past), tf.constant(x))
    expected = np.concatenate([past, x], axis=1)[:, 6 - delay : 6 - delay + steps]
    assert np.array_equal(convolution.delay(padded, 6, delay), expected)
