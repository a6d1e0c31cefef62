"""Theorem 1: a stack of recurrent layers is a trellis network with groups."""

import hypothesis
import hypothesis.strategies as st
import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from keras_trellis import TrellisLayer, convert, recurrent
from tests.refusals import refuses

P = 3
STEPS = 6


def built(layers, p=P, seed=0, shape=(None, None)):
    """Builds a stack of layers and gives every variable random values."""
    rng = np.random.default_rng(seed)
    for layer in layers:
        layer.build((*shape, p))
        for variable in layer.trainable_variables:
            variable.assign(0.6 * rng.normal(size=variable.shape))
        p = layer.units
    return layers


def stack(kind, depth=3, units=4, **arguments):
    arguments = {"return_sequences": True, "dtype": "float64", **arguments}
    return built(
        [getattr(keras.layers, kind)(units, **arguments) for _ in range(depth)]
    )


def run(layers, x, initial=None):
    for layer, state in zip(layers, initial or [None] * len(layers), strict=True):
        x = layer(x, initial_state=state)
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
        assert_allclose(outputs, run(layers, x), rtol=0, atol=1e-12)


def test_it_is_exact_up_to_these_steps_only():
    layers = stack("LSTM", 2)
    layer = convert.layer_from_rnn(layers, STEPS)
    x = np.random.default_rng(1).normal(size=(2, STEPS + 2, P))
    difference = np.abs(layer.propagate(x)[0] - run(layers, x)).max((0, 2))
    assert (difference[:STEPS] < 1e-12).all() and (difference[STEPS:] > 1e-9).all()


@pytest.mark.usefixtures("quiet_library")
def test_it_sees_the_steps_that_one_chose_without_a_warning():
    layers = built([keras.layers.LSTM(4, dtype="float64")], P)
    convert.layer_from_rnn(layers, STEPS)(np.zeros((1, 3 * STEPS, P)))


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
    assert_allclose(outputs, values, rtol=0, atol=1e-12)
    for each, expected in zip(got, side_by_side(states), strict=True):
        assert_allclose(each, expected, rtol=0, atol=1e-12)


def side_by_side(states):
    """Joins the layers' states, each in a group as wide as the widest, at its end."""
    widest = max(each.shape[-1] for state in states for each in state)
    padded = [
        [np.pad(each, [(0, 0), (widest - each.shape[-1], 0)]) for each in state]
        for state in states
    ]
    return [np.concatenate(each, axis=-1) for each in zip(*padded, strict=True)]


def truncated(layers, x, steps, initial=None):
    """The top layer's outputs, each run on its last `steps` steps alone: [B, T, units].

    What stands left of the sequence is zeros, or `initial`: for each layer its states.
    """
    begun = run(layers, x[:, :steps], initial)
    if x.shape[1] <= steps:
        return begun
    windows = np.lib.stride_tricks.sliding_window_view(x, steps, axis=1)[:, 1:]
    batch, count = windows.shape[:2]
    windows = np.swapaxes(windows, 2, 3).reshape(-1, steps, x.shape[2])
    later = run(layers, windows)[:, -1].reshape(batch, count, -1)
    return np.concatenate([begun, later], axis=1)


@st.composite
def stacks(draw):
    """The kind of a stack, and the arguments of each of its layers."""
    kind = draw(st.sampled_from(["LSTM", "GRU", "SimpleRNN"]))
    # Of these only the first is zero where a layer has seen nothing.
    common = {"activation": draw(st.sampled_from(["tanh", "sigmoid", "relu"]))}
    if kind != "SimpleRNN":
        common["recurrent_activation"] = draw(
            st.sampled_from(["sigmoid", "hard_sigmoid"])
        )
    own = st.fixed_dictionaries({"units": st.integers(1, 4), "use_bias": st.booleans()})
    return kind, [common | each for each in draw(st.lists(own, min_size=1, max_size=3))]


