"""`RecurrentOptimizer` in `fit`: the network's updates, states that are saved, bad input."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from keras_trellis.recurrent import IHCLSTMCell
from tests.refusals import refuses
from trainers.learned_optimizers import core
from trainers.learned_optimizers.optimizer import RecurrentOptimizer

RNG = np.random.default_rng(0)
INPUTS, TARGETS = RNG.normal(size=(8, 3)), RNG.normal(size=(8, 1))


def network(seed=0, **settings):
    keras.utils.set_random_seed(seed)
    cells = [keras.layers.LSTMCell(4), IHCLSTMCell(4)]
    made = core.UpdateNetwork(cells, projection=5, **settings)
    # A new network's updates are 0, or gradient descent.
    last = [made.output_layer] if made.gates is None else [made.gates.input_gate]
    for layer in last:
        layer.kernel.assign(keras.random.normal(layer.kernel.shape, seed=seed))
    return made


def model_with(optimizer):
    keras.utils.set_random_seed(1)
    layers = [keras.Input([3]), keras.layers.Dense(4, "tanh"), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    model.compile(optimizer, "mse", jit_compile=False)
    return model


def fit(model, epochs):
    model.fit(INPUTS, TARGETS, batch_size=8, epochs=epochs, verbose=0, shuffle=False)


@pytest.mark.parametrize("update", ["added", "gated"])
def test_a_step_of_fit_adds_the_networks_updates(update):
    """All coordinates are one batch; the second step goes on from the first one's states."""
    kind = {"update": update}
    model, states = model_with(RecurrentOptimizer(network(**kind))), None
    for _ in range(2):
        with tf.GradientTape() as tape:
            errors = model(tf.constant(INPUTS, "float32")) - TARGETS.astype("float32")
            loss = tf.reduce_mean(tf.square(errors))
        gradients = tape.gradient(loss, [v.value for v in model.trainable_variables])
        flat = tf.concat([tf.reshape(each, [-1]) for each in gradients], 0)
        states = states or network(**kind).initial_states(len(flat))
        before = np.concatenate([np.ravel(w) for w in model.get_weights()])
        point = core.Point(tf.constant(before), loss, flat)
        updates, states = core.step(network(**kind), point, states)
        fit(model, 1)
        after = np.concatenate([np.ravel(w) for w in model.get_weights()])
        assert_allclose(after - before, updates, rtol=1e-3, atol=1e-6)
    assert int(model.optimizer.iterations) == 2


def test_a_saved_model_goes_on_with_its_states(tmp_path):
    model = model_with(RecurrentOptimizer(network(update="gated")))
    fit(model, 3)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    for each in (model, loaded):
        fit(each, 2)
    for one, other in zip(model.get_weights(), loaded.get_weights(), strict=True):
        assert_array_equal(one, other)


def test_save_and_load_keep_the_network(tmp_path):
    given = RecurrentOptimizer(network(seed=5, scale=0.3))
    given.save(tmp_path / "optimizer.npz")
    loaded = RecurrentOptimizer.load(tmp_path / "optimizer.npz")
    found = []
    for optimizer in (given, loaded):
        model = model_with(optimizer)
        fit(model, 2)
        found.append(model.get_weights())
    for one, other in zip(*found, strict=True):
        assert_array_equal(one, other)


def test_what_it_cannot_train_is_named(tmp_path):
    doubles = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    doubles = keras.models.clone_model(
        doubles, clone_function=lambda layer: keras.layers.Dense(1, dtype="float64")
    )
    doubles.compile(RecurrentOptimizer(network()), "mse")
    with refuses("must be float32, .*kernel of float64"):
        doubles.fit(INPUTS, TARGETS, verbose=0)
    words = keras.Sequential([keras.Input([2]), keras.layers.Embedding(5, 1)])
    words.compile(RecurrentOptimizer(network()), "mse")
    with refuses("a dense gradient.*a sparse one for .*embed"):
        words.fit(np.zeros((4, 2)), np.zeros((4, 2, 1)), verbose=0)
    with refuses("`update` must be None or 'added'.*='gated'"):
        RecurrentOptimizer(network(), update="gated")
    variable = keras.Variable([1.0, 2.0], name="unused")
    with refuses("a dense gradient.*none for .*unused"):
        RecurrentOptimizer(network()).apply([None], [variable])
    (tmp_path / "other.npz").write_bytes(b"text")
    with refuses("other.npz must be a file of Recurrent"):
        RecurrentOptimizer.load(tmp_path / "other.npz")


def test_a_gated_update_reads_the_loss_and_moves_no_frozen_variable():
    variable = keras.Variable([1.0, 2.0], name="weights")
    optimizer = RecurrentOptimizer(update="gated")
    with refuses("call `scale_loss.loss.` before `apply`"):
        optimizer.apply([tf.ones(2)], [variable])
    optimizer.scale_loss(tf.constant(3.0))
    optimizer.apply([tf.ones(2)], [variable])
    assert_allclose(variable, [1.0, 2.0] - 0.0067 * np.ones(2), atol=3e-4)
    frozen = keras.Variable([1.0], trainable=False, name="frozen")
    with refuses("must be trainable.*frozen, which is frozen"):
        RecurrentOptimizer(update="gated").build([variable, frozen])
    model = model_with(RecurrentOptimizer(update="gated"))
    model.optimizer.build(model.trainable_variables)
    model.layers[0].trainable = False
    with refuses("no gradient for .*kernel; compile the model"):
        fit(model, 1)
    with refuses("a gradient for .*other; compile the model"):
        other = keras.Variable([1.0], name="other")
        optimizer.apply([tf.ones(2), tf.ones(1)], [variable, other])


def test_gradients_may_come_in_another_order():
    variables = [keras.Variable([1.0, 2.0]), keras.Variable([3.0])]
    optimizer = RecurrentOptimizer(update="gated")
    optimizer.build(variables)
    optimizer.scale_loss(tf.constant(1.0))
    optimizer.apply([10 * tf.ones(1), tf.ones(2)], variables[::-1])
    assert_allclose(variables[0], [0.993, 1.993], atol=1e-3)
    assert_allclose(variables[1], [2.933], atol=1e-3)
