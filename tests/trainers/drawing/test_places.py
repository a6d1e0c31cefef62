"""The filterbanks of DRAW: centred grids, rows that sum to 1, gradients."""

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from trainers.drawing import places as banks

RNG = np.random.default_rng(0)


def applied(parameters, images, taps):
    _, height, width, _ = images.shape
    by = banks.filters(tf.constant(parameters), taps, height, width)
    return by, banks.read(tf.constant(images), by)


def test_it_is_the_papers_equations():
    """Loops over pixels and taps, counted from 1."""
    parameters, taps = 0.4 * RNG.normal(size=5), 3
    height, width = 6, 9
    x, y = (
        (n + 1) / 2 * (p + 1) for n, p in zip((width, height), parameters, strict=False)
    )
    variance, spacing, intensity = np.exp(parameters[2:])
    spacing *= (max(width, height) - 1) / (taps - 1)

    def filters(centre, length):
        found = np.zeros((taps, length))
        for i in range(1, taps + 1):
            mean = centre + (i - taps / 2 - 0.5) * spacing
            for a in range(1, length + 1):
                found[i - 1, a - 1] = np.exp(-((a - mean) ** 2) / (2 * variance))
        return found / found.sum(-1, keepdims=True)

    image = RNG.random((height, width))
    by, read = applied(parameters[None], image[None, :, :, None], taps)
    assert_allclose(by.rows[0], filters(y, height), rtol=1e-6)
    assert_allclose(by.columns[0], filters(x, width), rtol=1e-6)
    patch = intensity * filters(y, height) @ image @ filters(x, width).T
    assert_allclose(read[0, :, :, 0], patch, rtol=1e-6)
    back = filters(y, height).T @ patch @ filters(x, width) / intensity
    assert_allclose(banks.write(read, by)[0, :, :, 0], back, rtol=1e-6)


@pytest.mark.parametrize("taps", [1, 2, 5])
def test_rows_sum_to_one(taps):
    parameters = 0.3 * RNG.normal(size=(8, 5))
    by, _ = applied(parameters, np.ones((8, 7, 8, 2)), taps)
    for filters in (by.rows, by.columns):
        assert_allclose(tf.reduce_sum(filters, -1), 1.0, rtol=1e-5)


def test_the_grid_lies_evenly_around_its_centre():
    zeros = np.zeros((1, 5))
    x, y, side, _ = tf.unstack(banks.filters(tf.constant(zeros), 5, 9, 9).place, axis=1)
    assert_allclose([x, y], [[5], [5]])
    places = banks.tap_places(x, side / 4, 5)
    assert_allclose(places, [[1, 3, 5, 7, 9]])
    symmetric, _ = applied(zeros, np.ones((1, 9, 9, 1)), 4)
    assert_allclose(symmetric.rows, symmetric.rows[:, ::-1, ::-1])


def test_a_patch_read_and_written_back_at_full_size_is_the_image():
    images = RNG.random((2, 6, 6, 3))
    narrow = np.array([[0.0, 0.0, -10.0, 0.0, 0.7]] * 2)  # a variance of 5e-5
    by, patch = applied(narrow, images, 6)
    assert_allclose(patch, np.exp(0.7) * images, rtol=1e-6)
    assert_allclose(banks.write(patch, by), images, rtol=1e-6)


def test_a_tap_far_outside_reads_nothing_and_has_a_finite_gradient():
    far = tf.constant([[9.0, -9.0, -8.0, 0.0, 0.0]])
    with tf.GradientTape() as tape:
        tape.watch(far)
        read = banks.read(tf.ones([1, 6, 6, 1]), banks.filters(far, 3, 6, 6))
        loss = tf.reduce_sum(read)
    assert np.isfinite(loss) and np.isfinite(tape.gradient(loss, far)).all()


def test_gradients_through_the_five_numbers_are_the_differences():
    images, weights = RNG.random((2, 6, 5, 2)), RNG.normal(size=(2, 6, 5, 2))
    parameters = tf.constant(0.3 * RNG.normal(size=(2, 5)))

    def loss(parameters):
        by, patch = applied(parameters, images, 3)
        return tf.reduce_sum(banks.write(tf.tanh(patch), by) * weights)

    with tf.GradientTape() as tape:
        tape.watch(parameters)
        value = loss(parameters)
    gradient = tape.gradient(value, parameters)
    for place in np.ndindex(2, 5):
        step = np.zeros((2, 5))
        step[place] = 1e-5
        difference = (loss(parameters + step) - loss(parameters - step)) / 2e-5
        assert float(gradient[place]) == pytest.approx(float(difference), rel=1e-6)
