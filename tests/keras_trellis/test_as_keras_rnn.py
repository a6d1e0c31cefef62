"""What Keras's own tests of LSTM, Bidirectional and TimeDistributed say of behaviour, said of ours.

After `lstm_test.py`, `bidirectional_test.py` and `time_distributed_test.py` of Keras 3.15.1 and the
checks that they make of every layer, written anew. What has no number of an LSTM's in it runs with
`layers.LSTM` as well: what is asked of our layers is what an LSTM does.
"""

import functools
import json
import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from keras_trellis import (
    EquilibriumTrellisLayer,
    LSTMGate,
    TrellisClassifier,
    TrellisLayer,
)
from keras_trellis.recurrent import StackedLSTM, WeightDropLSTM
from tests import nests
from tests.refusals import refuses

close = functools.partial(nests.assert_close, tolerance=2e-5)

KINDS = {
    "LSTM": layers.LSTM,
    # Reaches back over all of the tests' steps.
    "TrellisLayer": lambda units, **arguments: TrellisLayer(
        units, 3, dilation_rate=(1, 2, 4), **arguments
    ),
    "EquilibriumTrellisLayer": lambda units, **arguments: EquilibriumTrellisLayer(
        units, tolerance=1e-6, **arguments
    ),
    "WeightDropLSTM": WeightDropLSTM,
    # With more layers it has more states.
    "StackedLSTM": lambda units, **arguments: StackedLSTM(units, layers=1, **arguments),
}
OURS = {name: make for name, make in KINDS.items() if "Trellis" in name}
MASK = np.array(
    [[1, 1, 1, 1, 1, 0], [1, 1, 0, 1, 0, 0], [0, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0]],
    bool,
)
LENGTHS = [6, 3, 0, 1]


@pytest.fixture(params=KINDS, scope="module")
def make(request):
    return KINDS[request.param]


@pytest.fixture(params=OURS, scope="module")
def make_ours(request):
    return OURS[request.param]


