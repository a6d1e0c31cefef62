"""Weight normalisation, DropConnect and Theorem 1's groups against NumPy."""

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from keras_trellis.core import kernels
from tests import numpy_reference


def draw(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def test_norm():
    v = draw(2, 3, 4)
    expected = [np.linalg.norm(v[..., channel]) for channel in range(4)]
    assert_allclose(kernels.norm(tf.constant(v)), expected, rtol=1e-14)


def test_weight_normalized():
    v, g = draw(2, 3, 4), draw(4, seed=1)
    got = kernels.weight_normalized(tf.constant(v), tf.constant(g))
    assert_allclose(got, numpy_reference.normalize(v, g), rtol=1e-14)
    assert_allclose(kernels.norm(got), np.abs(g), rtol=1e-14)


def test_weight_normalized_gradient_is_orthogonal_to_the_direction():
    v, g, cotangent = (
        tf.constant(a) for a in (draw(2, 3, 4), draw(4), draw(2, 3, 4, seed=2))
    )
    with tf.GradientTape() as tape:
        tape.watch([v, g])
        loss = tf.reduce_sum(kernels.weight_normalized(v, g) * cotangent)
    dv, dg = tape.gradient(loss, [v, g])
    assert_allclose(tf.reduce_sum(dv * v, axis=(0, 1)), np.zeros(4), atol=1e-14)
    unit = v / kernels.norm(v)
    assert_allclose(dg, tf.reduce_sum(unit * cotangent, axis=(0, 1)), rtol=1e-13)


def test_a_channel_without_weights_stays_zero_without_nan():
    v, g = draw(2, 3, 4), tf.constant(draw(4, seed=1))
    v[..., 2] = 0.0
    v = tf.constant(v)
    with tf.GradientTape() as tape:
        tape.watch([v, g])
        w = kernels.weight_normalized(v, g)
        loss = tf.reduce_sum(w * w + w)
    assert np.array_equal(w[..., 2], np.zeros((2, 3)))
    dv, dg = tape.gradient(loss, [v, g])
    assert np.isfinite(dv).all() and np.isfinite(dg).all()
    assert not dv.numpy()[..., 2].any() and not dg.numpy()[2].any()


@pytest.mark.parametrize("taps", [1, 2, 3])
def test_drop_past_taps(taps):
    kernel, mask = draw(taps, 3, 4), draw(max(taps - 1, 1), 3, 4, seed=1)
    expected = kernel.copy()
    expected[: max(taps - 1, 1)] *= mask
    got = kernels.drop_past_taps(tf.constant(kernel), tf.constant(mask))
    assert_array_equal(got, expected)


@pytest.mark.parametrize("blocks", [1, 4])
@pytest.mark.parametrize("groups", [2, 3])
@pytest.mark.parametrize("taps", [1, 2, 3])
def test_expand_group_hidden(taps, groups, blocks):
    n = 2
    kernel = draw((taps - 1) * groups + groups - 1, n, blocks * n)
    expected = numpy_reference.dense_recurrent_kernel(
        kernel, taps, groups * n, blocks, groups
    )
    got = kernels.expand_group_hidden(tf.constant(kernel), blocks, groups)
    assert_array_equal(got, expected)


@pytest.mark.parametrize("blocks", [1, 4])
@pytest.mark.parametrize("groups", [2, 3])
def test_expand_group_input(groups, blocks):
    n, p = 2, 3
    kernel = draw(1, p, blocks * n)
    expected = numpy_reference.dense_kernel(kernel, 1, groups * n, blocks, groups)
    got = kernels.expand_group_input(tf.constant(kernel), blocks, groups)
    assert_array_equal(got, expected)
