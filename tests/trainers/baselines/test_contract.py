"""The baselines keep what every sequence layer of the library promises."""

import dataclasses
import inspect

import hypothesis
import hypothesis.strategies as st
import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from keras_trellis import RecurrentLayer, recurrent, testing
from keras_trellis.export.caches import CacheFormat
from tests.contract import registry, test_contract
from trainers.baselines.causal import CausalLayer
from trainers.baselines.projected import Projected
from trainers.baselines.tcn import TemporalBlock
from trainers.baselines.transformer import AttentionBlock, DenseBlock


def tcn(dtype=None, **flags):
    blocks = [TemporalBlock(4, 2, 2, dtype=dtype), TemporalBlock(5, 3, dtype=dtype)]
    return CausalLayer(blocks, **flags)


def transformer(dtype=None, **flags):
    blocks = [
        DenseBlock(5, dtype=dtype),
        AttentionBlock(5, heads=2, context=3, dtype=dtype),
        AttentionBlock(5, heads=1, context=1, dtype=dtype),
        DenseBlock(4, normalize=True, dtype=dtype),
    ]
    return CausalLayer(blocks, **flags)


def projected(dtype=None, **flags):
    layer = RecurrentLayer([recurrent.SRU(4, dtype=dtype)])
    return Projected(layer, 4, **flags)


ENTRIES = {
    "tcn": registry._sequence_layer(tcn),
    "projected": registry._sequence_layer(projected),
    "transformer": registry._sequence_layer(transformer),
}


@pytest.fixture(scope="module", params=ENTRIES)
def entry(request):
    return ENTRIES[request.param]


@pytest.fixture(scope="module")
def built(entry):
    return entry.built()


drawn = test_contract.drawn
inputs = test_contract.inputs
verifier = test_contract.verifier
graph = test_contract.graph
differentiate = test_contract.differentiate
differentiated = test_contract.differentiated


@pytest.mark.parametrize(
    "promise",
    [
        test_contract.test_eager_and_graphs_of_unknown_sizes_agree,
        test_contract.test_streaming_eagerly_and_under_xla_agree,
        test_contract.test_padding_reaches_no_gradient,
    ],
    ids=lambda promise: promise.__name__,
)
def test_the_contract(promise, request, entry):
    names = inspect.signature(promise).parameters
    promise(**{name: request.getfixturevalue(name) for name in names})


@pytest.mark.parametrize("promise", [p for p in testing.PROMISES if p != "stateful"])
def test_a_promise_is_kept(entry, verifier, promise):
    if promise == "causal":  # a weight of zero times NaN would be NaN
        large = dataclasses.replace(entry, padding=1e6)
        verifier = testing.Verifier(large, 3, 7, "float64", 1e-10)
    verifier.check(promise)


@pytest.mark.parametrize("make", [tcn, transformer])
def test_an_output_depends_on_the_receptive_field_alone(make):
    layer = make(return_sequences=True, dtype="float64")
    steps = layer.receptive_field + 3
    x = np.random.default_rng(0).normal(size=(1, steps, 3))
    layer.build(x.shape)
    for variable in layer.trainable_variables:
        variable.assign(np.random.default_rng(1).normal(size=variable.shape))
    expected = np.asarray(layer(x))
    at = steps - 2
    for place in (at + 1, at - layer.receptive_field, 0):
        changed = x.copy()
        changed[:, place] += 1
        assert_allclose(np.asarray(layer(changed))[:, at], expected[:, at], rtol=1e-12)
    changed = x.copy()
    changed[:, : at - layer.receptive_field + 2] += 1
    assert not np.allclose(
        np.asarray(layer(changed))[:, at], expected[:, at], rtol=1e-12
    )


def test_the_outputs_are_those_of_the_published_equations():
    """A TCN's block by Keras's own causal convolutions."""
    block = TemporalBlock(4, 3, 2)
    layer = CausalLayer([block], return_sequences=True)
    x = np.random.default_rng(0).normal(size=(2, 9, 3)).astype("float32")
    layer.build(x.shape)
    expected = x
    for kernel, bias in zip(block.kernels[:2], block.biases[:2], strict=True):
        convolution = keras.layers.Conv1D(4, 3, padding="causal", dilation_rate=2)
        convolution.build(expected.shape)
        convolution.set_weights([kernel, bias + 0.1])
        bias.assign(bias + 0.1)
        expected = tf.nn.relu(convolution(expected))
    expected = tf.nn.relu(expected + x @ block.kernels[2][0])
    assert_allclose(layer(x), expected, atol=1e-6)


@pytest.mark.parametrize("make", [tcn, transformer])
def test_an_exported_cache_is_the_cache(make):
    """A server sends it as plain tensors, without those that have no element."""
    layer = make(return_sequences=True)
    layer.build((None, None, 3))
    x = np.random.default_rng(0).normal(size=(2, 4, 3)).astype("float32")
    _, cache = layer.stream(x, layer.get_initial_cache(2))
    form = CacheFormat(layer.get_initial_cache(1))
    sent = form.flatten(cache, tf.constant([4, 4]))
    received, steps = form.unflatten(sent)
    assert_array_equal(steps, [4, 4])
    expected, _ = layer.stream(x, cache)
    assert_array_equal(layer.stream(x, received)[0], expected)


@pytest.mark.parametrize("make", [tcn, transformer])
def test_a_call_is_zero_before_the_first_valid_step(make):
    """As an LSTM's is, also from an initial state; a stream repeats its last output."""
    layer = make(return_sequences=True, return_state=True)
    x, mask = np.ones((1, 3, 3), "float32"), np.array([[False, True, True]])
    layer.build(x.shape)
    state = [tf.ones_like(each) for each in layer.get_initial_state(1)]
    outputs, *_ = layer(x, initial_state=state, mask=mask)
    expected, *_ = layer(x[:, 1:], initial_state=state)
    assert not np.any(outputs[:, 0])
    assert_allclose(outputs[:, 1:], expected, rtol=1e-5)
    chunk, _ = layer.stream(x, layer.get_initial_cache(1, state), mask)
    assert_array_equal(chunk[:, 0], state[0])