def draw(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def copy_of(layer, **changes):
    """A layer of the same weights and of changed arguments."""
    copy = type(layer).from_config(layer.get_config() | changes)
    copy.build((None, None, layer.kernel.shape[-2] if hasattr(layer, "kernel") else 3))
    copy.set_weights(layer.get_weights())
    return copy


# What Keras asks of every layer


@pytest.mark.parametrize(
    "arguments, losses",
    [
        (dict(dropout=0.5), 0),
        (dict(dropout=0.5, recurrent_dropout=0.5), 0),
        (
            dict(
                return_sequences=True,
                bias_regularizer="l1",
                kernel_regularizer="l2",
                recurrent_regularizer="l2",
            ),
            3,
        ),
    ],
)
def test_basics(make, arguments, losses):
    layer, x = make(3, **arguments), draw(3, 2, 4)
    copy = type(layer).from_config(json.loads(json.dumps(layer.get_config())))
    assert copy.get_config() == layer.get_config()
    assert dir(copy) == dir(layer)
    layer.build(x.shape)
    assert (len(layer.trainable_weights), len(layer.non_trainable_weights)) == (3, 0)
    expected = (3, 2, 3) if layer.return_sequences else (3, 3)
    symbolic = keras.KerasTensor((3, 2, 4))
    for outputs in (
        copy(symbolic),
        layer(symbolic, training=True),
        layer(x, training=True),
    ):
        assert tuple(outputs.shape) == expected
    assert tuple(layer.compute_output_shape(x.shape)) == expected
    assert len(layer.losses) == losses and layer.supports_masking


# LSTM


def test_a_bias_and_one_that_forgets_later_change_the_output(make):
    if make is WeightDropLSTM:
        pytest.skip("its biases are those of its variant")
    x, outputs = 0.1 * draw(3, 6, 4), []
    for arguments in ({}, {"use_bias": False}, {"unit_forget_bias": True}):
        arguments = {
            "unit_forget_bias": False,
            "bias_initializer": "zeros",
            **arguments,
        }
        layer = make(
            3, kernel_initializer="ones", recurrent_initializer="zeros", **arguments
        )
        outputs.append(np.asarray(layer(x)))
    close(outputs[1], outputs[0])
    assert np.abs(outputs[2] - outputs[0]).max() > 0.01


def test_backwards_is_forwards_on_the_reversed_sequence(make):
    forwards = make(3, return_sequences=True, return_state=True)
    x, state = draw(4, 6, 3), [draw(4, 3, seed=1), draw(4, 3, seed=2)]
    forwards(x)
    backwards = copy_of(forwards, go_backwards=True)
    close(backwards(x, initial_state=state), forwards(x[:, ::-1], initial_state=state))
    expected = forwards(x[:, ::-1], mask=MASK[:, ::-1])
    close(backwards(x, mask=MASK), expected)


def copy_of_stateful(layer, batch=2):
    stateful = type(layer).from_config(layer.get_config() | {"stateful": True})
    stateful.build((batch, None, 3))
    stateful.set_weights(layer.get_weights())
    return stateful


def test_states_of_a_stateful_layer_are_assigned_to(make):
    x, state = draw(2, 4, 3), [draw(2, 4, seed=1), draw(2, 4, seed=2)]
    layer = make(4, return_sequences=True)
    expected = layer(x, initial_state=state)
    stateful = copy_of_stateful(layer)
    stateful(draw(2, 4, 3, seed=3))
    for variable, value in zip(stateful.states, state, strict=True):
        variable.assign(value)
    close([each.numpy() for each in stateful.states], state)
    close(stateful(x[:, :2]), expected[:, :2])
    close(stateful(x[:, 2:]), expected[:, 2:])
    with refuses("[Ss]hape"):
        stateful.states[0].assign(np.zeros((2, 5)))
    stateful.reset_state()
    close(stateful(x), layer(x))


def test_states_of_a_stateful_layer_count_as_arrays_and_tensors(make):
    layer = make(4, stateful=True)
    layer(draw(2, 3, 3))
    hidden, _ = layer.states
    values = hidden.numpy()
    assert tuple(hidden.shape) == (2, 4) and hidden.dtype == "float32"
    assert np.abs(values).max() > 0
    for same in (
        np.asarray(hidden),
        tf.convert_to_tensor(hidden),
        hidden.value,
        hidden[:],
    ):
        close(same, values)
    close(
        [hidden + 1, 1 - hidden, hidden * hidden], [values + 1, 1 - values, values**2]
    )
    close(
        [tf.abs(hidden), keras.ops.convert_to_numpy(hidden)], [np.abs(values), values]
    )
    close(tf.ones([2, 4]) + hidden, 1 + values)
    again = make(4)
    expected = again(
        draw(2, 3, 3), initial_state=[each.numpy() for each in layer.states]
    )
    close(again(draw(2, 3, 3), initial_state=layer.states), expected)


def test_masking(make):
    """A row is what its valid steps are alone; a masked step repeats what was before it."""
    x = draw(4, 6, 3)
    layer = make(2, return_sequences=True)
    outputs = np.asarray(layer(x, mask=MASK))
    for row in range(3):
        alone = np.asarray(layer(x[row : row + 1, MASK[row]]))[0]
        before = np.concatenate([np.zeros((1, 2)), alone])
        close(outputs[row], before[np.cumsum(MASK[row])])
    close(outputs[3], np.zeros((6, 2)))
    zeroed = copy_of(layer, zero_output_for_mask=True)
    close(zeroed(x, mask=MASK), outputs * MASK[..., None])
    last = copy_of(layer, return_sequences=False)
    close(last(x, mask=MASK), outputs[:, -1])


@pytest.mark.parametrize("dtype", ["bool", "float32", "int32"])
def test_a_mask_may_have_an_axis_of_one_channel(make, dtype):
    x = draw(4, 6, 3)
    for arguments in ({}, dict(return_sequences=True, zero_output_for_mask=True)):
        layer = make(2, **arguments)
        close(layer(x, mask=MASK.astype(dtype)[..., None]), layer(x, mask=MASK))
    close(layer(x, mask=tf.constant(MASK)[..., None]), layer(x, mask=MASK))


def test_a_mask_of_the_reversed_outputs_is_reversed(make_ours):
    """An LSTM's is not: the layer after it skips the wrong steps."""
    backwards = make_ours(2, return_sequences=True, go_backwards=True)
    after, x = make_ours(2), draw(4, 6, 3)
    masked = layers.Masking()(np.where(MASK[..., None], x, 0))
    expected = after(backwards(masked).numpy(), mask=MASK[:, ::-1])
    close(after(backwards(masked)), expected)
    inputs = keras.Input((None, 3))
    model = keras.Model(inputs, after(backwards(layers.Masking()(inputs))))
    close(model(np.where(MASK[..., None], x, 0)), expected)


# Ragged input, which an LSTM refuses


def ragged_and_masked(channels=3):
    x = draw(4, 6, channels)
    mask = np.arange(6) < np.array(LENGTHS)[:, None]
    return (
        tf.RaggedTensor.from_tensor(x, LENGTHS),
        np.where(mask[..., None], x, 0),
        mask,
    )


@pytest.mark.parametrize("after", ["LSTM", "TrellisLayer"])
def test_lengths_of_ragged_input_reach_the_second_layer(make_ours, after):
    ragged, padded, mask = ragged_and_masked()
    first, second = make_ours(4, return_sequences=True), KINDS[after](2)
    expected = second(first(padded, mask=mask), mask=mask)
    model = keras.Sequential([first, second])
    close(model.predict(ragged, verbose=0), expected)
    inputs = keras.Input((None, 3), ragged=True)
    functional = keras.Model(inputs, second(layers.Dropout(0.5)(first(inputs))))
    close(functional(ragged), expected)
    states = copy_of(first, return_state=True)
    close(second(states(ragged)[0]), expected)
    close(second(first(ragged, mask=mask[..., None])), expected)


def test_a_loss_counts_the_steps_of_ragged_input_alone(make_ours):
    ragged, padded, mask = ragged_and_masked()
    layer, targets = make_ours(2, return_sequences=True), draw(4, 6, 2, seed=1)
    model = keras.Sequential([layer])
    model.compile("sgd", "mse")
    loss = model.evaluate(ragged, targets, verbose=0)
    errors = (np.asarray(layer(padded, mask=mask)) - targets)[mask] ** 2
    close(loss, errors.mean())


def test_embedded_ragged_ids(make_ours):
    ids = tf.ragged.constant([[5, 2, 0, 1], [3], []])
    embedding, layer = layers.Embedding(7, 3, mask_zero=True), make_ours(4)
    padded = ids.to_tensor()
    close(layer(embedding(ids)), layer(embedding(padded)))
    assert (
        np.abs(layer(embedding(padded)) - layer(embedding(padded).numpy())).max() > 1e-3
    )


def test_ragged_input_in_bidirectional(make_ours):
    ragged, padded, mask = ragged_and_masked()
    last = layers.Bidirectional(make_ours(4))
    close(last(ragged), last(padded, mask=mask))
    with refuses(r"`sequences` must be padded.*Bidirectional.*row_lengths"):
        layers.Bidirectional(make_ours(4, return_sequences=True))(ragged)


def test_ragged_input_of_a_classifier():
    ragged, padded, mask = ragged_and_masked()
    model = TrellisClassifier(3, TrellisLayer(4, 3), dropout=0.2, seed=0)
    expected = model(padded, mask=mask)
    close(model(ragged), expected)
    model.compile("sgd")
    model.fit(ragged, np.arange(4) % 3, verbose=0)
    assert np.abs(model(padded, mask=mask) - expected).max() > 1e-6
    model = TrellisClassifier(3, TrellisLayer(4, 3), permutation=[5, 0, 1, 2, 4, 3])
    close(model(ragged), model(padded, mask=mask))


# Constraints, regularizers and initializers

SHAPES = [
    dict(),
    dict(kernel_size=3, gate="gru"),
    dict(kernel_size=1),
    dict(groups=2),
    dict(groups=3, kernel_size=3, gate="tanh"),
    dict(groups=2, kernel_size=1),
    dict(groups=2, inject_groups=True),
]


def dense_kernels(layer):
    """The kernels as matrices that a convolution's taps are multiplied with, joined."""
    found = []
    for name in ("kernel", "recurrent_kernel"):
        kernel = np.asarray(getattr(layer, name))
        if layer.groups > 1 and name == "recurrent_kernel":
            kernel = dense_of_groups(layer, kernel)
        found.append(kernel.reshape(-1, kernel.shape[-1]))
    return found


def dense_of_groups(layer, kernel):
    """By its definition: past taps connect each group to itself, the present one to the next."""
    groups, taps, blocks = layer.groups, layer.kernel_size, layer.gate.blocks
    width = layer.units // groups
    dense = np.zeros((taps, groups, width, blocks, groups, width))
    for index, block in enumerate(kernel.reshape(-1, width, blocks, width)):
        tap, group = divmod(index, groups)
        dense[tap, group, :, :, group + (tap == taps - 1), :] = block
    return dense.reshape(taps, layer.units, -1)


def built(**arguments):
    layer = TrellisLayer(6, 3, **arguments)
    layer.build((None, None, 5))
    return layer


def constrain(layer):
    """Does what an optimizer does after a step."""
    for seed, variable in enumerate(layer.trainable_variables):
        variable.assign(draw(*variable.shape, seed=seed))
    for variable in layer.trainable_variables:
        if variable.constraint is not None:
            variable.assign(variable.constraint(variable))


@pytest.mark.parametrize("arguments", SHAPES)
def test_constraints_act_on_each_output_channel_over_all_of_its_inputs(arguments):
    layer = built(
        kernel_constraint="unit_norm", recurrent_constraint="unit_norm", **arguments
    )
    constrain(layer)
    for matrix in dense_kernels(layer):
        norms = np.linalg.norm(matrix, axis=0)
        # With one tap the first group reads no channel at all.
        read = np.any(matrix, axis=0)
        close(norms[read], np.ones(read.sum()))
        assert read.sum() >= layer.gate.blocks
    layer = built(kernel_constraint=keras.constraints.MaxNorm(1, axis=1), **arguments)
    constrain(layer)
    norms = np.linalg.norm(dense_kernels(layer)[0], axis=1)
    assert norms.max() < 1.0001 and norms.max() > 0.9


def test_a_constraint_of_a_layer_in_a_model_is_an_lstms():
    """In `fit`: no norm of an output channel is above the bound, and some reach it."""
    x, norms = draw(16, 5, 3), []
    for make in (
        layers.LSTM,
        lambda units, **arguments: TrellisLayer(units, 2, **arguments),
    ):
        layer = make(
            4, kernel_constraint="max_norm", recurrent_constraint=max_norm(0.3)
        )
        model = keras.Sequential([layer, layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.5), "mse", jit_compile=False)
        model.fit(x, draw(16, 1, seed=1), verbose=0)
        kernel = layer.get_weights()[1]
        norms.append(np.linalg.norm(kernel.reshape(-1, kernel.shape[-1]), axis=0).max())
    close(norms, [0.3, 0.3], tolerance=1e-4)


def max_norm(value):
    return keras.constraints.MaxNorm(value)


@pytest.mark.parametrize("arguments", SHAPES)
@pytest.mark.parametrize("mode", ["rows", "columns"])
def test_regularizers_see_a_matrix(arguments, mode):
    regularizer = keras.regularizers.OrthogonalRegularizer(0.1, mode)
    layer = built(
        kernel_regularizer=regularizer, recurrent_regularizer=regularizer, **arguments
    )
    matrices = [tf.constant(each, tf.float32) for each in dense_kernels(layer)]
    close(layer.losses, [regularizer(each) for each in matrices])
    with tf.GradientTape() as tape:
        loss = tf.add_n(layer.losses)
    assert all(
        np.isfinite(each).all()
        for each in tape.gradient(loss, layer.trainable_variables[:2])
    )


@pytest.mark.parametrize("arguments", SHAPES)
def test_the_identity_is_that_of_the_matrix(arguments):
    layer = built(
        kernel_initializer="identity", recurrent_initializer="identity", **arguments
    )
    for matrix, name in zip(
        dense_kernels(layer), ("kernel", "recurrent_kernel"), strict=True
    ):
        expected = np.eye(*matrix.shape)
        if layer.groups > 1 and name == "recurrent_kernel":
            expected *= dense_of_groups(
                layer, np.ones(layer.recurrent_kernel.shape)
            ).reshape(expected.shape)
        close(matrix, expected)
    assert layer.kernel.dtype == "float32"
    lstm = layers.LSTM(
        6, kernel_initializer="identity", recurrent_initializer="identity"
    )
    lstm.build((None, None, 5))
    if arguments == dict(kernel_size=1):
        close([each[0] for each in layer.get_weights()[:2]], lstm.get_weights()[:2])


def test_a_recurrent_network_that_starts_as_the_identity_sums_its_inputs():
    """Of the identity the past tap alone has a part: h_t = h_{t-1} + x_t, as in a SimpleRNN."""
    x = np.abs(draw(2, 4, 3))
    gate = {"class_name": "keras_trellis>TanhGate", "config": {"activation": "relu"}}
    recurrent = layers.SimpleRNN(
        3,
        activation="relu",
        kernel_initializer="identity",
        recurrent_initializer="identity",
    )
    layer = TrellisLayer(3, 4, gate=gate, recurrent_initializer="identity")
    layer.build((None, None, 3))
    layer.kernel.assign(np.stack([np.zeros((3, 3)), np.eye(3)]))
    close(layer(x), recurrent(x))


def test_a_config_gives_back_the_users_own_constraint():
    constraint = keras.constraints.MaxNorm(3)
    regularizer = keras.regularizers.OrthogonalRegularizer()
    layer = built(kernel_constraint=constraint, recurrent_regularizer=regularizer)
    assert (
        layer.kernel_constraint is constraint
        and layer.recurrent_regularizer is regularizer
    )
    copy = TrellisLayer.from_config(json.loads(json.dumps(layer.get_config())))
    assert copy.kernel_constraint.get_config() == constraint.get_config()
    assert isinstance(
        copy.recurrent_regularizer, keras.regularizers.OrthogonalRegularizer
    )


# Rates that are set afterwards


@pytest.mark.parametrize("name", ["dropout", "recurrent_dropout", "weight_dropout"])
@pytest.mark.parametrize("stateful", [False, True])
def test_dropout_may_be_set_at_any_time(make_ours, name, stateful):
    layer = make_ours(8, seed=5, stateful=stateful, return_sequences=True)
    x = draw(2, 6, 3)
    before, variables = np.asarray(layer(x, training=True)), len(layer.variables)
    setattr(layer, name, 0.5)
    layer.reset_state()
    dropped = np.asarray(layer(x, training=True))
    assert np.abs(dropped - before).max() > 1e-3
    layer.reset_state()
    close(layer(x), before)
    assert layer.get_config()[name] == 0.5 and len(layer.variables) == variables
    fresh = type(layer).from_config(layer.get_config())
    fresh.build(x.shape)
    fresh.set_weights(layer.get_weights())
    close(fresh(x, training=True), dropped)
    setattr(layer, name, 0)
    layer.reset_state()
    close(layer(x, training=True), before)
    with refuses(rf"`{name}` must be a number in \[0, 1\).*1.5"):
        setattr(layer, name, 1.5)


def test_dropout_that_is_set_acts_in_fit():
    keras.utils.set_random_seed(0)
    x = draw(8, 4, 3)
    layer = TrellisLayer(4, 1, seed=1)
    model = keras.Sequential([keras.Input((4, 3)), layer])
    losses = []
    for rate in (0.0, 0.9):
        layer.dropout = rate
        model.compile(keras.optimizers.SGD(0.0), "mse", jit_compile=False)
        losses += [
            model.fit(x, np.ones((8, 4)), verbose=0).history["loss"][0]
            for _ in range(2)
        ]
    close(losses[0], losses[1])
    assert min(abs(losses[2] - losses[1]), abs(losses[3] - losses[2])) > 1e-3


@pytest.mark.parametrize("name", ["dropout", "output_dropout"])
def test_dropout_of_a_classifier_may_be_set_at_any_time(name):
    model, x = TrellisClassifier(3, TrellisLayer(4, 3), seed=0), draw(2, 6, 3)
    before = np.asarray(model(x, training=True))
    setattr(model, name, 0.5)
    assert np.abs(model(x, training=True) - before).max() > 1e-3
    close(model(x), before)
    with refuses(f"`{name}` must be"):
        setattr(model, name, -1)


# What the arguments say


def test_the_config_has_what_was_given():
    """Who changes `units` in it gets outputs of that many channels."""
    for cls, own in ((TrellisLayer, {"depth": 2}), (EquilibriumTrellisLayer, {})):
        config = cls(units=8, **own).get_config()
        assert cls.from_config(config | {"units": 4}).output_units == 4
        config = cls(units=8, output_units=8, **own).get_config()
        assert config["output_units"] == 8


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_unit_forget_bias(make, groups, dtype):
    if make is WeightDropLSTM:
        pytest.skip("its biases are those of its variant")
    arguments = {"groups": groups} if make in OURS.values() else {}
    layer = make(
        4, unit_forget_bias=True, bias_initializer=keras.initializers.Constant(0.5), dtype=dtype,
        **arguments,
    )  # fmt: skip
    layer.build((None, None, 3))
    close(layer.get_weights()[2], np.repeat([0.5, 1, 0.5, 0.5], 4))
    assert layer.get_config()["unit_forget_bias"] is True
    assert (
        len(make(4, unit_forget_bias=True, use_bias=False, **arguments)(draw(2, 3, 3)))
        == 2
    )


def test_inject_groups_needs_groups(make_ours):
    assert not make_ours(2).inject_groups
    assert make_ours(2, groups=2, inject_groups=True).inject_groups
    with refuses("`inject_groups` needs.*inject_groups=True, groups=1"):
        make_ours(2, inject_groups=True)


def test_unit_forget_bias_needs_a_forget_block(make_ours):
    class Coupled(LSTMGate):
        forget_block = 0

    layer = make_ours(2, gate=Coupled(), unit_forget_bias=True)
    layer.build((None, None, 3))
    close(layer.bias, np.array([1, 1, 0, 0, 0, 0, 0, 0]))
    assert not make_ours(2).unit_forget_bias
    for gate in ("gru", "tanh"):
        with refuses(f"`unit_forget_bias` needs.*gate='{gate}'"):
            make_ours(2, gate=gate, unit_forget_bias=True)


@pytest.mark.parametrize(
    "arguments, said",
    [
        (dict(implementation=3), "implementation=3"),
        (dict(unroll=True), "unroll=True"),
        (dict(use_cudnn=True), "use_cudnn=True"),
    ],
)
def test_what_an_lstm_takes_and_we_do_not_says_what_to_write(
    make_ours, arguments, said
):
    with refuses(f"`{next(iter(arguments))}`.*{re.escape(said)}"):
        make_ours(16, **arguments)


@pytest.mark.parametrize("activation", ["relu", keras.activations.relu])
def test_an_activation_in_the_place_of_the_depth_says_what_to_write(activation):
    with refuses(r"`depth`.*by name: `activation=.*relu"):
        TrellisLayer(16, activation)


# Bidirectional


def test_bidirectional_basics(make):
    x = draw(3, 2, 4)
    for arguments, channels in (
        (dict(layer=make(4)), 8),
        (
            dict(
                layer=make(4),
                backward_layer=make(4, go_backwards=True),
                merge_mode="sum",
            ),
            4,
        ),
    ):
        wrapper = layers.Bidirectional(**arguments)
        assert (
            wrapper(x).shape == (3, channels) == wrapper.compute_output_shape(x.shape)
        )
        assert wrapper(keras.KerasTensor((3, 2, 4))).shape == (3, channels)
        assert (len(wrapper.trainable_weights), len(wrapper.non_trainable_weights)) == (
            6,
            0,
        )
        copy = layers.Bidirectional.from_config(
            json.loads(json.dumps(wrapper.get_config()))
        )
        copy.build(x.shape)
        copy.set_weights(wrapper.get_weights())
        close(copy(x), wrapper(x))


MERGES = {
    "concat": lambda y, z: np.concatenate([y, z], -1),
    "sum": np.add,
    "ave": lambda y, z: (y + z) / 2,
    "mul": np.multiply,
}


@pytest.mark.parametrize("merge_mode", [*MERGES, None])
def test_bidirectional_merges_both_directions(make, merge_mode):
    x, mask = draw(4, 6, 3), MASK
    wrapper = layers.Bidirectional(
        make(2, return_sequences=True), merge_mode=merge_mode
    )
    wrapper(x)
    for given in (None, mask):
        y = np.asarray(wrapper.forward_layer(x, mask=given))
        z = np.asarray(wrapper.backward_layer(x, mask=given))[:, ::-1]
        expected = [y, z] if merge_mode is None else MERGES[merge_mode](y, z)
        close(wrapper(x, mask=given), expected)


def test_bidirectional_statefulness(make):
    x = draw(2, 4, 3)
    wrapper = layers.Bidirectional(make(2, stateful=True))
    wrapper(x)
    second = np.asarray(wrapper(x))
    wrapper.reset_state()
    first = np.asarray(wrapper(x))
    close(wrapper(x), second)
    assert np.abs(first - second).max() > 1e-4
    assert len(wrapper.states) == 4


def test_bidirectional_states(make):
    """Four go in, two for each direction; four come out, and an output before them."""
    x, state = draw(2, 4, 3), [draw(2, 2, seed=seed) for seed in range(4)]
    wrapper = layers.Bidirectional(make(2, return_state=True))
    outputs, *states = wrapper(x, initial_state=state)
    forward = wrapper.forward_layer(x, initial_state=state[:2])
    backward = wrapper.backward_layer(x, initial_state=state[2:])
    close(outputs, np.concatenate([forward[0], backward[0]], -1))
    close(states, [*forward[1:], *backward[1:]])


# TimeDistributed


def test_time_distributed_is_the_layer_at_each_place(make):
    x = draw(2, 3, 6, 4)
    layer = make(5, return_sequences=True)
    wrapper = layers.TimeDistributed(layer)
    outputs = wrapper(x)
    assert outputs.shape == (2, 3, 6, 5) == wrapper.compute_output_shape(x.shape)
    assert layers.TimeDistributed(make(5))(keras.Input((3, 6, 4))).shape == (
        None,
        3,
        5,
    )
    for place in range(3):
        close(outputs[:, place], layer(x[:, place]))


def test_time_distributed_masks(make):
    x, mask = draw(4, 2, 6, 3), np.stack([MASK, MASK[:, ::-1]], axis=1)
    layer = make(2)
    wrapper = layers.TimeDistributed(layer)
    outputs = wrapper(x, mask=mask)
    for place in range(2):
        close(outputs[:, place], layer(x[:, place], mask=mask[:, place]))
    for shape in ((4, 3, 6), (5, 2, 6)):
        with refuses("`mask` passed to the `TimeDistributed` layer"):
            wrapper(x, mask=np.ones(shape, bool))