@hypothesis.given(
    drawn=stacks(),
    steps=st.integers(1, 4),
    valid=st.lists(st.booleans(), min_size=1, max_size=7),
    carried=st.booleans(),
    data=st.data(),
)
@hypothesis.settings(
    max_examples=20,
    deadline=None,
    phases=set(hypothesis.Phase) - {hypothesis.Phase.shrink},  # which takes minutes
)
def test_each_output_is_the_rnn_on_its_last_steps(drawn, steps, valid, carried, data):
    kind, arguments = drawn
    common = {"return_sequences": True, "dtype": "float64"}
    layers = built(
        [getattr(keras.layers, kind)(**each, **common) for each in arguments]
    )
    rng, mask = np.random.default_rng(1), np.array(valid)
    x = rng.normal(size=(2, len(valid), P))
    initial = None
    if carried:
        kinds = 2 if isinstance(layers[0], keras.layers.LSTM) else 1
        initial = [
            [rng.normal(size=(2, each.units)) for _ in range(kinds)] for each in layers
        ]
    layer = convert.layer_from_rnn(layers, steps)
    layer.recompute = data.draw(st.booleans())
    state = side_by_side(initial) if carried else None
    kept = dict(initial_state=state)

    def assert_equal(got, expected):
        assert_allclose(got, expected, rtol=1e-11, atol=1e-11)

    whole = truncated(layers, x, steps, initial)
    assert_equal(layer.propagate(x, **kept)[0], whole)
    discard = data.draw(st.integers(0, len(valid)))
    assert_equal(layer.propagate(x, discard=discard, **kept)[0], whole[:, discard:])
    if mask.any():
        outputs = layer.propagate(x, mask=np.tile(mask, (2, 1)), **kept)[0]
        assert_equal(
            outputs.numpy()[:, mask], truncated(layers, x[:, mask], steps, initial)
        )
    if not carried:
        cut = data.draw(st.integers(0, len(valid)))
        (first, cache), pieces = (
            layer.stream(x[:, :cut], layer.get_initial_cache(2)),
            [],
        )
        for step in range(cut, len(valid)):
            piece, cache = layer.stream(x[:, step : step + 1], cache)
            pieces.append(piece)
        assert_equal(np.concatenate([first, *pieces], axis=1), whole)


def test_a_higher_stack_compiles_and_goes_on_from_batch_to_batch():
    layers = stack("SimpleRNN", 5, units=2)
    layer = convert.layer_from_rnn(layers, 3)
    x = np.random.default_rng(1).normal(size=(2, 7, P))
    initial = [[np.ones((2, 2))]] * 5
    expected = truncated(layers, x, 3, initial)
    state = side_by_side(initial)
    compiled = tf.function(lambda x: layer(x, initial_state=state), jit_compile=True)
    assert_allclose(compiled(x), expected, rtol=0, atol=1e-12)
    stateful = TrellisLayer.from_config(layer.get_config() | {"stateful": True})
    stateful.build((2, None, P))
    stateful.set_weights(layer.get_weights())
    pieces = [
        stateful(x[:, :4], initial_state=state),
        stateful(x[:, 4:5]),
        stateful(x[:, 5:]),
    ]
    assert_allclose(np.concatenate(pieces, axis=1), expected, rtol=0, atol=1e-12)


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
    assert_allclose(got, expected, rtol=0, atol=1e-12)


def test_one_layer_may_stand_alone_and_keeps_its_format():
    (rnn,) = stack("LSTM", 1, dtype="float32")
    layer = convert.layer_from_rnn(rnn, STEPS)
    x = np.random.default_rng(1).normal(size=(2, STEPS, P)).astype("float32")
    assert layer.compute_dtype == "float32"
    assert_allclose(layer(x), rnn(x), rtol=0, atol=1e-5)


