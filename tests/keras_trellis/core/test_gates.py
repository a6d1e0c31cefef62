"""The gates against NumPy, and how a gate is named, configured and refused."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_trellis.core import gates
from tests import numpy_reference


def draw(count, shape=(2, 5, 3), seed=0):
    return np.random.default_rng(seed).normal(size=(count, *shape))


@pytest.mark.parametrize("name", numpy_reference.GATES)
def test_step(name):
    gate = gates.get(name)
    step, blocks, states = numpy_reference.GATES[name]
    assert (gate.name, gate.blocks, gate.states) == (name, blocks, states)
    z, shifted = draw(blocks), draw(states, seed=1)
    got = gate.step([tf.constant(b) for b in z], tuple(tf.constant(s) for s in shifted))
    assert isinstance(got, tuple)
    for g, expected in zip(got, step(z, shifted), strict=True):
        np.testing.assert_allclose(g, expected, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("name", numpy_reference.GATES)
def test_activations_can_be_chosen(name):
    gate = type(gates.get(name))(activation="relu", recurrent_activation="hard_sigmoid")
    copy = gates.get(keras.saving.serialize_keras_object(gate))
    assert type(copy) is type(gate) and copy.get_config() == gate.get_config()
    z, shifted = draw(gate.blocks), draw(gate.states, seed=1)
    arguments = [tf.constant(b) for b in z], tuple(tf.constant(s) for s in shifted)
    default = gates.get(name).step(*arguments)
    for g, c, d in zip(
        gate.step(*arguments), copy.step(*arguments), default, strict=True
    ):
        assert np.array_equal(g, c) and not np.allclose(g, d)


def test_a_gate_is_its_own_identifier():
    gate = gates.GRUGate()
    assert gates.get(gate) is gate


@pytest.mark.parametrize(
    "identifier", ["lstn", "", 3, None, gates.LSTMGate, {"name": "lstm"}]
)
def test_unknown_gates_are_refused(identifier):
    with pytest.raises(ValueError, match="gate") as error:
        gates.get(identifier)
    if not isinstance(
        identifier, dict
    ):  # Keras speaks for a configuration that is none
        assert repr(identifier) in str(error.value)
        for name in numpy_reference.GATES:
            assert name in str(error.value)


def test_a_gate_without_step_cannot_be_made():
    class Empty(gates.Gate):
        name, blocks, states = "empty", 1, 1

    with pytest.raises(TypeError, match="step"):
        Empty()