def test_dropout_is_of_training_alone():
    blocks = [TemporalBlock(8, 2, dropout=0.5, seed=3)]
    layer = CausalLayer(blocks, dropout=0.5, seed=4, return_sequences=True)
    x = np.ones((1, 5, 8), "float32")
    assert_array_equal(layer(x), layer(x))
    assert not np.allclose(layer(x, training=True), layer(x, training=True))


def test_stateful_is_refused():
    with pytest.raises(ValueError, match="`stateful` must be False"):
        tcn(stateful=True)


def tcn_of(convolutions, **flags):
    """A TCN whose blocks have these kernel sizes and dilations, all variables drawn.

    Biases of zero would hide a convolution that reads a zero in place of a hidden step.
    """
    blocks = []
    for number, (kernel_size, dilation) in enumerate(convolutions):
        units = 2 + number % 2  # with and without a convolution in the shortcut
        blocks.append(TemporalBlock(units, kernel_size, dilation, dtype="float64"))
    layer = CausalLayer(blocks, **flags)
    layer.build((None, None, 2))
    for number, variable in enumerate(layer.trainable_variables):
        variable.assign(np.random.default_rng(number).normal(size=variable.shape))
    return layer


def value_and_gradients(layer, run, x):
    """What `run` returns, and the gradients of a sum of it with drawn weights."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        outputs = run(x)
        weights = np.random.default_rng(0).normal(size=outputs.shape)
        total = tf.reduce_sum(outputs * weights)
    sources = [x, *(variable.value for variable in layer.trainable_variables)]
    zero = tf.UnconnectedGradients.ZERO
    return [outputs, *tape.gradient(total, sources, unconnected_gradients=zero)]


def assert_all_close(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert_allclose(one, other, rtol=1e-9, atol=1e-9)


@hypothesis.settings(max_examples=10)
@hypothesis.given(
    convolutions=st.lists(
        st.tuples(st.integers(1, 4), st.integers(1, 6)), min_size=1, max_size=3
    ),
    steps=st.integers(1, 30),
    data=st.data(),
)
def test_the_last_outputs_of_a_tcn_are_those_of_the_whole(convolutions, steps, data):
    kept = data.draw(st.integers(1, steps), "kept")
    whole = tcn_of(convolutions, return_sequences=True)
    cut = tcn_of(convolutions, return_sequences=True)
    last = tcn_of(convolutions)
    x = tf.constant(np.random.default_rng(2).normal(size=(2, steps, 2)))
    assert_all_close(
        value_and_gradients(
            cut, lambda x: cut.propagate(x, discard=steps - kept)[0], x
        ),
        value_and_gradients(whole, lambda x: whole(x)[:, steps - kept :], x),
    )
    assert_all_close(
        value_and_gradients(last, last, x),
        value_and_gradients(whole, lambda x: whole(x)[:, -1], x),
    )


def test_the_last_output_of_a_tcn_where_the_length_is_unknown():
    convolutions = [(3, 1), (3, 2), (2, 3)]
    whole, last = tcn_of(convolutions, return_sequences=True), tcn_of(convolutions)
    unknown = tf.TensorSpec([None, None, 2], tf.float64)
    run = tf.function(last, input_signature=[unknown])
    for steps in (0, 1, 4, 13, 40):
        x = tf.constant(np.random.default_rng(steps).normal(size=(2, steps, 2)))
        found = value_and_gradients(last, run, x)
        if not steps:
            assert not np.any(found[0])
            continue
        expected = value_and_gradients(whole, lambda x: whole(x)[:, -1], x)
        assert_all_close(found, expected)


def test_a_tcn_leaves_out_no_step_that_a_mask_a_state_or_the_returned_state_needs():
    convolutions = [(3, 1), (2, 2)]
    whole = tcn_of(convolutions, return_sequences=True, return_state=True)
    last = tcn_of(convolutions)
    with_state = tcn_of(convolutions, return_state=True)
    x = np.random.default_rng(0).normal(size=(3, 9, 2))
    mask = np.random.default_rng(1).random((3, 9)) < 0.5
    outputs, *state = whole(x)
    for call in ({"mask": mask}, {"initial_state": state}):
        assert_array_equal(last(x, **call), whole(x, **call)[0][:, -1])
    assert_all_close(with_state(x), [outputs[:, -1], *state])
    tail, after, _ = last.propagate(x, discard=7)
    assert_all_close([tail, *after], [outputs[:, 7:], *state])


def test_a_tcn_computes_the_positions_that_its_last_output_depends_on(monkeypatch):
    computed = []
    activated = TemporalBlock._activated

    def counted(block, convolved, training):
        computed.append(convolved.shape[1])
        return activated(block, convolved, training)

    monkeypatch.setattr(TemporalBlock, "_activated", counted)
    steps, kernel_size, dilations = 784, 7, [2**level for level in range(8)]
    needed, positions = {steps - 1}, 0
    for dilation in reversed(dilations):
        for _ in range(2):  # convolutions
            positions += len(needed)
            taps = range(0, kernel_size * dilation, dilation)
            needed = {t - tap for t in needed for tap in taps if t >= tap}
    blocks = [TemporalBlock(1, kernel_size, dilation) for dilation in dilations]
    CausalLayer(blocks)(np.zeros((1, steps, 1), "float32"))
    assert sum(computed) == positions == 2345