def test_the_past_taps_are_the_recurrent_kernels():
    layers = stack("SimpleRNN", 2, units=2, activation="tanh")
    layer = convert.layer_from_rnn(layers, STEPS)
    # Past of both groups, then group 1 to group 2.
    kernel = np.asarray(layer.recurrent_kernel)
    expected = [layers[0].cell.recurrent_kernel, layers[1].cell.recurrent_kernel]
    assert_array_equal(kernel[:2], expected)
    assert_array_equal(kernel[2], layers[1].cell.kernel)


class Derived(keras.layers.LSTM):
    """Might compute anything."""


def alone(cls, **arguments):
    return built([cls(4, return_sequences=True, **arguments)])


REFUSED = {
    "layers": lambda: [],
    "Received: 5": lambda: 5,
    "reset_after": lambda: stack("GRU", 1, reset_after=False),
    "output of the layer below": lambda: [
        *alone(keras.layers.GRU),
        *alone(keras.layers.GRU),
    ],
    "go_backwards": lambda: stack("LSTM", 1, go_backwards=True),
    "stateful=False": lambda: built(
        [keras.layers.LSTM(4, stateful=True)], shape=(2, None)
    ),
    "return_sequences=True below": lambda: stack("LSTM", 2, return_sequences=False),
    "dtype policy": lambda: [
        *alone(keras.layers.GRU),
        *built([keras.layers.GRU(4, dtype="float64")], 4),
    ],
    "activations": lambda: [
        *alone(keras.layers.GRU),
        *built([keras.layers.GRU(4, activation="relu")], 4),
    ],
    "built": lambda: [keras.layers.LSTM(2)],
    "Dense": lambda: [keras.layers.Dense(3)],
    "Bidirectional": lambda: keras.layers.Bidirectional(keras.layers.LSTM(3)),
    "Derived": lambda: alone(Derived),
    "one kind": lambda: [*alone(keras.layers.LSTM), *built([keras.layers.GRU(4)], 4)],
}


@pytest.mark.parametrize("said", REFUSED)
def test_refused(said):
    with refuses(f"`layers` must.*{said}|Received.*{said}"):
        convert.layer_from_rnn(REFUSED[said](), 3)


@pytest.mark.parametrize(
    "arguments, named",
    [
        ({"dropout": 0.1, "recurrent_dropout": 0.2}, "dropout, recurrent_dropout"),
        ({"activity_regularizer": "l2"}, "activity_regularizer"),
        ({"recurrent_regularizer": "l2"}, "recurrent_regularizer"),
        ({"bias_constraint": "non_neg"}, "bias_constraint"),
        ({"trainable": False}, "trainable=False"),
    ],
)
def test_a_warning_names_what_acts_in_training_alone(arguments, named):
    layers = [
        *stack("LSTM", 1),
        *built([keras.layers.LSTM(4, dtype="float64", **arguments)], 4),
    ]
    with pytest.warns(UserWarning, match=f"It leaves behind: {named}$"):
        convert.layer_from_rnn(layers, 3)


def test_masked_outputs_are_zero_where_they_are_the_top_layer_s():
    layers = stack("LSTM", 2, zero_output_for_mask=True)
    x, mask = np.ones((1, 4, P)), np.array([[True, False, True, False]])
    outputs = convert.layer_from_rnn(layers, 4)(x, mask=mask)
    assert_allclose(
        outputs, layers[1](layers[0](x, mask=mask), mask=mask), rtol=0, atol=1e-12
    )
    assert not np.asarray(outputs)[~mask].any()


@pytest.mark.parametrize("steps", [0, -2])
def test_bad_steps_are_named(steps):
    with refuses(f"steps.*{steps}"):
        convert.layer_from_rnn(stack("LSTM", 1), steps)


# The gated layers

GATED = ["IRCGRU", "IRCGRU released", "IRCLSTM", "FastGRNN", "IRCFastGRNN"]


