"""StackedLSTM against layers of Keras and against the groups of a network of infinite depth."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from keras_trellis import EquilibriumTrellisLayer, TrellisLayer
from keras_trellis.recurrent import StackedLSTM
from tests.nests import assert_close
from tests.numpy_reference import sigmoid
from tests.refusals import refuses

P, UNITS = 3, 4
BATCH, STEPS = 4, 6
MASK = np.array(
    [[1, 1, 1, 1, 1, 0], [0, 1, 0, 1, 1, 0], [1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0]],
    bool,
)


def draw(*shape, seed=0, dtype="float32"):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


class Keras(keras.layers.Layer):
    """Keras's LSTM -> Concatenate with the input -> LSTM, for as many layers as there are."""

    def __init__(self, layers, skip_input=True, dtype=None, **arguments):
        super().__init__(dtype=dtype)
        self.skip_input, self.supports_masking = skip_input, True
        self.layers = [
            keras.layers.LSTM(
                UNITS,
                return_sequences=True,
                return_state=True,
                dtype=dtype,
                **arguments,
            )
            for _ in range(layers)
        ]

    def call(self, x, initial_state=None, mask=None, training=False):
        read, states = x, []
        for index, layer in enumerate(self.layers):
            own = initial_state and list(initial_state[2 * index : 2 * index + 2])
            y, *state = layer(read, initial_state=own, mask=mask, training=training)
            states += state
            read = keras.ops.concatenate([y, x], axis=-1) if self.skip_input else y
        return y, *states


def stacked(layers=2, **arguments):
    defaults = dict(return_sequences=True, return_state=True)
    return StackedLSTM(UNITS, layers=layers, **defaults | arguments)


def randomized(layer, scale=0.6):
    rng = np.random.default_rng(5)
    layer.set_weights([scale * rng.normal(size=w.shape) for w in layer.get_weights()])
    return layer


def with_gradients(layer, x, state, mask):
    sources = [v.value for v in layer.trainable_variables] + [x, *state]
    with tf.GradientTape() as tape:
        tape.watch(sources)
        results = layer(x, initial_state=state, mask=mask, training=True)
        total = 0.0
        for seed, each in enumerate(results):
            total += tf.reduce_sum(each * draw(*each.shape, seed=seed, dtype="float64"))
    return results, tape.gradient(total, sources, unconnected_gradients="zero")


@settings(max_examples=2)
@given(
    layers=st.integers(1, 3),
    skip_input=st.booleans(),
    use_bias=st.booleans(),
    masked=st.booleans(),
    steps=st.sampled_from([1, 4]),
)
@example(layers=2, skip_input=True, use_bias=True, masked=True, steps=4)
def test_it_is_keras_layers(layers, skip_input, use_bias, masked, steps):
    """Outputs, states, gradients; weights are copied in Keras's order."""
    arguments = dict(skip_input=skip_input, use_bias=use_bias, dtype="float64")
    theirs, ours = Keras(layers, **arguments), stacked(layers, **arguments)
    x = tf.constant(draw(BATCH, steps, P, dtype="float64"))
    state = [
        tf.constant(draw(BATCH, UNITS, seed=seed, dtype="float64"))
        for seed in range(2 * layers)
    ]
    mask = tf.constant(MASK[:, :steps]) if masked else None
    theirs(x)
    ours(x)
    weights = [w for layer in randomized(theirs).layers for w in layer.get_weights()]
    ours.set_weights(weights)
    expected = with_gradients(theirs, x, state, mask)
    assert_close(with_gradients(ours, x, state, mask), expected, 1e-10)


def groups(**arguments):
    """A layer of infinite depth in two groups, built, with random weights; it need not iterate."""
    defaults = dict(groups=2, inject_groups=True, max_iterations=1)
    defaults |= dict(return_sequences=True, output_units=UNITS)
    layer = EquilibriumTrellisLayer(2 * UNITS, **defaults | arguments)
    layer.build((BATCH, None, P))
    return randomized(layer)


def keras_of(layer):
    """The layers of Keras with the weights of a stack."""
    found = Keras(layer.num_layers, layer.skip_input, use_bias=layer.use_bias)
    found(draw(1, 1, P))
    found.set_weights(layer.get_weights())
    return found


def by_layer(states):
    """The states of two groups, h and c of both, as those of layers."""
    hidden, cells = (np.split(np.asarray(each), 2, axis=-1) for each in states)
    return [hidden[0], cells[0], hidden[1], cells[1]]


