"""The tensorized LSTM against NumPy, its causality and its chunks, and in Keras."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from keras_trellis import TensorizedLSTM
from keras_trellis.engine import recurrence
from keras_trellis.recurrent import TensorizedLSTMCell
from tests import nests
from tests.keras_trellis import litert
from tests.keras_trellis.gradients import with_gradients
from tests.keras_trellis.recurrent import numpy_tensorized
from tests.refusals import refuses

assert_close = functools.partial(nests.assert_close, tolerance=1e-12)

B, T, P, CHANNELS = 3, 5, 3, 2
MASK = np.array([[1, 1, 1, 0, 0], [0, 1, 0, 1, 1], [1, 1, 1, 1, 1]], bool)
FLAGS = {"return_sequences": True, "return_state": True, "dtype": "float64"}


def make(size=3, **arguments):
    """A layer of random weights, and sequences for it."""
    layer = TensorizedLSTM(CHANNELS, size, **{**FLAGS, **arguments})
    rng = np.random.default_rng(0)
    layer.build((B, None, P))
    for variable in layer.trainable_variables:
        variable.assign(0.8 * rng.normal(size=variable.shape))
    return layer, rng.normal(size=(B, T, P))


def states_for(layer, seed=3):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=each.shape) for each in layer.get_initial_state(B)]


@st.composite
def drawn(draw):
    """Arguments of a layer: all kernels, edges, ranks and forms."""
    rank = draw(st.sampled_from([2, 2, 3, 4]))
    sizes = {2: [1, 2, 3, 5, 8], 3: [1, 2, 3], 4: [2]}[rank]
    arguments = {
        "size": draw(st.sampled_from(sizes)),
        "rank": rank,
        "kernel_size": draw(st.integers(2, {2: 6, 3: 5, 4: 3}[rank])),
        "cell": draw(st.sampled_from(["lstm", "lstm", "rnn"])),
        "memory_convolution": draw(st.booleans()),
    }
    normalizes = arguments["cell"] == "lstm" and draw(st.booleans())
    return arguments | {"channel_normalization": normalizes}


few = settings(max_examples=15, deadline=None)


@given(arguments=drawn())
@few
def test_the_equations(arguments):
    layer, x = make(**arguments)
    weights = {each.name: each.numpy() for each in layer.trainable_variables}
    initial, axes = states_for(layer), arguments["rank"] - 1
    outputs, state = numpy_tensorized.run(
        weights,
        x,
        initial,
        (arguments["size"],) * axes,
        (arguments["kernel_size"],) * axes,
        layer.delay,
    )
    found = layer(x, initial_state=initial)
    assert_close(found, (outputs, *state), tolerance=1e-10)


@given(arguments=drawn())
@few
def test_an_output_depends_on_the_inputs_up_to_its_step(arguments):
    """By brute force, and by gradients."""
    layer, x = make(**arguments)
    rows = np.repeat(x[:1], 1 + T, 0)
    for time in range(T):
        rows[1 + time, time] += 1.0
    outputs = layer(rows)[0].numpy()
    changes = np.abs(outputs[1:] - outputs[:1]).max(-1)  # [changed step, step]
    upper = np.triu(np.ones((T, T), bool))
    assert (changes[upper] > 1e-9).all() and (changes[~upper] < 1e-14).all()
    x = tf.constant(x)
    for training in (False, True):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            parts = tf.unstack(layer(x, training=training)[0], axis=1)
        for time in (0, 2):
            gradient = np.abs(tape.gradient(parts[time], x)).max((0, 2))
            assert (gradient[: time + 1] > 0).all() and not gradient[time + 1 :].any()


@pytest.mark.parametrize("kernel_size", [2, 3, 4, 5, 6, 7])
def test_depth_and_delay(kernel_size):
    for size in (1, 2, 3, 5, 8):
        layer = TensorizedLSTM(2, size, kernel_size=kernel_size)
        even = kernel_size - kernel_size % 2
        assert layer.depth == np.ceil(2 * size / even) == layer.delay + 1
        assert layer.receptive_field is None


@given(arguments=drawn(), cut=st.integers(1, T - 1), training=st.booleans())
@few
def test_chunks_are_one_pass(arguments, cut, training):
    """Whatever the further steps read: the layer runs them over zeros."""
    layer, x = make(**arguments)
    initial = states_for(layer)
    outputs, *states = layer(x, initial_state=initial, training=training)
    first, *between = layer(x[:, :cut], initial_state=initial, training=training)
    second, *after = layer(x[:, cut:], initial_state=between, training=training)
    assert_close((tf.concat([first, second], 1), *after), (outputs, *states))
    delayed, _ = make(delayed=True, **arguments)
    further = np.random.default_rng(4).normal(size=(B, layer.delay, P))
    late = delayed(np.concatenate([x, further], 1), initial_state=initial)[0]
    assert_close(late[:, layer.delay :], outputs)


@given(
    arguments=drawn(),
    valid=st.lists(st.booleans(), min_size=B * T, max_size=B * T),
    training=st.booleans(),
    go_backwards=st.booleans(),
    zero_output_for_mask=st.booleans(),
)
@few
def test_a_masked_step_is_skipped(arguments, valid, training, **flags):
    layer, x = make(**arguments, **flags)
    plain, _ = make(**arguments)
    mask = np.array(valid).reshape(B, T)
    initial = states_for(layer)
    spoiled = np.where(mask[..., None], x, np.nan)
    outputs, *states = layer(
        spoiled, initial_state=initial, mask=mask, training=training
    )
    order = slice(None, None, -1) if flags["go_backwards"] else slice(None)
    for row in range(B):
        of_row, kept = x[row, order], mask[row, order]
        first = [each[row : row + 1] for each in initial]
        expected, after, last = np.zeros((T, CHANNELS)), first, np.zeros(CHANNELS)
        if kept.any():
            valid_only, *after = plain(of_row[kept][None], initial_state=first)
            expected[kept] = valid_only[0]
        for time in range(T):
            if kept[time]:
                last = expected[time]
            elif not flags["zero_output_for_mask"]:
                expected[time] = last
        assert_close(outputs[row], expected)
        assert_close([each[row : row + 1] for each in states], after)


@given(arguments=drawn(), masked=st.booleans(), unroll=st.booleans())
@few
def test_the_late_form_is_the_cell_in_the_loop_of_keras(arguments, masked, unroll):
    layer, x = make(delayed=True, unroll=unroll, **arguments)
    loop = keras.layers.RNN(layer.cell, **FLAGS)
    loop.built = True
    initial, mask = states_for(layer), MASK if masked else None
    expected = with_gradients(loop, layer, x, initial, mask)

    def train(*args, **kwargs):
        return layer(*args, training=True, **kwargs)

    assert_close(
        with_gradients(layer, layer, x, initial, mask), expected, tolerance=1e-10
    )
    assert_close(
        with_gradients(train, layer, x, initial, mask), expected, tolerance=1e-10
    )


@pytest.mark.parametrize("masked", [False, True])
def test_a_training_graph_of_unknown_sizes(masked):
    layer, x = make(rank=3, channel_normalization=True)
    signature = [tf.TensorSpec([None, None, P], tf.float64)]
    signature += [tf.TensorSpec([None, None], tf.bool)] * masked

    @tf.function(input_signature=signature)
    def run(x, mask=None):
        def call(x, **flags):
            return layer(x, training=True, **flags)

        return with_gradients(call, layer, x, [], mask)

    for rows, steps in [(B, T), (1, 2)]:
        part, mask = x[:rows, :steps], MASK[:rows, :steps] if masked else None
        found = run(part, mask) if masked else run(part)
        assert_close(found, with_gradients(layer, layer, part, [], mask))


# Theorem C of the paper's appendix: softmax kernels make each memory cell a convex combination.


@given(arguments=drawn())
@settings(max_examples=10, deadline=None)
def test_the_memory_convolution_is_a_convex_combination(arguments):
    """With i = 0 and f = 1 a step is that convolution, which is linear; so here is its matrix.

    So a gradient that goes back through it has a sum of absolute values no greater than before,
    whatever the number of steps (Leifert et al. 2016, theorems 17 and 18).
    """
    layer, x = make(**arguments | {"cell": "lstm", "memory_convolution": True})
    cell = layer.cell
    bias = cell.bias.numpy()
    bias[CHANNELS : 2 * CHANNELS], bias[2 * CHANNELS : 3 * CHANNELS] = -1e4, 1e4
    cell.bias.assign(bias)
    size = cell.state_size[0]
    hidden = np.random.default_rng(6).normal(size=(1, size)).repeat(size, 0)
    inputs = x[:1, 0].repeat(size, 0)
    _, (_, carried) = cell(inputs, [hidden, np.eye(size)])
    matrix = np.reshape(carried, [size // CHANNELS, CHANNELS, -1, CHANNELS])
    within = np.einsum("icoc->cio", matrix)  # of each channel alone
    assert (within >= 0).all()
    assert_allclose(within.sum(1), 1, rtol=1e-12)
    assert_allclose(within[0], within[1], rtol=1e-12)  # one kernel for all
    others = matrix.sum((0, 2)) - np.diag(np.diag(matrix.sum((0, 2))))
    assert_array_equal(others, 0)


# Kinship


@pytest.mark.parametrize("size", [1, 2, 4])
def test_it_is_a_stack_of_lstms_skewed_in_time(size):
    """K = 2 without the memory convolution; b_h = 0 and the state zero."""
    layer, x = make(size, kernel_size=2, memory_convolution=False)
    cell = layer.cell
    cell.bias.assign(tf.zeros_like(cell.bias))
    below, own = tf.unstack(cell.recurrent_kernel)

    def blocks(kernel):  # g, i, f, o -> i, f, g, o
        g, i, f, o = tf.split(kernel, 4, axis=-1)
        return tf.concat([i, f, g, o], -1)

    outputs = x @ cell.kernel + cell.input_bias
    for _ in range(size):
        lstm = keras.layers.LSTM(CHANNELS, return_sequences=True, dtype="float64")
        lstm.build((B, T, CHANNELS))
        zeros = np.zeros(4 * CHANNELS)
        lstm.set_weights([blocks(below), blocks(own), zeros])
        outputs = lstm(outputs)
    assert_close(layer(x)[0], outputs)


# In Keras


def streamed(layer, chunks):
    """The outputs of chunks through a cache, and the last cache."""
    cache, pieces = layer.get_initial_cache(B), []
    for chunk in chunks:
        piece, cache = layer.stream(chunk, cache)
        pieces.append(piece)
    return tf.concat(pieces, 1), cache


def test_streaming_at_once_and_late():
    """Step by step and in chunks through a cache, and through the cell alone."""
    layer, x = make(4, channel_normalization=True)
    whole, *states = layer(x)
    outputs, cache = streamed(layer, np.split(x, T, axis=1))
    assert_close((outputs, *cache[:2]), (whole, *states))
    delayed, _ = make(4, channel_normalization=True, delayed=True)
    late, cache = streamed(delayed, np.split(x, [1, 3], axis=1))
    in_time = whole[:, : T - layer.delay]
    assert_close((late[:, layer.delay :], *cache[:2]), (in_time, *states))
    late = keras.layers.RNN(layer.cell, **FLAGS)
    late.built = True
    assert_close(late(x)[0][:, layer.delay :], in_time)


def test_one_dropout_mask_holds_for_the_further_steps_too():
    arguments = {"recurrent_dropout": 0.5, "weight_dropout": 0.5, "seed": 1}
    layer, x = make(4, **arguments)
    late, _ = make(4, delayed=True, **arguments)
    outputs = layer(x, training=True)[0]
    longer = np.pad(x, [(0, 0), (0, layer.delay), (0, 0)])
    assert_close(late(longer, training=True)[0][:, layer.delay :], outputs)
    assert np.abs(outputs - layer(x)[0]).max() > 1e-3


def test_a_layer_has_the_arguments_of_its_cell():
    layer, x = make(2, rank=3, kernel_size=2)
    assert (layer.size, layer.rank, layer.kernel_size) == (2, 3, 2)
    assert layer.use_bias and layer.variant == "paper"
    before = layer(x, training=True)[0]
    layer.dropout = 0.5
    assert layer.get_config()["dropout"] == 0.5
    assert np.abs(layer(x, training=True)[0] - before).max() > 1e-3


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision_in_training(policy):
    exact, x = make(rank=3, channel_normalization=True)
    layer, _ = make(rank=3, channel_normalization=True, dtype=policy)
    assert {each.dtype for each in layer.trainable_variables} == {"float32"}
    outputs, *states = layer(x.astype("float32"), training=True)
    assert {each.dtype.name for each in states} == {policy.removeprefix("mixed_")}
    expected = exact(x)[0]
    assert np.abs(tf.cast(outputs, tf.float64) - expected).max() < 0.1


def test_the_forget_bias_and_the_other_initializers():
    layer = TensorizedLSTM(3, 2, forget_bias=4, kernel_regularizer="l2")
    layer(np.ones((1, 2, 3), "float32"))
    bias = layer.cell.bias.numpy()
    expected = np.repeat([0, 0, 4, 0, 0], [3, 3, 3, 3, 3])  # the last: K = 3 logits
    assert_array_equal(bias, expected)
    assert len(layer.losses) == 1
    copy = TensorizedLSTM.from_config(layer.get_config())
    assert copy.get_config() == layer.get_config()


@litert.IS_THERE
@pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter is deprecated")
@pytest.mark.parametrize("steps", [1, T])
def test_litert(steps, tmp_path):
    layer, x = make(return_state=False, dtype="float32", unroll=steps > 1)
    litert.check_layer(layer, x[:, :steps], tmp_path / "model.tflite")


# Bad input

BAD = [
    ({"units": 0}, "`units` must be a positive integer. Received: units=0"),
    ({"size": 0}, "`size` must be a positive integer. Received: size=0"),
    ({"size": 2.5}, "`size` must be a positive integer. Received: size=2.5"),
    ({"kernel_size": 1}, "`kernel_size` must be at least 2.*Received: kernel_size=1"),
    ({"kernel_size": "3"}, "`kernel_size` must be a positive integer.*='3'"),
    ({"rank": 1}, r"`rank` must be one of \(2, 3, 4\). Received: rank=1"),
    ({"rank": [2]}, r"`rank` must be one of.*Received: rank=\[2\]"),
    ({"cell": "gru"}, r"`cell` must be one of \['lstm', 'rnn'\].*cell='gru'"),
    ({"cell": None}, "`cell` must be one of.*cell=None"),
    ({"cell": "rnn", "channel_normalization": True}, "`channel_normalization` must be"),
    ({"forget_bias": "1,5"}, "`forget_bias` must be a finite number.*='1,5'"),
    ({"forget_bias": np.nan}, "`forget_bias` must be a finite number.*=nan"),
]


@pytest.mark.parametrize("arguments, message", BAD, ids=[str(a) for a, _ in BAD])
def test_bad_input_is_named(arguments, message):
    with refuses(message):
        TensorizedLSTM(**{"units": 2, "size": 3, **arguments})


def test_states_of_the_wrong_shape():
    layer, x = TensorizedLSTM(2, 3), np.ones((B, T, P), "float32")
    states = [np.ones((B, 3, 2), "float32")] * 2
    with refuses(r"`initial_state` must be 2.*\[3, 3, 2\]"):
        layer(x, initial_state=states)
    cell = TensorizedLSTMCell(2, 3)
    with refuses(r"2 tensor.*\[3, 6\].*\[3, 12\]"):
        cell(x[:, 0], [np.ones((B, 12), "float32")] * 2)


def differentiated(layer, initial, graph):
    """A function to outputs, states and all gradients of a weighted sum of them."""
    variables = layer.trainable_variables

    def run(x, weights, mask=None):
        with tf.GradientTape() as tape:
            tape.watch([x, initial])
            found = layer(x, initial_state=initial, mask=mask, training=True)
            loss = tf.reduce_sum(weights * tf.sin(found[0]))
            loss += sum(tf.reduce_sum(tf.sin(each)) for each in found[1:])
        return found, tape.gradient(loss, [x, initial, [v.value for v in variables]])

    if not graph:
        return run
    shapes = ([None, None, P], [None, None, CHANNELS])
    signature = [tf.TensorSpec(shape, "float64") for shape in shapes]
    return tf.function(run, input_signature=signature)


@pytest.mark.parametrize(
    "arguments, lengths, masked, graph",
    [
        ({"channel_normalization": True}, [1, 2, 17], False, True),
        ({"rank": 3, "size": 2, "kernel_size": 2}, [9], True, False),
        ({"cell": "rnn"}, [1, 4], False, False),
    ],
)
def test_recomputation_changes_nothing(arguments, lengths, masked, graph):
    """Nor does an unknown number of steps."""
    plain, _ = make(**arguments)
    saving, _ = make(recompute=True, **arguments)
    rng = np.random.default_rng(5)
    initial = [tf.constant(each) for each in states_for(plain)]
    run = differentiated(saving, initial, graph)
    expected = differentiated(plain, initial, False)
    for steps in lengths:
        x = tf.constant(rng.normal(size=(B, steps, P)))
        weights = tf.constant(rng.normal(size=(B, steps, CHANNELS)))
        mask = {"mask": rng.random((B, steps)) > 0.3} if masked else {}
        assert_close(run(x, weights, **mask), expected(x, weights, **mask))


def numbers_kept(recompute, steps, monkeypatch):
    """How many numbers the arrays of a forward pass have that are as wide as a state."""
    layer, _ = make(recompute=recompute)
    kept = []
    array = recurrence.empty_array

    def counted(size, shape, dtype):
        if shape[-1] >= layer.cell.state_size[0]:
            kept.append(size * np.prod(shape))
        return array(size, shape, dtype)

    monkeypatch.setattr(recurrence, "empty_array", counted)
    run = tf.function(lambda x: layer(x, training=True))
    run.get_concrete_function(tf.TensorSpec([B, steps, P], "float64"))
    monkeypatch.undo()
    return sum(kept)


def test_what_recomputation_keeps_grows_with_the_root_of_the_steps(monkeypatch):
    plain = [numbers_kept(False, steps, monkeypatch) for steps in (100, 1600)]
    saving = [numbers_kept(True, steps, monkeypatch) for steps in (100, 1600)]
    assert plain[1] > 15 * plain[0]
    assert saving[1] < 5 * saving[0] and saving[1] < plain[1] / 10
