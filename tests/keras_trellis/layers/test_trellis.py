"""TrellisLayer against a NumPy network, `layers.LSTM`'s conventions, and itself."""

import dataclasses
import functools
import itertools
import zipfile
from typing import NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import layers
from numpy.testing import assert_allclose, assert_array_equal

import keras_trellis
from keras_trellis import TrellisLayer
from keras_trellis.core.trellis import trellis
from tests import nests, numpy_reference
from tests.keras_trellis.gradients import assert_no_second_gradient
from tests.refusals import refuses

assert_close = functools.partial(nests.assert_close, tolerance=1e-10)


class Result(NamedTuple):
    """Outputs [B, T, output_units], states [B, units], auxiliary [B, M, T, output_units]."""

    outputs: np.ndarray
    states: tuple
    auxiliary: tf.Tensor | None


P = 3  # input channels
UNITS = 6
N_STATES = {"lstm": 2, "gru": 1, "tanh": 1}


@pytest.fixture(scope="module", autouse=True)
def _in_float64():
    """Models and wrappers round what passes through them to their own format."""
    before = keras.config.dtype_policy(), keras.config.floatx()
    keras.config.set_dtype_policy("float64")
    keras.config.set_floatx("float64")
    yield
    keras.config.set_dtype_policy(before[0])
    keras.config.set_floatx(before[1])


def tuple_of(dilation_rate):
    return (dilation_rate,) if isinstance(dilation_rate, int) else tuple(dilation_rate)


def randomize(layer, seed=0, scale=0.4):
    """Gives every variable random values; those of norms and gains stay positive."""
    rng = np.random.default_rng(seed)
    for variable in layer.trainable_variables:
        values = scale * rng.normal(size=variable.shape)
        variable.assign(
            np.abs(values) + 0.3 if variable.path.endswith("_scale") else values
        )
    return layer


def make(units=UNITS, depth=3, p=P, seed=0, batch=None, **arguments):
    """A built layer in float64 with random variables."""
    arguments = {"return_sequences": True, **arguments}
    layer = TrellisLayer(units, depth, **arguments)
    layer.build((batch, None, p))
    return randomize(layer, seed)


def draw_inputs(batch=2, steps=5, p=P, seed=1):
    return np.random.default_rng(seed).normal(size=(batch, steps, p))


def draw_state(layer_or_gate="lstm", batch=2, units=UNITS, seed=2):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(batch, units)) for _ in range(N_STATES[layer_or_gate])]


def reference(
    layer,
    sequences,
    mask=None,
    *,
    initial_state=None,
    auxiliary_every=None,
    discard=0,
    depth=None,
    auxiliary_from="bottom",
    training=False,
):
    """What the plain network gives for the layer's weights."""
    depth = depth or layer.depth
    inner = []
    if auxiliary_every:
        count = range(auxiliary_every, depth + 1, auxiliary_every)
        inner = [*count]
        if auxiliary_from == "top":
            inner = sorted(depth - each for each in count if each < depth)
    initial = None if initial_state is None else tuple(map(tf.constant, initial_state))
    collected, states = trellis(
        dataclasses.replace(layer._network, depth=depth),
        layer._weights(tf.constant(sequences), training),
        tf.constant(sequences),
        initial,
        mask,
        stops=[*inner, depth],
    )
    collected = [each[:, discard:, UNITS - layer.output_units :] for each in collected]
    auxiliary = None
    if auxiliary_every:
        auxiliary = tf.stack(collected[: len(inner)], axis=1)
    return Result(collected[-1].numpy(), states, auxiliary)


@st.composite
def architectures(draw, gates=("lstm", "gru", "tanh")):
    """Arguments of a layer, every one that changes the equations."""
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    depth = draw(st.integers(1, 5))
    cycles = [1, 2, (1, 2), (1, 2, 4), (3, 1, 2), (9,), (1, 20)]
    return dict(
        depth=depth,
        gate=draw(st.sampled_from(gates)),
        kernel_size=draw(st.integers(1, 3)),
        dilation_rate=draw(
            st.sampled_from([it for it in cycles if len(tuple_of(it)) <= depth])
        ),
        groups=groups,
        inject_groups=groups > 1 and draw(st.booleans()),
        staggered=draw(st.booleans()),
        inject_every=draw(st.integers(1, 3)),
        output_units=draw(st.sampled_from([None, 1, 4, UNITS])),
        weight_normalization=draw(st.booleans()),
        use_bias=draw(st.booleans()),
    )


def weighted_sum(values, seed):
    """A scalar whose gradient is another one for every number."""
    return tf.reduce_sum(values * np.random.default_rng(seed).normal(size=values.shape))


# The equations.


@settings(max_examples=15)
@given(
    arguments=architectures(),
    batch=st.integers(1, 3),
    steps=st.integers(0, 7),
    carried=st.booleans(),
    auxiliary_every=st.sampled_from([None, 1, 2]),
    discard=st.integers(0, 2),
    left_out=st.integers(0, 4),
    auxiliary_from=st.sampled_from(["bottom", "top"]),
)
def test_equations(
    arguments, batch, steps, carried, auxiliary_every, discard, left_out, auxiliary_from
):
    layer = make(**arguments)
    x = draw_inputs(batch, steps)
    state = draw_state(arguments["gate"], batch) if carried else None
    depth = max(arguments["depth"] - left_out, 1)
    if auxiliary_every:
        # Counted from the top, the last level has no auxiliary output.
        highest = depth - 1 if auxiliary_from == "top" else depth
        auxiliary_every = min(auxiliary_every, highest) or None
    call = dict(
        initial_state=state,
        auxiliary_every=auxiliary_every,
        discard=min(discard, steps),
        depth=depth if left_out else None,
        auxiliary_from=auxiliary_from,
    )
    outputs, states, auxiliary = layer.propagate(x, **call)
    expected = reference(layer, x, **call)
    assert_close(outputs, expected.outputs)
    assert_close(tuple(states), expected.states)
    assert (auxiliary is None) == (expected.auxiliary is None)
    if auxiliary is not None:
        assert_close(auxiliary, expected.auxiliary)


