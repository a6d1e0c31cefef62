"""The functions that are optimized, and the rules of ordinary optimizers."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from tests.refusals import refuses
from trainers.learned_optimizers import core, optimizees, rules
from trainers.learned_optimizers.optimizees import Draw, Quadratics

RNG = np.random.default_rng(0)


def images(pixels, colours):
    shape = (30, pixels, colours)
    drawn = RNG.integers(0, 256, shape, dtype=np.uint8)
    labels = RNG.integers(0, 10, 30, dtype=np.int32)
    return optimizees.Images(tf.constant(drawn), tf.constant(labels))


DIGITS, PHOTOGRAPHS = images(16, 1), images(64, 3)
FAMILIES = {
    "quadratics": Quadratics(5),
    "perceptrons": optimizees.perceptrons(DIGITS, 6, (4, 3), "relu"),
    "convolutional": optimizees.convolutional(PHOTOGRAPHS, 6, 4, "tanh"),
    "residual": optimizees.residual(PHOTOGRAPHS, 6, 8, 2),
}


def test_the_networks_have_the_published_sizes():
    digits, photographs = images(784, 1), images(1024, 3)
    assert optimizees.perceptrons(digits, 128).size == 15_910
    convolutions = 25 * 16 * (3 + 16 + 16) + 3 * 16
    dense = (4 * 4 * 16 + 1) * 32 + 33 * 10
    assert optimizees.convolutional(photographs, 128).size == convolutions + dense
    # That of ResNet-34 for CIFAR-10 with convolutions in the shortcuts where sizes change.
    assert optimizees.residual(photographs, 128).size == 21_282_122


@pytest.mark.parametrize("name", FAMILIES)
def test_each_draw_is_a_function_of_the_seed_and_its_own_coordinates(name):
    family = FAMILIES[name]
    draw, again, other = (family.draw([7, seed], 3) for seed in (0, 0, 1))
    for step in (0, 4):
        found, gradient = core.value_and_gradient(draw.loss, draw.theta, step)
        assert found.shape == (3,) and gradient.shape == (3, family.size)
        assert_array_equal(found, again.loss(again.theta, step))
        assert np.abs(found - other.loss(other.theta, step)).max() > 0
    moved = draw.theta + tf.constant([[0.0], [0.1], [0.0]])
    change, of_moved = core.value_and_gradient(draw.loss, moved, 4)
    assert_allclose(change[::2], found[::2], rtol=1e-5)
    assert_allclose(of_moved[::2], gradient[::2], rtol=1e-4, atol=1e-6)
    assert abs(change[1] - found[1]) > 1e-4
    constant = np.ptp([draw.loss(draw.theta, step)[0] for step in range(3)]) == 0
    assert constant == (name == "quadratics")  # the others see other images


def test_a_network_classifies_as_keras_does():
    family = optimizees.perceptrons(DIGITS, 6, (4,))
    parts = family.parts(RNG.normal(size=[2, family.size]))
    pixels = RNG.normal(size=[2, 6, 16])
    layers = [keras.layers.Dense(4, "sigmoid"), keras.layers.Dense(10)]
    model = keras.Sequential([keras.Input([16]), *layers])
    for number in range(2):
        model.set_weights([part[number] for part in parts])
        assert_allclose(
            family.logits(pixels, parts)[number], model(pixels[number]), rtol=1e-4
        )


def residual_of_keras(channels):
    """Three stages of a block, out of Keras's layers; returns the model and its layers."""
    layers = []

    def convolved(values, width, stride=1, size=3):
        layers.append(keras.layers.Conv2D(width, size, stride, "same", use_bias=False))
        layers.append(keras.layers.BatchNormalization())
        return layers[-1](layers[-2](values), training=True)

    inputs = keras.Input([8, 8, 3])
    values = keras.ops.relu(convolved(inputs, channels))
    for stage in range(3):
        width, stride = channels * 2**stage, 2 if stage else 1
        inner = keras.ops.relu(convolved(values, width, stride))
        inner = convolved(inner, width)
        if stage:
            values = convolved(values, width, stride, size=1)
        values = keras.ops.relu(values + inner)
    layers.append(keras.layers.Dense(10))
    values = layers[-1](keras.layers.GlobalAveragePooling2D()(values))
    return keras.Model(inputs, values), layers


def test_a_residual_network_classifies_as_keras_does():
    family = FAMILIES["residual"]
    model, layers = residual_of_keras(2)
    variables = [v for layer in layers for v in layer.trainable_variables]
    parts = family.parts(RNG.normal(size=[1, family.size]).astype("float32"))
    for variable, part in zip(variables, parts, strict=True):
        variable.assign(part[0])
    pixels = RNG.random(size=[1, 6, 64 * 3]).astype("float32")
    expected = model(pixels[0].reshape(6, 8, 8, 3))
    assert_allclose(family.logits(pixels, parts)[0], expected, rtol=1e-3, atol=1e-4)


def test_a_residual_network_starts_with_scales_of_1_and_kernels_of_relus():
    theta = FAMILIES["residual"].draw([3, 3], 2).theta
    parts = map(np.array, FAMILIES["residual"].parts(theta))
    kernel, scale, shift, *_, bias = parts
    assert (scale == 1).all() and not shift.any() and not bias.any()
    assert 0.5 < np.std(kernel) / np.sqrt(2 / 27) < 1.5


@pytest.mark.parametrize("depth", [0, 7, 9, 33, 34.0, "34"])
def test_a_depth_that_no_network_has_is_named(depth):
    with refuses(f"`depth` must be 18, 34 or 6 n.*{depth!r}"):
        optimizees.residual(PHOTOGRAPHS, 6, depth, 2)


def test_labels_beyond_the_classes_are_named():
    for make in (optimizees.perceptrons, optimizees.convolutional, optimizees.residual):
        with refuses("`classes` must be above 9.*classes=9"):
            make(PHOTOGRAPHS, 6, classes=9)


KERAS = {
    "SGD": keras.optimizers.SGD(0.1),
    "momentum": keras.optimizers.SGD(0.1, momentum=0.9),
    "RMSprop": keras.optimizers.RMSprop(0.1),
    "Adam": keras.optimizers.Adam(0.1, epsilon=1e-8),
}


@pytest.mark.parametrize("name", rules.TUNED)
def test_the_rules_are_those_of_keras(name):
    theta = RNG.normal(size=[2, 3]).astype("float32")
    curvature = tf.constant([[1.0, 4.0, 0.1], [3.0, 2.0, 0.3]])

    def loss(theta, _):
        return tf.reduce_sum(curvature * tf.square(theta), -1)

    draw = Draw(tf.constant(theta), loss)
    found = rules.losses(rules.TUNED[name](tf.constant(0.1)), draw, 6)
    variable, expected = keras.Variable(theta), []
    for step in range(7):
        expected.append(loss(variable.value, step))
        KERAS[name].apply([2 * curvature * variable.value], [variable])
    assert_allclose(found, expected, rtol=2e-5, atol=1e-6)
