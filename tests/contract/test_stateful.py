"""Every layer that can be stateful is trained by `fit`, which assigns its states in each step."""

import keras
import numpy as np
import pytest

from keras_trellis import RecurrentLayer
from keras_trellis.layers.sequence import SequenceLayer
from tests.contract import tensors
from tests.contract.registry import CHANNELS, REGISTRY

pytestmark = tensors.not_in_float64_on_jax
ROWS, STEPS = 2, 3
# JAX compiles each for seconds: it trains one of each way to keep states.
ON_JAX = (
    "TrellisLayer",
    "EquilibriumTrellisLayer, groups",
    "StackedLSTM",
    "TLSTM",
    "TensorizedLSTM, a square, normalised",
)


def is_trained_here(name, entry):
    """Returns whether a layer can be stateful, and no other one runs the same code."""
    if entry.graphs or not issubclass(entry.cls, SequenceLayer):
        return False
    if entry.cls is RecurrentLayer:  # it is not stateful itself
        return False
    return tensors.BACKEND != "jax" or name in ON_JAX


LAYERS = [name for name, entry in REGISTRY.items() if is_trained_here(name, entry)]


def stateful(name):
    """Returns a stateful layer that returns its last output alone."""
    layer = REGISTRY[name].make("float32")
    changes = {"stateful": True, "return_sequences": False, "return_state": False}
    return type(layer).from_config(layer.get_config() | changes)


@pytest.mark.parametrize("name", LAYERS)
def test_a_stateful_layer_is_trained_by_fit(name):
    layer = stateful(name)
    inputs = keras.Input((STEPS, CHANNELS), batch_size=ROWS)
    model = keras.Model(inputs, layer(inputs))
    # XLA would take seconds.
    model.compile("sgd", "mse", jit_compile=tensors.BACKEND == "jax")
    x = np.random.default_rng(0).normal(size=(2 * ROWS, STEPS, CHANNELS))
    y = np.ones([2 * ROWS, *model.output_shape[1:]])
    before = layer.get_weights()
    model.fit(x, y, batch_size=ROWS, shuffle=False, verbose=0)
    assert all(np.isfinite(weight).all() for weight in layer.get_weights())
    pairs = zip(before, layer.get_weights(), strict=True)
    assert any(np.any(one != other) for one, other in pairs)
    assert all(np.any(np.asarray(state)) for state in layer.states)
