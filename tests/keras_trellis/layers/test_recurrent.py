"""RecurrentLayer against the layers of Keras that it holds."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from keras_trellis import RecurrentLayer
from tests.refusals import refuses

B, T, P = 3, 6, 2
X = np.random.default_rng(0).normal(size=(B, T, P)).astype("float32")
MASK = np.array([[1, 1, 1, 1, 0, 0], [0, 0, 1, 0, 1, 1], [1, 1, 1, 1, 1, 1]], bool)
LSTM, GRU, SimpleRNN = keras.layers.LSTM, keras.layers.GRU, keras.layers.SimpleRNN


@keras.saving.register_keras_serializable("tests")
class Doubled(keras.layers.Layer):
    """A cell whose output is no part of its state."""

    state_size, output_size = (P,), P

    def call(self, inputs, states, training=False):
        state = 0.5 * states[0] + inputs
        return 2 * state + 1, (state,)

    def get_initial_state(self, batch_size=None):
        return (tf.zeros([batch_size, P]),)


def make(layers, **flags):
    flags = {"return_sequences": True, "return_state": True, **flags}
    return RecurrentLayer(layers, **flags)


@pytest.mark.parametrize("kind", [LSTM, GRU, SimpleRNN])
@pytest.mark.parametrize("mask", [None, MASK])
def test_it_is_the_layer_of_keras(kind, mask):
    inner = kind(4)
    layer = make(inner)
    initial = [np.full((B, 4), 0.3, "float32") for _ in layer.get_initial_state(1)]
    found = layer(X, initial_state=initial, mask=mask)
    expected = inner(X, initial_state=initial, mask=mask)
    for one, other in zip(found, expected, strict=True):
        assert_allclose(one, other, atol=1e-6)
    last = make(inner, return_sequences=False, return_state=False)
    assert_allclose(last(X, mask=mask), last_outputs(inner(X, mask=mask)[0]), atol=1e-6)


def last_outputs(outputs):
    return np.asarray(outputs)[:, -1]


def test_a_stack_reads_the_outputs_of_the_layer_below():
    layers = [LSTM(5), GRU(4)]
    layer = make(layers)
    outputs, h, c, top = layer(X)
    below, *states = layers[0](X)
    above, state = layers[1](below)
    for one, other in zip((outputs, h, c, top), (above, *states, state), strict=True):
        assert_allclose(one, other, atol=1e-6)
    assert (layer.output_units, layer.receptive_field) == (4, None)
    assert [each.shape for each in layer.get_initial_cache(2)] == [
        (2, 5),
        (2, 5),
        (2, 4),
    ]


def test_layers_above_the_first_can_read_the_input_too():
    """It is Keras's `Concatenate` of a layer's outputs and the input, layer by layer."""
    layers = [LSTM(5), GRU(4), LSTM(3)]
    layer = make(layers, skip_input=True)
    outputs, *states = layer(X, mask=MASK)
    read, expected = X, []
    for each in layers:
        below, *state = each(read, mask=MASK)
        expected += state
        read = keras.layers.Concatenate()([below, X])
    for one, other in zip((outputs, *states), (below, *expected), strict=True):
        assert_allclose(one, other, atol=1e-6)
    again = RecurrentLayer.from_config(layer.get_config())
    again.build(X.shape)
    again.set_weights(layer.get_weights())
    assert_allclose(again(X, mask=MASK)[0], outputs, atol=1e-6)


def test_dropout_is_that_of_the_layer():
    drops = {"dropout": 0.5, "recurrent_dropout": 0.5, "seed": 3}
    alone, held = LSTM(4, **drops, return_sequences=True), LSTM(4, **drops)
    layer = make(held)
    alone.build(X.shape)
    layer.build(X.shape)
    held.set_weights(alone.get_weights())
    outputs, *_ = layer(X, training=True)
    assert_allclose(outputs, alone(X, training=True), atol=1e-6)
    assert np.abs(outputs - layer(X)[0]).max() > 1e-3


def test_a_cell_whose_output_is_no_state_streams_exactly():
    layer = make(keras.layers.RNN(Doubled()))
    expected, state = layer(X, mask=MASK)
    cache, chunks = layer.get_initial_cache(B), []
    for step in range(T):
        chunk, cache = layer.stream(
            X[:, step : step + 1], cache, MASK[:, step : step + 1]
        )
        chunks.append(chunk)
    assert_allclose(tf.concat(chunks, 1), expected, atol=1e-6)
    assert_allclose(cache[0], state, atol=1e-6)
    empty, same = layer.stream(X[:, :0], cache)
    assert empty.shape == (B, 0, P)
    assert_array_equal(same[-1], cache[-1])


def test_activity_regularizers_of_the_layers_count():
    layer = make([LSTM(4, activity_regularizer=keras.regularizers.L2(1.0)), GRU(3)])
    layer(X)
    assert len(layer.losses) > 0 and sum(layer.losses) > 0


def test_ragged_sequences_are_padded():
    layer = make(GRU(4))
    ragged = tf.RaggedTensor.from_tensor(X, lengths=[4, 2, 6])
    expected = layer(X, mask=tf.sequence_mask([4, 2, 6]))
    for one, other in zip(layer(ragged), expected, strict=True):
        assert_allclose(one, other, atol=1e-6)


@pytest.mark.parametrize(
    "layers, message",
    [
        ([], r"`layers` must be a keras.layers.LSTM.*Received: layers=\[\]"),
        (keras.layers.Dense(3), "`layers` must be a keras.layers.LSTM.*Dense"),
        (LSTM(3, stateful=True), "`layers` must have stateful=False.*LSTM"),
        (
            [LSTM(3), GRU(3, go_backwards=True)],
            "`layers` must have go_backwards=False.*GRU",
        ),
        (
            [LSTM(3), GRU(3, dtype="float64")],
            "one dtype policy.*float32 and float64 of <GRU",
        ),
        (
            keras.layers.RNN(
                [keras.layers.LSTMCell(2, dtype="float64")] * 2, dtype="float64"
            ),
            "one dtype policy.*float64 and float32 of <StackedRNNCells",
        ),
    ],
)
def test_bad_layers(layers, message):
    with refuses(message):
        RecurrentLayer(layers)


@pytest.mark.parametrize("name", ["return_sequences", "return_state"])
def test_it_returns_what_the_last_layer_returns_unless_it_is_told(name):
    def stack(*flags, **own):
        layers = [keras.layers.LSTM(4, **{name: flag}) for flag in flags]
        return RecurrentLayer(layers, **own)

    assert getattr(stack(True), name) is True
    assert getattr(stack(False), name) is False
    # As one writes a stack in Keras, whose lower layers return all outputs.
    assert getattr(stack(True, False), name) is False
    assert getattr(stack(False, True), name) is True
    (part,) = stack(False).layers  # returns all itself now
    assert getattr(RecurrentLayer(part), name) is False
    for flag in (False, True):
        layer = stack(not flag, **{name: flag})
        assert getattr(layer, name) is flag
        again = type(layer).from_config(layer.get_config())
        assert getattr(again, name) is flag


def test_a_stateful_one_is_refused():
    with refuses("`stateful` must be False.*stateful=True"):
        RecurrentLayer(LSTM(4), stateful=True)


def test_backwards_it_is_the_layer_backwards():
    inner = GRU(4)
    found = make(inner, go_backwards=True, return_state=False)(X)
    assert_allclose(found, inner(X[:, ::-1])[0], atol=1e-6)


def test_bad_states_and_caches():
    layer = make(LSTM(4))
    with refuses(r"`initial_state` must be 2 tensor.*\[3, 4\].*\[3, 4\]"):
        layer(X, initial_state=[np.zeros((B, 4))])
    with refuses(r"`cache` must be what.*Received: tuple of shapes.*3, 5"):
        layer.stream(X, (np.zeros((B, 5)), np.zeros((B, 4))))
