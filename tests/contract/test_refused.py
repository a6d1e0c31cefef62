"""What does not fit a layer that is built is refused by name: eagerly, in a model, in `stream`."""

import keras
import numpy as np
import pytest

from keras_trellis import RecurrentLayer, TensorizedLSTM, TrellisLayer
from keras_trellis.recurrent import IRCGRU, TLSTM, StackedLSTM
from tests.contract import tensors

pytestmark = tensors.not_in_float64_on_jax
ROWS, STEPS, CHANNELS = 2, 3, 3
LAYERS = {
    "TLSTM": lambda **flags: TLSTM(4, **flags),
    "IRCGRU": lambda **flags: IRCGRU(4, **flags),
    "TensorizedLSTM": lambda **flags: TensorizedLSTM(2, 2, **flags),
    "StackedLSTM": lambda **flags: StackedLSTM(4, **flags),
    "TrellisLayer": lambda **flags: TrellisLayer(4, 2, **flags),
    "RecurrentLayer": lambda **flags: RecurrentLayer(keras.layers.LSTM(4), **flags),
}
CAN_BE_STATEFUL = [name for name in LAYERS if name != "RecurrentLayer"]


def built(name, **flags):
    layer = LAYERS[name](**flags)
    layer.build((ROWS, None, CHANNELS))
    return layer


def x(rows=ROWS, channels=CHANNELS):
    return np.ones((rows, STEPS, channels), "float32")


def symbol(rows=ROWS, channels=CHANNELS):
    return keras.Input(batch_shape=(rows, STEPS, channels))


def shapes_of_states(layer, rows):
    return [(rows, *state.shape[1:]) for state in layer.get_initial_state(ROWS)]


def states(layer, rows):
    return [np.ones(shape, "float32") for shape in shapes_of_states(layer, rows)]


def symbols(layer, rows):
    shapes = shapes_of_states(layer, rows)
    return [keras.Input(batch_shape=shape) for shape in shapes]


def refuses(argument, shape):
    return pytest.raises(ValueError, match=rf"`{argument}` must be .*\[{shape}")


@pytest.mark.parametrize("name", LAYERS)
def test_another_number_of_channels(name):
    layer = built(name)
    for given in (x(channels=4), symbol(channels=4), symbol(None, channels=4)):
        with refuses("sequences", "B, T, 3"):
            layer(given)
    with refuses("sequences", "B, T, 3"):
        layer.stream(x(channels=4), layer.get_initial_cache(ROWS))


@pytest.mark.parametrize("name", LAYERS)
def test_states_of_other_shapes(name):
    layer = built(name)
    for given in (states(layer, 5), symbols(layer, 5)):
        for bad in (given, 2 * given):
            read = x() if isinstance(bad[0], np.ndarray) else symbol()
            with refuses("initial_state", r"\[2, "):
                layer(read, initial_state=bad)
    with refuses("initial_state", r"\[2, "):
        layer.get_initial_cache(ROWS, states(layer, 5))
    with refuses("cache", ""):
        layer.stream(x(), layer.get_initial_cache(5))


@pytest.mark.parametrize("name", LAYERS)
def test_one_state_stands_for_all_rows_of_a_call(name):
    layer = built(name)
    expected = layer(x(), initial_state=states(layer, ROWS))
    outputs = layer(x(), initial_state=states(layer, 1))
    np.testing.assert_allclose(*tensors.arrays([outputs, expected]), atol=1e-6)
    assert layer(symbol(None), initial_state=symbols(layer, 1)).shape[0] is None


@pytest.mark.parametrize("name", CAN_BE_STATEFUL)
def test_another_batch_than_a_stateful_layer_was_built_for(name):
    layer = built(name, stateful=True)
    for given in (x(5), symbol(5)):
        with refuses("sequences", "2, T, p"):
            layer(given)
    for given, read in ((states(layer, 5), x()), (symbols(layer, 5), symbol())):
        with refuses("initial_state", r"\[2, "):
            layer(read, initial_state=given)
    assert layer(symbol(None)).shape[0] is None