@pytest.mark.parametrize("arguments", [{}, {"inject_groups": False, "use_bias": False}])
def test_groups_of_infinite_depth_are_a_stack(arguments):
    """With masks and initial states: in one pass, in chunks, from batch to batch."""
    layer = groups(return_state=True, **arguments)
    ours = StackedLSTM.from_layer(layer)
    assert (ours.units, ours.num_layers, ours.return_state) == (UNITS, 2, True)
    theirs = keras_of(ours)
    x, flat = draw(BATCH, STEPS, P), [draw(BATCH, 2 * UNITS, seed=i) for i in (1, 2)]
    state = by_layer(flat)
    expected, *states = layer(x, initial_state=flat, mask=MASK)
    *_, found = layer.propagate(x)
    assert np.all(found.converged) and not np.any(found.residual)
    for each in (ours, theirs):
        results = each(x, initial_state=state, mask=MASK)
        assert_close(results, [expected, *by_layer(states)], 1e-6)
    cache, chunks = tuple(map(tf.constant, state)), []
    for begin, end in ((0, 1), (1, 4), (4, 6)):
        chunk = slice(begin, end)
        outputs, cache = ours.stream(x[:, chunk], cache, mask=MASK[:, chunk])
        chunks.append(outputs)
    assert_close(cache, by_layer(states), 1e-6)
    seen = np.cumsum(MASK, axis=1) > 0  # before, a chunk has the output of its cache
    assert_close(np.concatenate(chunks, axis=1)[seen], expected[seen], 1e-6)
    stateful = StackedLSTM.from_layer(layer, stateful=True, return_state=False)
    for variable, value in zip(stateful.states, state, strict=True):
        variable.assign(value)
    assert_close(stateful(x[:, :3], mask=MASK[:, :3])[0], expected[0, :3], 1e-6)
    assert_close(stateful(x[:, 3:], mask=MASK[:, 3:])[0], expected[0, 3:], 1e-6)
    assert_close(stateful.states, by_layer(states), 1e-6)


def lstm(x, kernel, recurrent, bias, masks, recurrent_masks):
    """The outputs of an LSTM layer, [M, T, units], with each of M masks of what it reads."""
    hidden = cell = np.zeros((len(masks), UNITS))
    outputs = []
    for step in range(x.shape[1]):
        total = (x[:, step] * masks) @ kernel + (hidden * recurrent_masks) @ recurrent
        write, keep, candidate, read = np.split(total + bias, 4, axis=-1)
        cell = sigmoid(keep) * cell + sigmoid(write) * np.tanh(candidate)
        hidden = sigmoid(read) * np.tanh(cell)
        outputs.append(hidden)
    return np.stack(outputs, axis=1)


@pytest.mark.parametrize("name", ["dropout", "recurrent_dropout"])
def test_masks_hold_for_a_call_and_are_those_of_each_layer(name):
    """Many rows have the moments of all masks that there are, each as likely as another."""
    rows, sizes = 8000, [P, UNITS + P]
    if name == "recurrent_dropout":
        sizes = [UNITS, UNITS]
    x = draw(1, 3, P)
    layer = stacked(return_state=False, seed=0, **{name: 0.5})
    layer.build(x.shape)
    weights = randomized(layer, 1.0).get_weights()
    every = 2.0 * np.array(list(np.ndindex(*[2] * sum(sizes))))
    first, second = np.split(every, sizes[:1], axis=1)
    one = np.ones(UNITS)
    both = ([first, one], [second, one])
    if name == "recurrent_dropout":
        ones = np.ones((len(every), 1))
        both = ([ones, first], [ones, second])
    inputs = np.repeat(x, len(every), axis=0)
    below = lstm(inputs, *weights[:3], *both[0])
    expected = lstm(np.concatenate([below, inputs], -1), *weights[3:], *both[1])
    repeated = np.repeat(x, rows, axis=0)
    found = [layer(repeated, training=True)]
    if name == "dropout":  # for the other one Keras has a mask for each gate
        keras.utils.set_random_seed(0)
        theirs = Keras(2, dropout=0.5)
        theirs(x)
        theirs.set_weights(weights)
        found.append(theirs(repeated, training=True)[0])
    for outputs in (np.reshape(each, [rows, -1]) for each in found):
        flat = expected.reshape(len(every), -1)
        assert np.abs(outputs.std(axis=0)).max() > 0.1
        assert_allclose(outputs.mean(axis=0), flat.mean(axis=0), atol=0.02)
        assert_allclose(np.cov(outputs.T), np.cov(flat.T), atol=0.01)