def gated_stack(name, units, **arguments):
    """Layers of random weights; the scalars of a FastGRNN are those of the first."""
    kind, *variant = name.split()
    if variant:
        arguments["variant"] = variant[0]
    flags = {"return_sequences": True, "dtype": "float64", **arguments}
    layers = built([getattr(recurrent, kind)(each, **flags) for each in units])
    for scalar in ("beta_logit", "kappa_logit"):
        for layer in layers:
            if hasattr(layer.cell, scalar):
                first = getattr(layers[0].cell, scalar)
                getattr(layer.cell, scalar).assign(first)
    return layers


@pytest.mark.parametrize("units", [(4,), (4, 4), (2, 4, 3)])
@pytest.mark.parametrize("name", GATED)
def test_a_stack_of_gated_layers(name, units):
    layers = gated_stack(name, units)
    layer = convert.layer_from_rnn(layers, 4)
    assert layer.depth == 4 + len(units) - 1
    x = np.random.default_rng(1).normal(size=(2, STEPS, P))
    outputs, state, _ = layer.propagate(x)
    assert_allclose(outputs, truncated(layers, x, 4), rtol=1e-12, atol=1e-12)
    difference = np.abs(outputs - run(layers, x)).max((0, 2))
    assert (difference[:4] < 1e-12).all() and (difference[4:] > 1e-9).all()
    copy = TrellisLayer.from_config(layer.get_config())
    copy.build((None, None, P))
    copy.set_weights(layer.get_weights())
    assert_array_equal(copy.propagate(x)[0], outputs)


@pytest.mark.parametrize("name", GATED)
def test_states_of_gated_layers_go_both_ways(name):
    layers = gated_stack(name, (3, 4), return_state=True)
    layer = convert.layer_from_rnn(layers, STEPS)
    rng = np.random.default_rng(2)
    x = values = rng.normal(size=(2, STEPS, P))
    sizes = [each.cell.state_size for each in layers]
    carried = [[rng.normal(size=(2, size)) for size in each] for each in sizes]
    states = []
    for rnn, state in zip(layers, carried, strict=True):
        values, *state = rnn(values, initial_state=state)
        states.append([np.asarray(each) for each in state])
    outputs, got, _ = layer.propagate(x, initial_state=side_by_side(carried))
    assert_allclose(outputs, values, rtol=1e-12, atol=1e-12)
    for each, expected in zip(got, side_by_side(states), strict=True):
        assert_allclose(each, expected, rtol=1e-12, atol=1e-12)


def fast(units, beta):
    (layer,) = gated_stack("FastGRNN", units)
    layer.cell.beta_logit.assign(beta)
    return layer


REFUSED_GATED = {
    "IHCLSTM cannot: its highway multiplies": lambda: gated_stack("IHCLSTM", (3,)),
    "SRU cannot: its gates read the state through vectors": lambda: gated_stack(
        "SRU", (3,)
    ),
    "or an IRCGRU, IRCLSTM, FastGRNN or IRCFastGRNN. Received": lambda: gated_stack(
        "TLSTM", (3,)
    ),
    "one beta for all channels": lambda: gated_stack("IRCFastGRNN released", (3,)),
    "have the same beta and kappa": lambda: [fast((3,), 0.0), fast((3,), 1.0)],
    "reset gate multiplies the state": lambda: stack("GRU", 1, reset_after=False),
}


@pytest.mark.parametrize("said", REFUSED_GATED)
def test_gated_layers_that_are_refused(said):
    with refuses(f"`layers` must.*{said}"):
        convert.layer_from_rnn(REFUSED_GATED[said](), 3)


def test_a_warning_names_the_dropout_of_a_gated_layer():
    layers = gated_stack("IRCGRU", (3,), weight_dropout=0.5, dropout=0.1)
    with pytest.warns(UserWarning, match="behind: dropout, weight_dropout$"):
        convert.layer_from_rnn(layers, 3)
