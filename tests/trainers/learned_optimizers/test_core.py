"""The recurrent optimizer's network: its preprocessing, its sizes, what it refuses."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from keras_trellis.recurrent import IHCLSTMCell
from trainers.learned_optimizers import core


def test_the_preprocessing_is_the_papers():
    gradients = np.array([0.0, 1e-9, -1e-9, np.exp(-9.99), -np.exp(-10.01), -2.0, 1e30])
    expected = []
    for value in gradients:
        if abs(value) >= np.exp(-10):
            expected.append((np.log(abs(value)) / 10, np.sign(value)))
        else:
            expected.append((-1.0, np.exp(10) * value))
    found = core.preprocess(tf.constant(gradients))
    assert_allclose(found, expected, rtol=1e-9)


def test_its_gradient_is_finite_where_the_gradient_is_zero():
    zero = tf.zeros([2])
    with tf.GradientTape() as tape:
        tape.watch(zero)
        total = tf.reduce_sum(core.preprocess(zero))
    assert np.isfinite(tape.gradient(total, zero)).all()


@pytest.mark.parametrize("cell, size", [(None, 3280), (IHCLSTMCell, 2820)])
def test_a_cell_of_20_has_the_papers_number_of_parameters(cell, size):
    """Of 20 inputs and 20 units: 3,280, and 2,820 with an IHC-LSTM."""
    cells = None if cell is None else [cell(20), cell(20)]
    network = core.UpdateNetwork(cells, projection=20)
    for each in network.cells:
        assert each.count_params() == size
    assert network.count_params() == 2 * size + 60 + 21


@pytest.mark.parametrize("cell", [keras.layers.GRUCell, IHCLSTMCell])
def test_every_coordinate_is_taken_alike(cell):
    network = core.UpdateNetwork([cell(4)], projection=6)
    rng = np.random.default_rng(0)
    gradients, order = rng.normal(size=(3, 7)).astype("float32"), rng.permutation(7)
    network.output_layer.kernel.assign(rng.normal(size=(4, 1)))
    runs = []
    for chosen in (np.arange(7), order):
        states, updates = network.initial_states(7), []
        for step in gradients[:, chosen]:
            update, states = network(tf.constant(step), states)
            updates.append(update)
        runs.append(np.stack(updates))
    assert np.any(runs[0])
    assert_allclose(runs[0][:, order], runs[1], rtol=1e-5, atol=1e-7)


def test_an_untrained_network_moves_nothing():
    network = core.UpdateNetwork()
    states = network.initial_states(3)
    for _ in range(2):
        updates, states = network(tf.constant([1.0, -2.0, 0.0]), states)
        assert_array_equal(updates, np.zeros(3))


def test_meta_training_lowers_the_sum_of_the_losses():
    keras.utils.set_random_seed(0)
    network = core.UpdateNetwork([keras.layers.LSTMCell(6)], scale=0.1)
    adam = keras.optimizers.Adam(1e-2)
    start = tf.constant(np.random.default_rng(1).normal(size=8), "float32")

    def square(theta, _):
        return tf.reduce_sum(tf.square(theta))

    @tf.function
    def episode():
        with tf.GradientTape() as tape:
            states = network.initial_states(8)
            losses, _, _ = core.unroll(network, square, start, states, 10)
            total = tf.reduce_sum(losses)
        variables = network.trainable_variables
        pairs = zip(tape.gradient(total, variables), variables, strict=True)
        adam.apply_gradients(pairs)
        return losses[-1]

    found = [float(episode()) for _ in range(60)]
    assert found[-1] < 0.3 * found[0]


class Wide(keras.layers.Layer):
    """A cell with another output than [B, units]."""

    units = state_size = 4

    def call(self, inputs, states):
        return tf.zeros([1, 3]), states


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"scale": 0}, "`scale` must be a finite number above 0. Received: scale=0"),
        ({"p": float("inf")}, "`p` must be a finite number above 0. Received: p=inf"),
        ({"projection": 0}, "`projection` must be a positive integer.*projection=0"),
        (
            {"cells": [Wide()]},
            r"`cells` must return.* Wide that returns.* an output of \(1",
        ),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        core.UpdateNetwork(**arguments)