def test_each_layer_starts_from_numbers_of_its_own():
    keras.utils.set_random_seed(0)
    layer = stacked(3)
    layer.build((None, None, P))
    assert [(v.name, tuple(v.shape)) for v in layer.variables] == [
        (f"{name}_{i}", shape)
        for i, read in enumerate((P, UNITS + P, UNITS + P))
        for name, shape in (
            ("kernel", (read, 4 * UNITS)),
            ("recurrent_kernel", (UNITS, 4 * UNITS)),
            ("bias", (4 * UNITS,)),
        )
    ]
    assert np.abs(layer.kernels[1] - layer.kernels[2]).max() > 0.1
    for recurrent in layer.recurrent_kernels:
        assert_close(recurrent @ tf.transpose(recurrent), np.eye(UNITS), 1e-5)
        assert recurrent is layer.recurrent_kernels[0] or (
            np.abs(recurrent - layer.recurrent_kernels[0]).max() > 0.1
        )
    for bias in layer.biases:
        assert_close(bias, np.repeat([0, 1, 0, 0], UNITS), 0)


def test_from_a_layer_that_drops_says_what_it_leaves_out():
    layer = groups(dropout=0.1, recurrent_dropout=0.2, kernel_regularizer="l2")
    with pytest.warns(UserWarning, match="no recurrent_dropout, kernel_regularizer:"):
        ours = StackedLSTM.from_layer(layer, dropout=0.3)
    assert (ours.dropout, ours.recurrent_dropout) == (0.3, 0)
    unbuilt = EquilibriumTrellisLayer(6, groups=3, use_bias=False, seed=1)
    ours = StackedLSTM.from_layer(unbuilt)
    assert not ours.built and (ours.units, ours.num_layers, ours.seed) == (2, 3, 1)
    assert not (ours.skip_input or ours.use_bias or ours.unit_forget_bias)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (dict(units=0), "`units` must be a positive integer.*units=0"),
        (dict(layers=0), "`layers` must be a positive integer.*layers=0"),
        (dict(layers="relu"), "`layers` must be a positive integer.*'relu'"),
        (dict(dropout=1), r"`dropout` must be a number in \[0, 1\).*dropout=1"),
        (dict(recurrent_dropout=-1), "`recurrent_dropout` must be"),
        (
            dict(activation="relu"),
            "StackedLSTM has no argument `activation`.*keras.layers.LSTM.*relu",
        ),
        (dict(recurrent_activation="relu"), "StackedLSTM has no argument.*logistic"),
        (dict(unroll=True), "StackedLSTM has no argument.*Leave it out.*unroll=True"),
        (dict(implementation=3), "StackedLSTM has no argument.*Leave it out"),
        (dict(use_cudnn=True), "StackedLSTM has no argument.*Leave it out.*cuDNN"),
        (dict(depth=3), "StackedLSTM.*depth"),
    ],
)
def test_bad_arguments(arguments, message):
    with refuses(message):
        StackedLSTM(**{"units": 2, **arguments})


@pytest.mark.parametrize(
    "layer, message",
    [
        (keras.layers.LSTM(2), "EquilibriumTrellisLayer. Received: layer=<LSTM"),
        (TrellisLayer(4, 2, groups=2), "EquilibriumTrellisLayer. Received"),
        (EquilibriumTrellisLayer(4), "`layer` must have groups.*groups=1"),
        (
            EquilibriumTrellisLayer(4, groups=2, kernel_size=3),
            "`layer` must have kernel_size=2.*kernel_size=3",
        ),
        (
            EquilibriumTrellisLayer(4, groups=2, dilation_rate=(1, 2)),
            r"dilation_rate=\(1,\).*\(1, 2\)",
        ),
        (
            EquilibriumTrellisLayer(4, groups=2, weight_normalization=True),
            "weight_normalization=False",
        ),
        (
            EquilibriumTrellisLayer(4, groups=2, gate="gru"),
            "the gate of an LSTM.*gate='gru'",
        ),
    ],
)
def test_what_is_no_stack_of_lstms_is_refused(layer, message):
    with refuses(message):
        StackedLSTM.from_layer(layer)


def test_bad_states_and_caches():
    layer, x = stacked(), draw(BATCH, STEPS, P)
    layer(x)
    two = [draw(BATCH, UNITS)] * 2
    with refuses("`initial_state` must be 4 tensor"):
        layer(x, initial_state=two)
    with refuses("`cache` must be what `get_initial_cache`"):
        layer.stream(x, two)
