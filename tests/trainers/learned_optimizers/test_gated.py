"""The gated update against its equations in NumPy: coordinates, and the meta-gradient."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from tests.numpy_reference import sigmoid
from trainers.learned_optimizers import core

STEPS, COORDINATES, UNITS = 4, 5, 3
RNG = np.random.default_rng(0)
THETA = RNG.normal(size=COORDINATES)
GRADIENTS = RNG.normal(size=(STEPS, COORDINATES)) * [1, 1e-3, 1e-6, 50, 0]
LOSSES = np.array([2.3, 0.4, 1e-7, 30.0])


def preprocessed(values, p=10.0):
    """(log|v| / p, sign v) where |v| >= exp(-p), else (-1, exp(p) v); [..., 2]."""
    pairs = []
    for value in np.ravel(values):
        if abs(value) >= np.exp(-p):
            pairs.append((np.log(abs(value)) / p, np.sign(value)))
        else:
            pairs.append((-1.0, np.exp(p) * value))
    return np.array(pairs)


def reference(weights, has_cell):
    """Theta after each step: theta = f * theta' - i * gradient."""
    theta = THETA
    write = keep = np.zeros(COORDINATES)
    hidden = memory = np.zeros([COORDINATES, UNITS])
    thetas = []
    for gradients, loss in zip(GRADIENTS, LOSSES, strict=True):
        seen = np.repeat(preprocessed(loss), COORDINATES, 0)
        values = np.concatenate([preprocessed(gradients), seen], -1)
        if has_cell:
            values = values @ weights["projection/kernel"] + weights["projection/bias"]
            blocks = values @ weights["cell/kernel"] + weights["cell/bias"]
            i, f, c, o = np.split(
                blocks + hidden @ weights["cell/recurrent_kernel"], 4, -1
            )
            memory = sigmoid(f) * memory + sigmoid(i) * np.tanh(c)
            values = hidden = sigmoid(o) * np.tanh(memory)
        write = gate(weights, "input", values, theta, write)
        keep = gate(weights, "forget", values, theta, keep)
        theta = keep * theta - write * gradients
        thetas.append(theta)
    return np.stack(thetas)


def gate(weights, name, values, theta, before):
    """sig(W [h, theta', the gate before] + b)."""
    read = np.concatenate([values, theta[:, None], before[:, None]], -1)
    kernel, bias = (weights[f"gates/{name}_gate/{part}"] for part in ("kernel", "bias"))
    return sigmoid(read @ kernel + bias)[:, 0]


def made(has_cell):
    """A network of random weights."""
    keras.utils.set_random_seed(0)
    cells = [keras.layers.LSTMCell(UNITS, dtype="float64", name="cell")] * has_cell
    network = core.UpdateNetwork(
        cells, update="gated", projection=6 if has_cell else None, dtype="float64"
    )
    for variable in network.trainable_variables:
        variable.assign(0.5 * RNG.normal(size=variable.shape))
    return network


def thetas_of(network):
    theta, states = tf.constant(THETA), network.initial_states(COORDINATES)
    thetas = []
    for gradient, loss in zip(tf.constant(GRADIENTS), tf.constant(LOSSES), strict=True):
        point = core.Point(theta, loss, gradient)
        updates, states = core.step(network, point, states)
        theta += updates
        thetas.append(theta)
    return tf.stack(thetas)


@pytest.mark.parametrize("has_cell", [False, True])
def test_the_equations_and_the_meta_gradient(has_cell):
    network = made(has_cell)
    weights = {
        variable.path.split("/", 1)[1]: variable.numpy()
        for variable in network.trainable_variables
    }
    factors = RNG.normal(size=(STEPS, COORDINATES))
    with tf.GradientTape() as tape:
        thetas = thetas_of(network)
        total = tf.reduce_sum(factors * thetas)
    assert_allclose(thetas, reference(weights, has_cell), rtol=1e-12)
    gradients = tape.gradient(total, [v.value for v in network.trainable_variables])
    for name, gradient in zip(weights, gradients, strict=True):
        direction = RNG.normal(size=gradient.shape)
        ends = []
        for sign in (1, -1):
            moved = weights | {name: weights[name] + sign * 1e-6 * direction}
            ends.append(np.sum(factors * reference(moved, has_cell)))
        expected = (ends[0] - ends[1]) / 2e-6
        assert_allclose(np.sum(gradient * direction), expected, 1e-6, 1e-7)


def test_an_untrained_one_is_gradient_descent():
    network = core.UpdateNetwork(update="gated")
    theta, gradient = tf.constant([[1.0, -0.5]]), tf.constant([[2.0, 0.0]])
    point = core.Point(theta, tf.constant([3.0]), gradient)
    updates, _ = core.step(network, point, network.initial_states(2))
    assert_allclose(updates, -0.0067 * gradient, atol=2e-4)
    assert core.UpdateNetwork.from_config(network.get_config()).update == "gated"


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"update": "lstm"}, r"`update` must be one of \('added', 'gated'\).*'lstm'"),
        (
            {"update": "gated", "scale": 0.1},
            "`scale` must be None with update='gated'.*0.1",
        ),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        core.UpdateNetwork(**arguments)
