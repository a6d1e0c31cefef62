"""What every sequence layer takes and refuses: types of numbers, no time step, masks, states."""

import re
import warnings

import hypothesis.strategies as st
import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings

import keras_trellis
from keras_trellis import TrellisClassifier, TrellisLayer, recurrent
from keras_trellis.layers.sequence import SequenceLayer
from keras_trellis.recurrent.gated import GatedRNN
from tests.contract.registry import CHANNELS, REGISTRY
from tests.refusals import refuses

B, T = 2, 3
NUMBERS = np.random.default_rng(0).integers(0, 2, (B, T, CHANNELS))


# One entry for each class.
NAMES = {
    entry.cls: name
    for name, entry in reversed(REGISTRY.items())
    if issubclass(entry.cls, SequenceLayer)
}.values()
GATED = [name for name in NAMES if issubclass(REGISTRY[name].cls, GatedRNN)]
COMPLEX = r"`{}` must be real numbers, which are cast to float32. .*complex64"
CELLS = [name for name in recurrent.__all__ if name.endswith("Cell")]


def build(name):
    """A public sequence layer of the registry."""
    return REGISTRY[name].built("float32")


@pytest.fixture(params=NAMES, scope="module")
def layer(request):
    return build(request.param)


@pytest.fixture(params=GATED, scope="module")
def gated(request):
    return build(request.param)


def in_the_loop_of_keras(name, **flags):
    arguments = [CHANNELS, 2] if name.startswith("Tensorized") else [CHANNELS]
    cell = getattr(recurrent, name)(*arguments)
    return keras.layers.RNN(cell, **flags)


def with_flags(layer, **flags):
    """A gated layer of the same weights, and of other flags."""
    flags = {"return_sequences": True, "return_state": True, **flags}
    copy = type(layer).from_config(layer.get_config() | flags)
    copy.build((B, None, CHANNELS))
    for mine, value in zip(copy.trainable_weights, layer.get_weights(), strict=True):
        mine.assign(value)
    return copy


def assert_close(found, expected, tolerance=1e-6):
    pairs = zip(tf.nest.flatten(found), tf.nest.flatten(expected), strict=True)
    for one, other in pairs:
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


# Types of numbers


def test_sequences_of_any_real_numbers_are_cast(layer):
    same = NUMBERS.astype("float32")
    expected = layer(same)
    for dtype in ("bool", "float64", "uint8"):
        x = NUMBERS.astype(dtype)
        assert_close(layer(x), expected)
    inputs = keras.Input((None, CHANNELS), dtype="uint8")
    assert_close(keras.Model(inputs, layer(inputs))(x), expected)
    assert_close(layer.propagate(x)[:2], layer.propagate(same)[:2])
    cache = layer.get_initial_cache(B)
    assert_close(layer.stream(x, cache), layer.stream(same, cache))


@pytest.mark.parametrize("name", CELLS)
def test_cells_in_the_loop_of_keras_cast_too(name):
    loop = in_the_loop_of_keras(name, return_state=True)
    expected = loop(NUMBERS.astype("float32"))
    for dtype in ("uint8", "bool"):
        assert_close(loop(NUMBERS.astype(dtype)), expected)
    with refuses(COMPLEX.format("inputs")):
        loop(NUMBERS.astype("complex64"))


def test_integers_in_fit():
    def loss(dtype):
        inputs = keras.Input((T, CHANNELS), dtype=dtype)
        model = keras.Model(inputs, build("TLSTM")(inputs)[0])
        model.compile("sgd", "mse", jit_compile=False)
        y = NUMBERS.astype("float32")
        return model.fit(NUMBERS.astype(dtype), y, verbose=0).history["loss"]

    assert loss("uint8") == pytest.approx(loss("float32"))


def test_complex_numbers_are_refused(layer):
    x, real = NUMBERS.astype("complex64"), NUMBERS.astype("float32")
    states = layer.get_initial_state(B)
    with refuses(COMPLEX.format("sequences")):
        layer(x)
    with refuses(COMPLEX.format("sequences")):
        layer(keras.Input((None, CHANNELS), dtype="complex64"))
    with refuses(COMPLEX.format("initial_state")):
        layer(real, initial_state=[tf.cast(each, tf.complex64) for each in states])
    with refuses(COMPLEX.format("sequences")):
        layer.propagate(x)
    with refuses(COMPLEX.format("sequences")):
        layer.stream(x, layer.get_initial_cache(B))


def test_complex_numbers_are_refused_by_a_classifier():
    model = TrellisClassifier(5, recurrent.SRU(CHANNELS))
    same = NUMBERS.astype("float32")
    assert_close(model(NUMBERS.astype("uint8")), model(same))
    with refuses(COMPLEX.format("sequences")):
        model(NUMBERS.astype("complex64"))


def test_states_of_integers_are_cast(layer):
    x = NUMBERS.astype("float32")
    states = [tf.ones_like(each) for each in layer.get_initial_state(B)]
    whole = [tf.cast(each, tf.int32) for each in states]
    assert_close(layer(x, initial_state=whole), layer(x, initial_state=states))


# No time step