def test_the_input_enters_all_groups():
    layer = make(groups=3, inject_groups=True)
    assert layer.kernel.shape == (1, P, 4 * UNITS)
    kernel = numpy_reference.dense_recurrent_kernel(
        np.asarray(layer.recurrent_kernel), 2, UNITS, 4, 3
    )
    x = draw_inputs()
    *_, (expected, _) = numpy_reference.levels(
        x, np.asarray(layer.kernel), kernel, np.asarray(layer.bias), depth=layer.depth
    )
    assert_close(layer(x), expected)


@pytest.mark.parametrize("gate", N_STATES)
def test_gradients_of_gradients(gate):
    """As a gradient penalty needs them; against differences."""
    layer, x = make(gate=gate, dilation_rate=(1, 2)), tf.constant(draw_inputs())
    kernel = layer.recurrent_kernel
    directions = [
        draw_inputs(seed=9),
        np.random.default_rng(8).normal(size=kernel.shape),
    ]

    def penalty(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = weighted_sum(layer(x), 0)
        return tf.reduce_sum(tape.gradient(total, x) ** 3)

    def slope(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = penalty(x)
        slopes = tape.gradient(total, [x, kernel.value])
        return tf.add_n(
            [tf.reduce_sum(s * d) for s, d in zip(slopes, directions, strict=True)]
        )

    def moved(distance):
        kernel.assign_add(distance * directions[1])
        result = penalty(x + distance * directions[0])
        kernel.assign_sub(distance * directions[1])
        return result

    expected = (moved(1e-6) - moved(-1e-6)) / 2e-6
    for run in (slope, tf.function(slope)):
        assert_close(run(x), expected, tolerance=1e-6)


def test_gradients_of_gradients_are_refused_in_mixed_precision():
    layer = make(dtype="mixed_bfloat16", batch=2)
    x = tf.constant(draw_inputs(steps=5), tf.float32)
    message = "gradients of gradients are not there in mixed prec"
    assert_no_second_gradient(layer, x, message)


@pytest.mark.parametrize("masked", [False, True])
def test_a_call_returns_what_propagate_does(masked):
    layer = make(return_state=True, output_units=4, zero_output_for_mask=masked)
    x, state = draw_inputs(), draw_state()
    mask = np.array([[1, 0, 1, 1, 0], [1, 1, 0, 0, 1]], bool) if masked else None
    call = dict(initial_state=state, mask=mask, auxiliary_every=2, discard=2)
    outputs, states, auxiliary = layer.propagate(x, **call)
    if masked:
        outputs = outputs * mask[:, 2:, None]
        auxiliary = auxiliary * mask[:, None, 2:, None]
    assert_close(layer(x, **call), (outputs, *states, auxiliary))
    alone = make(output_units=4, zero_output_for_mask=masked)
    assert_close(alone(x, **call), (outputs, auxiliary))
    assert_close(alone(x, **call | {"auxiliary_every": None}), outputs)


def test_what_a_call_leaves_out_and_adds_in_a_functional_model():
    layer = make(return_state=True, output_units=4, depth=5)
    inputs = keras.Input([5, P])
    levels = dict(auxiliary_every=2, auxiliary_from="top", depth=3)
    for how in (dict(auxiliary_every=2, discard=3), levels):
        results = layer(inputs, **how)
        model = keras.Model(inputs, results)
        x = draw_inputs()
        got = model(x)
        assert [each.shape for each in results] == [
            (None, *each.shape[1:]) for each in got
        ]
        assert_close(got, layer(x, **how))


@pytest.mark.parametrize(
    "counted_from, levels",
    [("top", (7, 23, 39)), ("bottom", (16, 32, 48))],
)
def test_auxiliary_levels_of_the_paper_and_of_its_code(counted_from, levels):
    """Of 55 levels every 16th: the text counts from the top, the released code from the bottom."""
    layer, x = make(2, 55), draw_inputs(1, 3)
    how = dict(auxiliary_every=16, auxiliary_from=counted_from)
    outputs, auxiliary = layer(x, **how)
    alone = [layer(x, depth=level) for level in levels]
    assert_close((auxiliary, outputs), (np.stack(alone, axis=1), layer(x)))


def test_a_graph_has_the_depth_that_it_is_called_with():
    """A call with fewer levels is a layer of this depth, to the last bit."""
    arguments = dict(dilation_rate=(1, 2), inject_every=2)
    layer, x = make(depth=3, **arguments), tf.constant(draw_inputs())
    run = tf.function(lambda depth: layer(x, depth=depth))
    for depth in (2, None, 2):
        alone = make(depth=depth or 3, **arguments)
        assert_array_equal(run(depth), tf.function(alone)(x))


@pytest.mark.parametrize(
    "arguments, call, message",
    [
        ({"return_sequences": False}, {"discard": 1}, "need `return_sequences=True`"),
        (
            {"return_sequences": False},
            {"auxiliary_every": 1},
            "need `return_sequences=True`",
        ),
        (
            {"stateful": True},
            {"auxiliary_every": 1},
            "must be None with `stateful=True`",
        ),
        ({"stateful": True}, {"discard": 6}, "at most the number of steps, 5"),
        ({"stateful": True}, {"depth": 2}, "`depth` must be None with `stateful=True`"),
    ],
)
def test_a_call_refuses_what_the_layer_cannot_return(arguments, call, message):
    layer = make(batch=2, **arguments)
    with refuses(message):
        layer(draw_inputs(), **call)


@pytest.mark.parametrize("return_sequences", [False, True])
@pytest.mark.parametrize("return_state", [False, True])
@pytest.mark.parametrize("gate", N_STATES)
def test_what_is_returned(return_sequences, return_state, gate):
    layer = make(
        gate=gate,
        return_sequences=return_sequences,
        return_state=return_state,
        output_units=4,
    )
    returned = layer(draw_inputs())
    if return_state:
        returned, *states = returned
        assert [tuple(s.shape) for s in states] == [(2, UNITS)] * N_STATES[gate]
    assert tuple(returned.shape) == ((2, 5, 4) if return_sequences else (2, 4))


@pytest.mark.parametrize("container", [list, tuple])
def test_initial_state_comes_in_any_sequence(container):
    layer = make()
    x, state = draw_inputs(), draw_state()
    expected = reference(layer, x, initial_state=state).outputs
    assert_close(layer(x, initial_state=container(state)), expected)
    assert_close(
        layer(x, initial_state=container(tf.constant(s) for s in state)), expected
    )


def test_initial_state_of_a_gate_with_one_state_may_stand_alone():
    layer = make(gate="gru")
    x, (h,) = draw_inputs(), draw_state("gru")
    assert_close(layer(x, initial_state=tf.constant(h)), layer(x, initial_state=[h]))


def test_states_of_one_call_start_the_next():
    layer = make(return_state=True)
    x = draw_inputs(steps=8)
    _, *states = layer(x[:, :4])
    expected = reference(layer, x[:, :4]).states
    second = reference(layer, x[:, 4:], initial_state=expected)
    assert_close(
        list(layer(x[:, 4:], initial_state=states)), [second.outputs, *second.states]
    )


@pytest.mark.parametrize("gate", N_STATES)
def test_get_initial_state(gate):
    layer = make(gate=gate)
    states = layer.get_initial_state(4)
    assert_close(list(states), [np.zeros((4, UNITS))] * N_STATES[gate])
    x = draw_inputs(4)
    assert_close(layer(x, initial_state=states), layer(x))
    dynamic = tf.function(
        lambda n: layer.get_initial_state(n),
        input_signature=[tf.TensorSpec([], tf.int32)],
    )
    assert_close(list(dynamic(4)), list(states))


def test_no_step_gives_no_output_and_the_initial_state():
    layer = make(return_state=True)
    state = draw_state()
    outputs, *states = layer(draw_inputs(steps=0), initial_state=state)
    assert outputs.shape == (2, 0, UNITS)
    assert_close(states, state)
    outputs, _, auxiliary = layer.propagate(draw_inputs(steps=0), auxiliary_every=1)
    assert auxiliary.shape == (2, 3, 0, UNITS)


@pytest.mark.parametrize("kernel_size", [1, 2, 3])
@pytest.mark.parametrize("weight_normalization", [False, True])
def test_the_number_of_variables_does_not_depend_on_depth(
    kernel_size, weight_normalization
):
    arguments = dict(kernel_size=kernel_size, weight_normalization=weight_normalization)
    shallow = make(depth=1, **arguments)
    deep = make(depth=9, dilation_rate=(1, 2), **arguments)
    expected = {
        "kernel": (kernel_size, P, 4 * UNITS),
        "recurrent_kernel": (kernel_size, UNITS, 4 * UNITS),
        "bias": (4 * UNITS,),
    }
    if weight_normalization:
        expected |= {"kernel_scale": (4 * UNITS,), "recurrent_scale": (4 * UNITS,)}
    for layer in (shallow, deep):
        assert {v.name: tuple(v.shape) for v in layer.trainable_variables} == expected


def test_a_layer_that_fit_builds_has_the_lengths_of_its_kernels():
    layer = TrellisLayer(4, 2, weight_normalization=True)
    model = keras.Sequential([layer, layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.0), "mse", jit_compile=False)
    model.fit(np.ones([2, 3, 1]), np.ones([2, 1]), verbose=0)
    for kernel, scale in (
        (layer.kernel, layer.kernel_scale),
        (layer.recurrent_kernel, layer.recurrent_scale),
    ):
        lengths = np.sqrt(np.square(np.asarray(kernel)).sum(axis=(0, 1)))
        assert_allclose(scale, lengths, rtol=1e-6)


@pytest.mark.parametrize("groups", [1, 2, 3])
@pytest.mark.parametrize("kernel_size", [1, 2])
def test_weight_normalization_changes_nothing_at_the_start(groups, kernel_size):
    arguments = dict(groups=groups, kernel_size=kernel_size, return_sequences=True)
    arguments |= dict(bias_initializer="random_normal")
    normed = TrellisLayer(UNITS, 3, weight_normalization=True, **arguments)
    plain = TrellisLayer(UNITS, 3, **arguments)
    x = draw_inputs()
    normed(x), plain(x)
    for name in ("kernel", "recurrent_kernel", "bias"):
        getattr(plain, name).assign(getattr(normed, name))
    assert_close(normed(x), plain(x))
    normed.kernel.assign(3 * normed.kernel)  # a direction: its length is of no account
    normed.recurrent_kernel.assign(2 * normed.recurrent_kernel)
    assert_close(normed(x), plain(x))
    normed.recurrent_scale.assign(2 * normed.recurrent_scale)
    plain.recurrent_kernel.assign(2 * plain.recurrent_kernel)
    assert_close(normed(x), plain(x))


def test_weights_that_are_set_keep_the_normalized_kernel_defined():
    layer = make(weight_normalization=True)
    layer.kernel.assign(np.zeros(layer.kernel.shape))
    got = gradients(layer, draw_inputs(), 1.0)
    assert all(np.isfinite(g).all() for g in got)


# How far an output looks back, and that it never looks ahead.


@pytest.mark.parametrize("gate", ["lstm", "gru"])
@pytest.mark.parametrize("kernel_size", [1, 2, 3])
@pytest.mark.parametrize("dilation_rate", [1, 3, (1, 2), (4, 1, 2)])
def test_receptive_field(gate, kernel_size, dilation_rate):
    layer = make(
        gate=gate, depth=4, kernel_size=kernel_size, dilation_rate=dilation_rate
    )
    dilations = list(itertools.islice(itertools.cycle(tuple_of(dilation_rate)), 4))
    reach = (
        1 + (kernel_size - 1) * sum(dilations)
        if kernel_size > 1
        else 1 + sum(dilations[1:])
    )
    assert layer.receptive_field == reach
    steps = reach + 4
    x = tf.constant(draw_inputs(1, steps))
    with tf.GradientTape() as tape:
        tape.watch(x)
        last = tf.reduce_sum(layer(x)[:, -1])
    used = np.abs(tape.gradient(last, x).numpy()[0]).max(-1) > 0
    assert used.any() and steps - used.argmax() == reach


@settings(max_examples=15)
@given(arguments=architectures(), at=st.integers(0, 11))
def test_nan_goes_neither_back_nor_beyond_the_receptive_field(arguments, at):
    layer = make(**arguments)
    x = draw_inputs(1, 12)
    x[0, at] = np.nan
    outputs = np.asarray(layer(x))[0]
    assert np.isfinite(outputs[:at]).all()
    assert np.isfinite(outputs[at + layer.receptive_field :]).all()
    assert not np.isfinite(outputs[at]).all()


# Masks.


MASK = np.array(
    [
        [True, True, True, False, False, False],
        [False, False, True, True, True, True],
        [False, True, False, True, True, False],
        [False, False, False, False, False, False],
        [True, True, True, True, True, True],
    ]
)


def lstm(**arguments):
    layer = layers.LSTM(UNITS, **arguments)
    layer.build((None, None, P))
    return randomize(layer)


@pytest.fixture(params=["layers.LSTM", "TrellisLayer"])
def make_either(request):
    """The conventions of masks hold for both layers."""
    if request.param == "TrellisLayer":
        return lambda **arguments: make(**{"return_sequences": False, **arguments})
    return lstm


def test_states_of_masked_rows(make_either):
    layer = make_either(return_state=True)
    x, state = draw_inputs(5, 6), draw_state(batch=5)
    returned = [np.asarray(r) for r in layer(x, mask=MASK, initial_state=state)]
    for row, valid in enumerate(MASK):
        if not valid.any():
            assert_close(
                [r[row] for r in returned], [np.zeros(UNITS), *[s[row] for s in state]]
            )
            continue
        alone = layer(
            x[row : row + 1, valid], initial_state=[s[row : row + 1] for s in state]
        )
        assert_close([r[row] for r in returned], [np.asarray(a)[0] for a in alone])


@pytest.mark.parametrize("return_sequences", [False, True])
@pytest.mark.parametrize("return_state", [False, True])
def test_shape_and_mask_are_computed_as_in_keras(return_sequences, return_state):
    arguments = dict(return_sequences=return_sequences, return_state=return_state)
    ours, theirs = make(**arguments), lstm(**arguments)
    for shape in [(2, 5, P), (None, None, P), (4, None, P)]:
        assert tf.nest.map_structure(
            str, _as_lists(ours.compute_output_shape(shape))
        ) == (tf.nest.map_structure(str, _as_lists(theirs.compute_output_shape(shape))))
    x, mask = tf.constant(draw_inputs(5, 6)), tf.constant(MASK)
    got, expected = ours.compute_mask(x, mask), theirs.compute_mask(x, mask)
    assert_same_masks(got, expected)
    assert_same_masks(ours.compute_mask(x, None), theirs.compute_mask(x, None))


def assert_same_masks(got, expected):
    assert isinstance(got, list) == isinstance(expected, list)
    got, expected = (m if isinstance(m, list) else [m] for m in (got, expected))
    for g, e in zip(got, expected, strict=True):
        assert (g is None) == (e is None)
        assert e is None or np.array_equal(g, e)


def _as_lists(nest):
    return [_as_lists(n) if isinstance(n, (list, tuple)) else n for n in nest]


def gradients(layer, x, cotangent, **call):
    """Gradients of sum(outputs * cotangent) + sum(states) for inputs and variables."""
    x = tf.constant(x)
    variables = [v.value for v in layer.trainable_variables]
    with tf.GradientTape() as tape:
        tape.watch(x)
        returned = layer(x, **call)
        outputs, *states = returned if layer.return_state else [returned]
        loss = tf.reduce_sum(outputs * cotangent) + sum(
            tf.reduce_sum(s) for s in states
        )
    return [g.numpy() for g in tape.gradient(loss, [x, *variables])]


def test_masking_layer_and_embedding_reach_it():
    ids = np.array([[5, 2, 0, 0], [1, 0, 3, 0], [0, 0, 0, 0]])
    embedding = layers.Embedding(7, P, mask_zero=True)
    layer = make()
    model = keras.Sequential([embedding, layer])
    expected = reference(layer, np.asarray(embedding(ids)), ids != 0).outputs
    assert_close(model(ids), expected)
    x = np.asarray(draw_inputs(3, 4))
    x[ids == 0] = -1.0
    model = keras.Sequential([layers.Masking(-1.0), layer])
    assert_close(model(x), reference(layer, x, ids != 0).outputs)


def test_ragged_input_counts_as_right_padding():
    layer = make(return_state=True)
    x = draw_inputs(4, 5)
    lengths = [3, 0, 5, 1]
    mask = np.arange(5) < np.array(lengths)[:, None]
    ragged = tf.RaggedTensor.from_tensor(x, lengths)
    expected = reference(layer, x, mask)
    assert_close(list(layer(ragged)), [expected.outputs, *expected.states])
    traced = tf.function(
        layer.__call__,
        input_signature=[
            tf.RaggedTensorSpec([None, None, P], tf.float64, ragged_rank=1)
        ],
    )
    assert_close(list(traced(ragged)), [expected.outputs, *expected.states])
    state = draw_state(batch=4)
    expected = reference(layer, x, mask, initial_state=state)
    assert_close(
        list(layer(ragged, initial_state=state)), [expected.outputs, *expected.states]
    )


# Streams and stateful layers: chunks are one long pass.


def stream(layer, x, cuts, mask=None):
    """Outputs of a stream cut at `cuts`, beside the last cache."""
    cache = layer.get_initial_cache(len(x))
    outputs = []
    for start, end in itertools.pairwise([0, *cuts, x.shape[1]]):
        chunk_mask = None if mask is None else mask[:, start:end]
        chunk, cache = layer.stream(x[:, start:end], cache, mask=chunk_mask)
        assert chunk.shape[1] == end - start
        outputs.append(chunk)
    return np.concatenate(outputs, axis=1), cache


@pytest.mark.parametrize(
    "steps, training, compiles",
    [
        (9_000, True, True),
        (90, True, False),
        (None, True, False),
        (9_000, False, False),
    ],
)
def test_xla_is_for_training_on_much(steps, training, compiles):
    """A server has it switched off, and what is small would have to be compiled for too long."""
    layer = make(dilation_rate=(1, 2), return_sequences=True)
    graph = tf.function(layer).get_concrete_function(
        tf.TensorSpec([None, steps, P], tf.float64), training=training
    )
    functions = graph.graph.as_graph_def().library.function
    assert any(each.attr["_XlaMustCompile"].b for each in functions) == compiles


@pytest.mark.parametrize(
    "dtype, tolerance", [("float64", 1e-10), ("mixed_bfloat16", 0.05)]
)
def test_a_stateful_layer_trains_on_single_steps(dtype, tolerance):
    """Its masks and gradients are those of a layer that remembers nothing but the same state."""
    found = []
    for stateful in (True, False):
        layer = make(
            depth=5, batch=2, stateful=stateful, dtype=dtype, dilation_rate=(1, 2), kernel_size=3,
            dropout=0.3, recurrent_dropout=0.4, weight_dropout=0.3, return_state=True,
        )  # fmt: skip
        layer.seed_generator.state.assign([7, 0])
        call = dict(initial_state=draw_state(), training=True)
        x = draw_inputs(steps=1)
        found.append(gradients(layer, tf.cast(x, layer.compute_dtype), 1, **call))
        assert [each.dtype for each in found[-1][1:]] == [
            v.dtype for v in layer.variables[:3]
        ]
    for got, expected in zip(*found, strict=True):
        assert np.abs(expected).max() > 0.1
        assert_allclose(got.astype(float), expected.astype(float), atol=tolerance)


def test_stateful_with_an_initial_state_starts_from_it():
    layer = make(stateful=True, batch=2, return_state=True)
    x, state = draw_inputs(2, 8), draw_state()
    layer(draw_inputs(2, 3, seed=9))
    expected = reference(layer, x, initial_state=state)
    first, *_ = layer(x[:, :3], initial_state=state)
    second, *states = layer(x[:, 3:])
    assert_close([first, second], [expected.outputs[:, :3], expected.outputs[:, 3:]])
    assert_close([states, layer.states], [expected.states, expected.states])


def test_remembered_inputs_are_dropped_too():
    layer = TrellisLayer(
        UNITS,
        1,
        stateful=True,
        return_sequences=True,
        use_bias=False,
        dropout=0.999,
        seed=0,
    )
    layer(np.ones((1, 3, P)), training=True)
    # Nothing but the remembered inputs could reach this step, and the call's mask drops them.
    assert_close(layer(np.zeros((1, 1, P)), training=True), np.zeros((1, 1, UNITS)))


def test_what_a_stateful_layer_remembers_is_no_weight():
    layer, stateful = make(), make(stateful=True, batch=2)
    stateful(draw_inputs())
    stateful.set_weights(layer.get_weights())
    stateful.reset_state()
    assert_close(stateful(draw_inputs()), layer(draw_inputs()))
    assert layer.states is None


def test_a_stateful_model_trains_and_saves(tmp_path):
    model = keras.Sequential(
        [
            keras.Input(batch_shape=(4, 5, P)),
            TrellisLayer(UNITS, 2, stateful=True, dropout=0.1),
            layers.Dense(1),
        ]
    )
    model.compile("sgd", "mse")
    x = draw_inputs(8, 5)
    model.fit(x, x[:, 0, :1], batch_size=4, shuffle=False, verbose=0)
    assert np.abs(model.layers[0].states[0]).max() > 0
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    model.layers[0].reset_state()
    assert_close(again(x[:4]), model(x[:4]))
    assert_close(again(x[4:]), model(x[4:]))


# Keras's models and wrappers.


def test_functional_model_of_unknown_sizes_with_symbolic_state():
    layer = make(return_state=True, output_units=4)
    inputs = keras.Input((None, P))
    state = [keras.Input((UNITS,)) for _ in range(2)]
    outputs, *states = layer(inputs, initial_state=state)
    assert outputs.shape == (None, None, 4)
    assert [s.shape for s in states] == [(None, UNITS)] * 2
    model = keras.Model([inputs, *state], [outputs, *states])
    for batch, steps in [(2, 5), (3, 1)]:
        x, values = draw_inputs(batch, steps), draw_state(batch=batch)
        expected = reference(layer, x, initial_state=values)
        assert_close(list(model([x, *values])), [expected.outputs, *expected.states])
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    assert_close(list(clone([x, *values])), [expected.outputs, *expected.states])


# Dropout. Gates without a nonlinearity make the masks readable from the outputs.


@keras.saving.register_keras_serializable("tests")
class LinearGate(keras_trellis.Gate):
    """h' = the pre-activation."""

    name, blocks, states = "linear", 1, 1

    def step(self, blocks, shifted_state):
        return (blocks[0],)


@keras.saving.register_keras_serializable("tests")
class ShiftGate(keras_trellis.Gate):
    """h' = h_{t-d}, whatever the convolution says."""

    name, blocks, states = "shift", 1, 1

    def step(self, blocks, shifted_state):
        return (shifted_state[0] + 0 * blocks[0],)


def linear(units, p, kernel, recurrent_kernel, **arguments):
    """A layer of linear gates without bias; each kernel a list of taps, or of numbers."""
    arguments = dict(use_bias=False, return_sequences=True) | arguments
    layer = TrellisLayer(units, kernel_size=len(kernel), gate=LinearGate(), **arguments)
    layer.build((None, None, p))
    layer.kernel.assign([tap * np.ones((p, units)) for tap in kernel])
    layer.recurrent_kernel.assign(
        [tap * np.ones((units, units)) for tap in recurrent_kernel]
    )
    return layer


def assert_is_dropped(mask, rate, undropped=1.0):
    """Holds zeros at about the rate, and else the value that keeps the mean."""
    mask = np.asarray(mask)
    kept = undropped / (1 - rate)
    assert np.all((mask == 0) | np.isclose(mask, kept, rtol=1e-6))
    assert (
        abs((mask == 0).mean() - rate)
        < 5 * np.sqrt(rate * (1 - rate) / mask.size) + 1e-9
    )


def test_input_dropout_is_one_mask_for_all_steps():
    p = 30
    layer = linear(p, p, [0, np.eye(p)], [0, 0], depth=1, dropout=0.3, seed=1)
    mask = np.asarray(layer(np.ones((20, 4, p)), training=True))
    assert_is_dropped(mask[:, 0], 0.3)
    for t in range(4):
        assert np.array_equal(mask[:, t], mask[:, 0])
    assert not np.array_equal(mask[0], mask[1])
    again = np.asarray(layer(np.ones((20, 4, p)), training=True))
    assert not np.array_equal(mask, again)


@pytest.mark.parametrize("depth", [2, 3])
def test_recurrent_dropout_is_one_mask_for_all_steps_and_levels(depth):
    q = 30
    layer = linear(
        q, q, [0, np.eye(q)], [0, np.eye(q)], depth=depth, inject_every=depth,
        recurrent_dropout=0.3, seed=1,
    )  # fmt: skip
    mask = np.asarray(layer(np.ones((20, 4, q)), training=True))
    assert_is_dropped(mask[:, 0] != 0, 0.3, undropped=0.7)
    # The first level reads zeros; each other one multiplies by the same mask.
    assert_allclose(mask.max(), 0.7 ** -(depth - 1), rtol=1e-6)
    for t in range(4):
        assert np.array_equal(mask[:, t], mask[:, 0])
    assert not np.array_equal(mask[0], mask[1])


def test_recurrent_dropout_drops_the_history_that_enters_the_convolution():
    q = 30
    layer = linear(q, q, [0, 0], [np.eye(q), 0], depth=1, recurrent_dropout=0.3, seed=1)
    outputs = layer(
        np.ones((20, 2, q)), initial_state=[np.ones((20, q))], training=True
    )
    assert_is_dropped(outputs[:, 0], 0.3)
    assert not np.asarray(outputs[:, 1]).any()


def test_no_dropout_touches_the_state_that_the_gate_shifts():
    layer = TrellisLayer(
        UNITS, 2, gate=ShiftGate(), return_sequences=True,
        dropout=0.5, recurrent_dropout=0.5, weight_dropout=0.5, seed=1,
    )  # fmt: skip
    (h,) = draw_state("gru")
    outputs = layer(draw_inputs(steps=4), initial_state=[h], training=True)
    assert_close(outputs[:, 0], h)
    assert_close(outputs[:, 1], h)
    assert not np.asarray(outputs[:, 2:]).any()


def test_weight_dropout_drops_the_past_taps_of_the_input_kernel():
    p, q = 20, 30
    layer = linear(q, p, [1, 1, 1], [0, 0, 0], depth=1, weight_dropout=0.4, seed=1)
    x = np.zeros((p, 3, p))
    x[:, 0] = np.eye(p)
    taps = np.asarray(layer(x, training=True))  # [p, 3, q]: present, one back, two back
    assert np.array_equal(taps[:, 0], np.ones((p, q)))
    assert_is_dropped(taps[:, 1], 0.4)
    assert_is_dropped(taps[:, 2], 0.4)
    assert not np.array_equal(taps[:, 1], taps[:, 2])


def test_weight_dropout_drops_the_past_taps_of_the_recurrent_kernel():
    q = 24
    layer = linear(q, q, [0, 0], [1, 1], depth=1, weight_dropout=0.4, seed=1)
    x = np.zeros((q, 1, q))
    past = layer(x, initial_state=[np.eye(q)], training=True)
    assert_is_dropped(past[:, 0], 0.4)
    layer = linear(
        q,
        q,
        [0, np.eye(q)],
        [0, 1],
        depth=2,
        inject_every=2,
        weight_dropout=0.4,
        seed=1,
    )
    present = layer(np.eye(q)[:, None], training=True)
    assert np.array_equal(present[:, 0], np.ones((q, q)))


def test_weight_dropout_drops_the_only_tap_there_is():
    q = 24
    layer = linear(q, q, [1], [0], depth=1, weight_dropout=0.4, seed=1)
    assert_is_dropped(layer(np.eye(q)[:, None], training=True)[:, 0], 0.4)
    layer = linear(
        q, q, [np.eye(q)], [1], depth=2, inject_every=2, weight_dropout=0.4, seed=1
    )
    # Both kernels' masks.
    two = np.asarray(layer(np.eye(q)[:, None], training=True)[:, 0])
    assert_is_dropped(two[two.any(axis=1)] * 0.6, 0.4)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("kernel_size", [1, 2])
def test_a_call_uses_the_masks_that_are_drawn_for_it(groups, kernel_size):
    layer = make(
        groups=groups, kernel_size=kernel_size, dilation_rate=(1, 2), depth=4, return_state=True,
        weight_normalization=True, dropout=0.3, recurrent_dropout=0.4, weight_dropout=0.5,
    )  # fmt: skip
    x, state = draw_inputs(5, 6), draw_state(batch=5)
    layer.seed_generator.state.assign([5, 7])
    returned = layer(x, initial_state=state, training=True)
    layer.seed_generator.state.assign([5, 7])
    expected = reference(layer, x, initial_state=state, training=True)
    assert_close(list(returned), [expected.outputs, *expected.states])
    assert np.abs(returned[0] - layer(x, initial_state=state)[0]).max() > 1e-3


def test_the_masks_of_one_call_are_independent():
    q = 40
    arguments = dict(use_bias=False, return_sequences=True, seed=1)
    layer = linear(
        q, q, [0, np.eye(q)], [0, np.eye(q)], depth=2, inject_every=2,
        dropout=0.5, recurrent_dropout=0.5, **arguments,
    )  # fmt: skip
    product = layer(np.ones((20, 1, q)), training=True)
    assert_is_dropped(product, 0.75)  # of two equal masks: 0.5
    # Row b reads row b of the input kernel's past tap, and of the recurrent one's.
    layer = linear(q, q, [1, 0], [1, 0], depth=1, weight_dropout=0.5, **arguments)
    x = np.zeros((q, 2, q))
    x[:, 0] = np.eye(q)
    both = layer(x, initial_state=[np.eye(q)], training=True)
    recurrent, entering = np.asarray(both[:, 0]), np.asarray(both[:, 1])
    assert_is_dropped(recurrent, 0.5)
    assert_is_dropped(recurrent * entering, 0.75)


DROPPING = dict(dropout=0.3, recurrent_dropout=0.3, weight_dropout=0.3)


def test_seeds_repeat_eager_in_a_graph_and_under_xla():
    x = draw_inputs()

    def run(wrap=lambda f: f, seed=7):
        layer = make(**DROPPING)
        copy = TrellisLayer.from_config(layer.get_config() | {"seed": seed})
        copy.build((None, None, P))
        randomize(copy)
        call = wrap(lambda x: copy(x, training=True))
        return [np.asarray(call(tf.constant(x))) for _ in range(2)]

    expected = run()
    assert_close(run(), expected)
    assert_close(run(tf.function), expected)
    assert_close(run(lambda f: tf.function(f, jit_compile=True)), expected)
    assert not np.allclose(run(seed=8)[0], expected[0])
    keras.utils.set_random_seed(3)
    first = run(seed=None)
    assert not np.allclose(run(seed=None)[0], first[0])
    keras.utils.set_random_seed(3)
    assert_close(run(seed=None), first)


def test_everything_dropped_stays_finite():
    layer = make(
        weight_normalization=True, weight_dropout=0.999, recurrent_dropout=0.999, seed=1
    )
    got = gradients(layer, draw_inputs(), 1.0, training=True)
    assert all(np.isfinite(g).all() for g in got)


REPLICAS = """
import numpy as np
import tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
import keras_trellis

strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
x = np.random.default_rng(0).normal(size=(4, 6, 20)).astype("float32")
for name in ("dropout", "recurrent_dropout", "weight_dropout"):
    with strategy.scope():
        layer = keras_trellis.TrellisLayer(20, 3, return_sequences=True, seed=1, **{name: 0.5})
        layer.build((None, None, 20))
    run = tf.function(lambda: strategy.run(lambda: layer(x, training=True)))
    calls = [strategy.experimental_local_results(run()) for _ in range(3)]
    masks = [np.asarray(replica) for call in calls for replica in call]
    assert len(masks) == 6
    for i, mask in enumerate(masks):
        for other in masks[:i]:
            assert not np.allclose(mask, other), name
print("all masks differ")
"""


def test_no_two_replicas_share_a_mask(forks):
    done = forks.run("-c", REPLICAS)
    assert done.stdout.strip().endswith("all masks differ"), done.stderr[-2000:]


# A gate of the user's own.


@keras.saving.register_keras_serializable("tests")
class LeakyGate(keras_trellis.Gate):
    """Three states: h' = tanh(a) m', m' = r m_{t-d} + (1 - r) sigmoid(b), n' = n_{t-d} + m'."""

    name, blocks, states = "leaky", 2, 3

    def __init__(self, rate, **arguments):
        super().__init__(**arguments)
        self.rate = rate

    def get_config(self):
        return super().get_config() | {"rate": self.rate}

    def step(self, blocks, shifted_state):
        a, b = blocks
        _, m, n = shifted_state
        m = self.rate * m + (1 - self.rate) * self.recurrent_activation(b)
        return self.activation(a) * m, m, n + m


def test_a_gate_of_the_users_own(tmp_path):
    layer = make(gate=LeakyGate(0.8), return_state=True, dilation_rate=(1, 2), depth=4)
    x = draw_inputs()
    state = [np.random.default_rng(i).normal(size=(2, UNITS)) for i in range(3)]
    expected = reference(layer, x, initial_state=state)
    assert_close(
        list(layer(x, initial_state=state)), [expected.outputs, *expected.states]
    )
    assert layer.compute_output_shape((2, 5, P)) == ((2, 5, UNITS), *[(2, UNITS)] * 3)
    outputs, _ = stream(layer, x, [2])
    assert_close(outputs, reference(layer, x).outputs)
    model = keras.Sequential([keras.Input((None, P)), layer])
    model.layers[0].return_state = False
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras").layers[-1]
    assert isinstance(again.gate, LeakyGate) and again.gate.rate == 0.8
    assert_close(again(x), layer(x))


def test_a_gate_that_returns_the_wrong_number_of_states_is_told():
    class Short(LeakyGate):
        def step(self, blocks, shifted_state):
            return super().step(blocks, shifted_state)[:2]

    with pytest.raises(ValueError):
        make(gate=Short(0.5))(draw_inputs())


# Number formats.


# Arguments and configuration.


def test_a_file_with_dilations_that_no_level_uses_loads_with_a_warning(tmp_path):
    """Up to 0.2 a layer took them."""
    path, x = tmp_path / "model.keras", draw_inputs()
    inputs = keras.Input((None, P))
    layer = make(depth=2, dilation_rate=(1, 3), name="old")
    model = keras.Model(inputs, layer(inputs))
    model.save(path)
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    config = parts["config.json"].replace(b"[1, 3]", b"[1, 3, 9]")
    assert config != parts["config.json"]
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in (parts | {"config.json": config}).items():
            archive.writestr(name, content)
    with pytest.warns(UserWarning, match="dilation_rate") as warned:
        loaded = keras.models.load_model(path)
    (said,) = warned
    assert said.filename == __file__
    assert str(said.message).endswith("Received: dilation_rate=[1, 3, 9], depth=2")
    assert_close(loaded(x), model(x))
    assert loaded.get_layer("old").get_config() == layer.get_config()


def test_a_config_without_unused_dilations_is_quiet(recwarn):
    layer = make(depth=3, dilation_rate=(1, 3))
    config = layer.get_config()
    assert TrellisLayer.from_config(config).get_config() == config
    layers.Bidirectional(layer)
    assert not recwarn.list


@pytest.mark.parametrize(
    "arguments",
    [
        dict(),
        dict(
            kernel_size=3, dilation_rate=(1, 2), gate="gru", output_units=4, groups=2,
            inject_every=2, weight_normalization=True, dropout=0.1, recurrent_dropout=0.2,
            weight_dropout=0.3, return_sequences=True, return_state=True, go_backwards=True,
            zero_output_for_mask=True, use_bias=False, seed=5,
            kernel_initializer=keras.initializers.RandomNormal(0.01, seed=1),
            recurrent_initializer="orthogonal", bias_initializer="ones",
            kernel_regularizer=keras.regularizers.L2(1e-3), recurrent_regularizer="l1",
            bias_regularizer="l2", kernel_constraint="max_norm",
            recurrent_constraint=keras.constraints.UnitNorm(), bias_constraint="non_neg",
            name="here", trainable=False,
        ),
    ],
    ids=["defaults", "everything"],
)  # fmt: skip
def test_config_round_trip(arguments):
    layer = TrellisLayer(UNITS, 4, **arguments)
    config = layer.get_config()
    for name, value in arguments.items():
        if name == "gate" or isinstance(value, (int, float, bool, tuple)):
            assert name in config
    copy = TrellisLayer.from_config(config)
    assert copy.get_config() == config
    serialized = keras.saving.serialize_keras_object(layer)
    assert serialized["registered_name"].startswith("keras_trellis")
    assert keras.saving.deserialize_keras_object(serialized).get_config() == config
    x = draw_inputs().astype("float32")
    layer(x), copy(x)
    copy.set_weights(layer.get_weights())
    assert_close(
        tf.nest.flatten(copy(x, mask=np.ones((2, 5), bool))),
        tf.nest.flatten(layer(x, mask=np.ones((2, 5), bool))),
    )


def test_regularizers_and_constraints_act():
    layer = TrellisLayer(
        UNITS, 3, kernel_regularizer=keras.regularizers.L2(1.0),
        recurrent_regularizer=keras.regularizers.L2(10.0), bias_constraint="non_neg",
        bias_regularizer=keras.regularizers.L1(1.0), bias_initializer="ones",
    )  # fmt: skip
    layer(draw_inputs())
    expected = np.sum(np.asarray(layer.kernel) ** 2)
    expected += 10 * np.sum(np.asarray(layer.recurrent_kernel) ** 2)
    expected += np.abs(np.asarray(layer.bias)).sum()
    assert_close(sum(float(loss) for loss in layer.losses), expected)
    assert layer.bias.constraint is not None


@pytest.mark.parametrize(
    "name, value",
    [
        ("units", 0), ("units", -3), ("units", 2.5), ("units", "six"),
        ("depth", 0), ("depth", -1), ("depth", 1.5), ("depth", None),
        ("kernel_size", 0), ("kernel_size", 1.5),
        ("dilation_rate", 0), ("dilation_rate", ()), ("dilation_rate", (1, 0)),
        ("dilation_rate", (1, -2)), ("dilation_rate", 1.5), ("dilation_rate", "wide"),
        ("gate", "lstn"), ("gate", 7),
        ("output_units", UNITS + 1), ("output_units", 0), ("output_units", -1),
        ("groups", 0), ("groups", 4), ("groups", UNITS + 1), ("groups", 1.5),
        ("inject_every", 0), ("inject_every", -1),
        ("dropout", 1.2), ("dropout", -0.1), ("dropout", 1.0), ("dropout", "much"),
        ("recurrent_dropout", 1.2), ("recurrent_dropout", -0.1),
        ("weight_dropout", 1.2), ("weight_dropout", -0.1),
    ],
)  # fmt: skip
def test_bad_arguments(name, value):
    arguments = {"units": UNITS, "depth": 3, name: value}
    with refuses(name) as error:
        TrellisLayer(**arguments)
    assert str(value) in str(error.value)


def test_unknown_gate_names_those_there_are():
    with refuses("lstm.*gru.*tanh|gru.*lstm.*tanh"):
        TrellisLayer(UNITS, 3, gate="lstn")


@pytest.mark.parametrize("shape", [(2, 5), (2, 5, P, 1), (2, 5, None)], ids=str)
def test_bad_input_shapes_at_build(shape):
    with pytest.raises(ValueError) as error:
        TrellisLayer(UNITS, 3).build(shape)
    assert str(shape) in str(error.value)


def test_bad_calls():
    layer = make()
    x = draw_inputs()
    with pytest.raises(ValueError):
        layer(draw_inputs(p=P + 1))
    with refuses("mask"):
        layer(x, mask=np.ones((2, 4), bool))
    with refuses("`sequences` must be padded.*RaggedTensor"):
        layer.propagate(tf.RaggedTensor.from_tensor(x, [5, 3]))
    with refuses("auxiliary_every.*0"):
        layer.propagate(x, auxiliary_every=0)
    with refuses("`depth` must be.*depth=4, layer.depth=3"):
        layer(x, depth=4)
    with refuses("at most `depth`.*every=3, depth=2"):
        layer.propagate(x, depth=2, auxiliary_every=3)
    with refuses("below `depth`, counted from the top.*every=3"):
        layer.propagate(x, auxiliary_every=3, auxiliary_from="top")
    with refuses("'bottom' or 'top'.*auxiliary_from='left'"):
        layer.propagate(x, auxiliary_every=1, auxiliary_from="left")
    with refuses("discard.*-1"):
        layer.propagate(x, discard=-1)
    with refuses("discard=6"):
        layer.propagate(x, discard=6)
    with refuses("auxiliary_every.*4"):
        layer.propagate(x, auxiliary_every=4)  # deeper than the layer: no output at all
    with refuses("cache"):
        layer.stream(x, layer.get_initial_cache(3))
    other = make(depth=5, dilation_rate=3)
    with refuses("cache"):
        layer.stream(x, other.get_initial_cache(2))


@pytest.mark.parametrize("dilation_rate", [1, (1, 2, 4), (2, 2)])
def test_the_last_output_where_the_graph_knows_no_length(dilation_rate):
    """Of fewer steps than it depends on, and of more."""
    layer = make(depth=4, dilation_rate=dilation_rate, return_sequences=False)
    spec = tf.TensorSpec([None, None, P], tf.float64)
    last = tf.function(layer, input_signature=[spec])
    for steps in (0, 1, 2, 5, layer.receptive_field, 20):
        x = draw_inputs(2, steps)
        expected = reference(layer, x).outputs
        assert_close(last(x), expected[:, -1] if steps else np.zeros((2, UNITS)))
