"""Theorem 1: a stack of recurrent layers is a trellis network with groups."""

import keras
import numpy as np
import pytest

from keras_trellis import TrellisLayer, convert

P = 3
STEPS = 6


def built(layers, p=P, seed=0):
    """Builds a stack of layers and gives every variable random values."""
    rng = np.random.default_rng(seed)
    for layer in layers:
        layer.build((None, None, p))
        for variable in layer.trainable_variables:
            variable.assign(0.6 * rng.normal(size=variable.shape))
        p = layer.units
    return layers


def stack(kind, depth=3, units=4, **arguments):
    arguments = {"return_sequences": True, "dtype": "float64", **arguments}
    return built([getattr(keras.layers, kind)(units, **arguments) for _ in range(depth)])


def run(layers, x):
    for layer in layers:
        x = layer(x)
    return np.asarray(x)


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "SimpleRNN"])
@pytest.mark.parametrize("use_bias", [True, False])
def test_a_stack_of_layers(kind, depth, use_bias):
    layers = stack(kind, depth, use_bias=use_bias)
    layer = convert.layer_from_rnn(layers, STEPS)
    assert isinstance(layer, TrellisLayer)
    assert layer.depth == STEPS + depth - 1
    assert layer.units == 4 * depth
    for steps in (1, 3, STEPS):
        x = np.random.default_rng(1).normal(size=(2, steps, P))
        outputs, _, _ = layer.propagate(x)
        np.testing.assert_allclose(outputs, run(layers, x), rtol=0, atol=1e-12)


def test_it_is_exact_up_to_these_steps_only():
    layers = stack("LSTM", 2)
    layer = convert.layer_from_rnn(layers, STEPS)
    x = np.random.default_rng(1).normal(size=(2, STEPS + 2, P))
    difference = np.abs(layer.propagate(x)[0] - run(layers, x)).max((0, 2))
    assert (difference[:STEPS] < 1e-12).all() and (difference[STEPS:] > 1e-9).all()


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "SimpleRNN"])
def test_states_are_those_of_the_layers_side_by_side(kind):
    layers = stack(kind, 3, return_state=True)
    layer = convert.layer_from_rnn(layers, STEPS)
    rng = np.random.default_rng(2)
    kinds = 2 if kind == "LSTM" else 1
    carried = [[rng.normal(size=(2, 4)) for _ in range(kinds)] for _ in layers]
    x = values = rng.normal(size=(2, STEPS, P))
    states = []
    for rnn, state in zip(layers, carried, strict=True):
        values, *state = rnn(values, initial_state=state)
        states.append([np.asarray(each) for each in state])
    outputs, got, _ = layer.propagate(x, initial_state=side_by_side(carried))
    np.testing.assert_allclose(outputs, values, rtol=0, atol=1e-12)
    for each, expected in zip(got, side_by_side(states), strict=True):
        np.testing.assert_allclose(each, expected, rtol=0, atol=1e-12)


def side_by_side(states):
    return [np.concatenate(each, axis=-1) for each in zip(*states, strict=True)]


@pytest.mark.parametrize("return_sequences", [True, False])
@pytest.mark.parametrize("return_state", [True, False])
def test_it_returns_what_the_top_layer_returns(return_sequences, return_state):
    layers = stack("LSTM", 1)
    arguments = dict(return_sequences=return_sequences, return_state=return_state)
    layers += built([keras.layers.LSTM(4, dtype="float64", **arguments)], 4)
    x = np.random.default_rng(1).normal(size=(2, STEPS, P))
    got, expected = convert.layer_from_rnn(layers, STEPS)(x), layers[1](layers[0](x))
    if return_state:
        got, expected = got[0], expected[0]
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-12)


def test_one_layer_may_stand_alone_and_keeps_its_format():
    (rnn,) = stack("LSTM", 1, dtype="float32")
    layer = convert.layer_from_rnn(rnn, STEPS)
    x = np.random.default_rng(1).normal(size=(2, STEPS, P)).astype("float32")
    assert layer.compute_dtype == "float32"
    np.testing.assert_allclose(layer(x), rnn(x), rtol=0, atol=1e-5)


def test_masked_steps():
    layers = stack("GRU", 2)
    layer = convert.layer_from_rnn(layers, STEPS)
    x = np.random.default_rng(1).normal(size=(2, STEPS, P))
    mask = np.array(
        [[True, True, False, True, False, False], [False, True, True, True, True, True]]
    )
    expected = np.asarray(layers[1](layers[0](x, mask=mask), mask=mask))
    outputs, _, _ = layer.propagate(x, mask=mask)
    np.testing.assert_allclose(outputs, expected, rtol=0, atol=1e-12)


def test_the_past_taps_are_the_recurrent_kernels():
    layers = stack("SimpleRNN", 2, units=2, activation="tanh")
    layer = convert.layer_from_rnn(layers, STEPS)
    kernel = np.asarray(layer.recurrent_kernel)  # past of both groups, then group 1 to group 2
    expected = [layers[0].cell.recurrent_kernel, layers[1].cell.recurrent_kernel]
    np.testing.assert_array_equal(kernel[:2], expected)
    np.testing.assert_array_equal(kernel[2], layers[1].cell.kernel)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "SimpleRNN"])
def test_other_activations(kind):
    arguments = {"activation": "relu"}
    if kind != "SimpleRNN":
        arguments["recurrent_activation"] = "hard_sigmoid"
    layers = stack(kind, 2, **arguments)
    x = np.random.default_rng(1).normal(size=(2, STEPS, P))
    try:
        layer = convert.layer_from_rnn(layers, STEPS)
    except ValueError as error:
        assert "activation" in str(error)  # refused by name is as good
    else:
        np.testing.assert_allclose(layer.propagate(x)[0], run(layers, x), rtol=1e-12, atol=1e-12)


def test_a_converted_layer_has_a_configuration():
    layer = convert.layer_from_rnn(stack("LSTM", 2), STEPS)
    x = np.random.default_rng(1).normal(size=(2, STEPS, P))
    expected = layer.propagate(x)[0]
    copy = TrellisLayer.from_config(layer.get_config())
    copy.build((None, None, P))
    copy.set_weights(layer.get_weights())
    np.testing.assert_array_equal(copy.propagate(x)[0], expected)


REFUSED = {
    "layers": lambda: ([], 3),
    "steps": lambda: (stack("LSTM", 1), 0),
    "reset_after": lambda: (stack("GRU", 1, reset_after=False), 3),
    "units": lambda: (
        built(
            [
                keras.layers.LSTM(2, return_sequences=True, dtype="float64"),
                keras.layers.LSTM(3, return_sequences=True, dtype="float64"),
            ]
        ),
        3,
    ),
    "go_backwards": lambda: (stack("LSTM", 1, go_backwards=True), 3),
    "built": lambda: ([keras.layers.LSTM(2)], 3),
    "Dense": lambda: ([keras.layers.Dense(3)], 3),
    "LSTM|GRU": lambda: ([*stack("LSTM", 1), *built([keras.layers.GRU(4)], 4)], 3),
}


@pytest.mark.parametrize("said", REFUSED)
def test_refused(said):
    layers, steps = REFUSED[said]()
    with pytest.raises(ValueError, match=said):
        convert.layer_from_rnn(layers, steps)


@pytest.mark.parametrize("steps", [0, -2])
def test_bad_steps_are_named(steps):
    with pytest.raises(ValueError, match=f"steps.*{steps}"):
        convert.layer_from_rnn(stack("LSTM", 1), steps)
