"""What a stateful layer begins from, and begins from again."""

import functools

import keras
import numpy as np
import pytest
from keras import ops

from keras_trellis import EquilibriumTrellisLayer, RecurrentLayer, TrellisLayer
from keras_trellis.recurrent import TLSTM, StackedLSTM

ROWS, STEPS, CHANNELS = 2, 4, 3
X = np.random.default_rng(0).normal(size=(ROWS, STEPS, CHANNELS)).astype("float32")


class Begins:
    """A layer whose sequences begin with other states than zeros."""

    def get_initial_state(self, batch_size):
        return [state + 0.5 for state in super().get_initial_state(batch_size)]


class BegunCell(keras.layers.GRUCell):
    """A cell of Keras that does so."""

    def get_initial_state(self, batch_size=None):
        return [ops.ones([batch_size, self.units], self.compute_dtype)]


def begun(cls, *args, **named):
    """Makes layers of a class, with other initial states, of flags."""
    return functools.partial(
        type(f"Begun{cls.__name__}", (Begins, cls), {}), *args, **named
    )


LAYERS = {
    "trellis": begun(TrellisLayer, 4, 3),
    "equilibrium": begun(EquilibriumTrellisLayer, 4, groups=2),
    "stack": begun(StackedLSTM, 4),
    "gated": begun(TLSTM, 4),
}
CELL = {"cell": lambda: RecurrentLayer(keras.layers.RNN(BegunCell(4)))}


def built(make, **flags):
    layer = make(**flags)
    layer.return_sequences = True
    layer.build(X.shape)
    rng = np.random.default_rng(1)
    layer.set_weights([rng.normal(size=weight.shape) for weight in layer.weights])
    return layer


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, atol=1e-5)


@pytest.mark.parametrize("make", (LAYERS | CELL).values(), ids=LAYERS | CELL)
def test_whole_sequences_and_chunks_begin_from_the_initial_state(make):
    layer = built(make)
    state = layer.get_initial_state(ROWS)
    whole = layer(X)
    close(layer(X, initial_state=state), whole)
    close(layer.stream(X, layer.get_initial_cache(ROWS))[0], whole)
    zeros = [ops.zeros_like(tensor) for tensor in state]
    assert np.abs(layer(X, initial_state=zeros) - whole).max() > 1e-3


@pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)
def test_a_reset_layer_begins_as_at_first(make):
    layer = built(make, stateful=True)
    first = layer(X)
    for reset in (layer.reset_state, layer.reset_states):
        assert np.abs(layer(X) - first).max() > 1e-3
        reset()
        for state in layer.states:
            close(state, np.full(state.shape, 0.5))
        close(layer(X), first)