def test_a_gated_layer_without_a_time_step_keeps_its_state(gated):
    rng = np.random.default_rng(1)
    shapes = [each.shape for each in gated.get_initial_state(B)]
    states = [rng.normal(size=shape).astype("float32") for shape in shapes]
    whole = with_flags(gated)
    last = with_flags(gated, return_sequences=False, go_backwards=True)
    spec = tf.TensorSpec([None, None, CHANNELS], tf.float32)

    @tf.function(input_signature=[spec])
    def of_unknown_length(x):
        return whole(x, initial_state=states, training=True)

    nothing = np.zeros((B, 0, CHANNELS), "float32")
    mask = np.zeros((B, 0), bool)
    for found in (
        whole(nothing, initial_state=states),
        whole(nothing, initial_state=states, mask=mask),
        of_unknown_length(nothing),
    ):
        assert found[0].shape == (B, 0, whole.units)
        assert_close(found[1:], states, 0)
    found = last(nothing, initial_state=states)
    assert_close(found, [np.zeros((B, whole.units), "float32"), *states], 0)
    x = NUMBERS.astype("float32")
    assert_close(of_unknown_length(x), whole(x, initial_state=states))


def test_no_time_step_has_no_gradient(gated):
    weights = [each.value for each in gated.trainable_variables]
    x = tf.zeros([B, 0, CHANNELS])
    with tf.GradientTape() as tape:
        total = tf.add_n([tf.reduce_sum(each) for each in gated(x, training=True)])
    zeros = tf.UnconnectedGradients.ZERO
    for gradient in tape.gradient(total, weights, unconnected_gradients=zeros):
        assert not np.any(tf.convert_to_tensor(gradient))


def test_a_stateful_layer_without_a_time_step_goes_on():
    layer = recurrent.IRCGRU(3, stateful=True)
    x = NUMBERS.astype("float32")
    layer(x[:, :2])
    layer(x[:, :0])
    last = {"return_sequences": False, "return_state": False}
    assert_close(layer(x[:, 2:]), with_flags(layer, stateful=False, **last)(x))
    with refuses(r"of shape \[2, T, p\].*Received.*\(1, 3, 3\)"):
        layer(x[:1])


def test_a_loop_of_unknown_length_is_not_unrolled():
    layer = recurrent.IRCGRU(3, unroll=True)
    spec = tf.TensorSpec([B, None, CHANNELS])
    with refuses(r"`unroll=True`. Received: .*\(2, None, 3\)"):
        tf.function(layer).get_concrete_function(spec)


# Masks


def test_masks_of_other_shapes_are_refused(layer):
    x = NUMBERS.astype("float32")
    for shape in [(B, T - 1), (B, T + 1), (B + 1, T), (T,), (B, T, 2)]:
        received = re.escape(f"Received: mask of shape {shape}")
        message = rf"`mask` must be of shape \[{B}, {T}\].*{received}"
        with refuses(message):
            layer(x, mask=np.ones(shape, bool))


def test_all_gated_layers_are_among_them():
    assert {f"{REGISTRY[name].cls.__name__}Cell" for name in GATED} == {*CELLS}


# More steps than a layer sees; tests/contract has what warns


@settings(max_examples=25)
@given(
    kernel_size=st.integers(1, 4),
    depth=st.integers(1, 12),
    cycle=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    further=st.integers(1, 60),
    groups=st.sampled_from([1, 1, 3]),
)
def test_what_a_warning_advises_sees_all_steps(
    kernel_size, depth, cycle, further, groups
):
    fixed = dict(kernel_size=kernel_size, groups=groups)
    layer = TrellisLayer(3, depth, dilation_rate=cycle[:depth], **fixed)
    x = np.zeros((1, layer.receptive_field + further, 1))
    with pytest.warns(UserWarning) as warned:
        layer(x)
    (said,) = warned
    text = str(said.message)
    assert f"sees {layer.receptive_field} of {x.shape[1]} time steps" in text
    advice = re.search(r"`(depth=keras_trellis\.depth_for\(.*)`", text)[1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        better = eval(
            f"keras_trellis.TrellisLayer(3, **fixed, {advice})",
            {"keras_trellis": keras_trellis, "fixed": fixed},
        )
        better(x)
    assert groups > 1 or better.depth <= x.shape[1].bit_length()


def test_the_layer_that_a_warning_advises_learns_the_task():
    """To recall step 5 of 30, of variance 1; what does not see it learns nothing."""
    keras.utils.set_random_seed(0)
    x = np.random.default_rng(0).normal(size=(1500, 30, 1)).astype("float32")
    with pytest.warns(UserWarning, match="sees 9 of 30 time steps") as warned:
        TrellisLayer(24, depth=8)(x[:1])
    advice = re.search(r"`(depth=.*)`", str(warned[0].message))[1]
    layer = eval(f"keras_trellis.TrellisLayer(24, {advice})")
    assert (layer.depth, layer.dilation_rate) == (5, (1, 2, 4, 8, 16))
    model = keras.Sequential([keras.Input((30, 1)), layer, keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(1e-2), "mse")
    history = model.fit(x, x[:, 5], epochs=2, batch_size=50, verbose=0).history
    assert history["loss"][-1] < 0.3
