"""The gated layers against NumPy, against their cells in Keras's loop, and in Keras."""

import functools

import hypothesis
import hypothesis.strategies as st
import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from keras_trellis import TrellisLM, recurrent
from keras_trellis.recurrent import IHCLSTM, IRCGRU, IRCSRU, SRU, TLSTM, FastGRNN
from tests import nests
from tests.keras_trellis.gradients import with_gradients
from tests.keras_trellis.recurrent import numpy_cells
from tests.refusals import refuses

assert_close = functools.partial(nests.assert_close, tolerance=1e-11)

B, T, P, UNITS = 3, 5, 3, 4
MASK = np.array([[1, 1, 1, 0, 0], [0, 1, 0, 1, 1], [1, 1, 1, 1, 1]], bool)
SQUARE = ("SRU", "IRCSRU", "IRCTLSTM")
FORMS = {
    "WeightDropLSTM": ("WeightDropLSTM", {}, numpy_cells.lstm),
    "IRCGRU": ("IRCGRU", {}, numpy_cells.irc_gru),
    "IRCGRU released": ("IRCGRU", {"variant": "released"}, numpy_cells.irc_gru),
    "IRCLSTM": ("IRCLSTM", {}, numpy_cells.irc_lstm),
    "IHCLSTM": ("IHCLSTM", {}, numpy_cells.ihc_lstm),
    "IHCLSTM projected": ("IHCLSTM", {"projected": True}, numpy_cells.ihc_lstm),
    "IHCLSTM released": ("IHCLSTM", {"variant": "released"}, numpy_cells.ihc_lstm),
    "SRU": ("SRU", {}, numpy_cells.sru),
    "SRU released": ("SRU", {"variant": "released"}, numpy_cells.sru),
    "IRCSRU": ("IRCSRU", {}, numpy_cells.irc_sru),
    "IRCSRU released": ("IRCSRU", {"variant": "released"}, numpy_cells.irc_sru),
    "TLSTM": ("TLSTM", {}, numpy_cells.t_lstm),
    "IRCTLSTM": ("IRCTLSTM", {}, numpy_cells.irc_t_lstm),
    "IRCTLSTM released": (
        "IRCTLSTM",
        {"variant": "released"},
        numpy_cells.released_irc_t_lstm,
    ),
    "FastGRNN": ("FastGRNN", {}, numpy_cells.fast_grnn),
    "FastGRNN unscaled": ("FastGRNN", {"scaled": False}, numpy_cells.fast_grnn),
    "IRCFastGRNN": ("IRCFastGRNN", {}, numpy_cells.irc_fast_grnn),
    "IRCFastGRNN released": (
        "IRCFastGRNN",
        {"variant": "released"},
        numpy_cells.irc_fast_grnn,
    ),
}
ALL = sorted({name for name, *_ in FORMS.values()})


def make(form, **arguments):
    """A layer of random weights, and sequences for it."""
    name, own, _ = FORMS[form]
    inputs = UNITS if name in SQUARE else P
    flags = {"return_sequences": True, "return_state": True, "dtype": "float64"}
    layer = getattr(recurrent, name)(UNITS, **{**flags, **own, **arguments})
    rng = np.random.default_rng(0)
    layer.build((B, None, inputs))
    for variable in layer.trainable_variables:
        variable.assign(0.6 * rng.normal(size=variable.shape))
    return layer, rng.normal(size=(B, T, inputs))


def states_for(layer):
    rng = np.random.default_rng(3)
    return [rng.normal(size=each.shape) for each in layer.get_initial_state(B)]


@pytest.mark.parametrize("form", FORMS)
def test_the_equations(form):
    layer, x = make(form)
    weights = {each.name: each.numpy() for each in layer.trainable_variables}
    initial = states_for(layer)
    outputs, state = numpy_cells.run(FORMS[form][2], weights, x, initial)
    for training in (False, True):
        found = layer(x, initial_state=initial, training=training)
        assert_close(found, (outputs, *state))


@pytest.mark.parametrize("variant", ["paper", "released"])
def test_a_weight_drop_lstm_is_keras_lstm_but_for_its_dropconnect(variant):
    layer, x = make("WeightDropLSTM", variant=variant)
    lstm = keras.layers.LSTM(
        UNITS, return_sequences=True, return_state=True, dtype="float64"
    )
    fresh = recurrent.WeightDropLSTM(UNITS, variant=variant)
    for built in (lstm, fresh):
        built.build((B, None, P))
    forget = fresh.cell.bias.numpy().reshape(4, UNITS)
    bias = lstm.get_weights()[2].reshape(4, UNITS)  # Keras's begins at 1 too
    assert_array_equal(forget, bias * (variant == "paper"))
    kernel = fresh.cell.recurrent_kernel.numpy()
    assert_allclose(kernel @ kernel.T, np.eye(UNITS), atol=1e-6)
    lstm.set_weights(layer.get_weights())
    how = {"initial_state": states_for(layer), "mask": MASK}
    assert_close(layer(x, training=True, **how), lstm(x, **how))


@hypothesis.given(
    form=st.sampled_from([*FORMS]),
    valid=st.none() | st.lists(st.booleans(), min_size=B * T, max_size=B * T),
    flags=st.fixed_dictionaries(
        {
            name: st.booleans()
            for name in (
                "return_sequences",
                "go_backwards",
                "zero_output_for_mask",
                "unroll",
            )
        }
    ),
)
@hypothesis.settings(max_examples=10, deadline=None)
def test_it_is_its_cell_in_the_loop_of_keras(form, valid, flags):
    layer, x = make(form, **flags)
    mask = None if valid is None else np.array(valid).reshape(B, T)
    initial = states_for(layer)
    # Keras's unrolled loop with `zero_output_for_mask` forgets to reverse the mask.
    flags = flags | {"unroll": False, "return_state": True}
    loop = keras.layers.RNN(layer.cell, dtype="float64", **flags)
    loop.built = True
    expected = with_gradients(loop, layer, x, initial, mask)

    def train(*args, **kwargs):
        return layer(*args, training=True, **kwargs)

    assert_close(with_gradients(train, layer, x, initial, mask), expected)
    assert_close(with_gradients(layer, layer, x, initial, mask), expected)
    if mask is not None:
        x = np.where(mask[..., None], x, np.nan)
        assert_close(with_gradients(train, layer, x, initial, mask), expected)


def test_a_training_graph_of_unknown_sizes():
    layer, x = make("IHCLSTM")

    def call(x, **_):
        return layer(x, training=True)

    @tf.function(input_signature=[tf.TensorSpec([None, None, P], tf.float64)])
    def run(x):
        return with_gradients(call, layer, x, [], None)

    for part in (x, x[:1, :2]):
        assert_close(run(part), with_gradients(call, layer, part, [], None))


def test_irc_is_one_factor_shared_by_the_gates():
    """U_k = W_k diag(alpha) U_V: each gate has a recurrent matrix of its own again."""
    layer, x = make("IRCGRU")
    kernel, memory, alpha = (each.numpy() for each in layer.trainable_variables)
    alpha = 1 / (1 + np.exp(-alpha))
    gates, candidate = kernel[:, : 2 * UNITS], kernel[:, 2 * UNITS :]
    recurrent_kernel = memory @ np.diag(alpha) @ gates  # transposed, as Keras stores it
    hidden, expected = np.zeros((B, UNITS)), []
    for now in np.moveaxis(x, 1, 0):
        total = now @ gates + hidden @ recurrent_kernel
        z, r = np.split(numpy_cells.sig(total), 2, axis=-1)
        hidden = z * hidden + (1 - z) * r * (now @ candidate)
        expected.append(hidden)
    assert_allclose(layer(x)[0], np.stack(expected, 1), rtol=0, atol=1e-12)


# Dropout

DROPPED = {  # what DropConnect applies to
    "IHCLSTM": {"recurrent_kernel", "highway_recurrent_kernel"},
}


@pytest.mark.parametrize("name", ALL)
def test_dropconnect_is_one_mask_a_call(name):
    layer, x = make(name, weight_dropout=0.5, seed=1)
    plain, _ = make(name)
    counter = layer.cell.seed_generator.state
    before = counter.numpy()
    outputs = layer(x, training=True)
    counter.assign(before)
    weights = layer.cell.call_weights(layer.cell.call_seed(True))
    dropped = set()
    for variable in plain.trainable_variables:
        ratio = weights[variable.name] / variable.numpy()
        assert set(np.unique(np.round(ratio, 9))) <= {0, 1, 2}  # 2 = 1 / (1 - rate)
        if not np.allclose(ratio, 1):
            dropped.add(variable.name)
        variable.assign(weights[variable.name])
    assert dropped == DROPPED.get(name, {"recurrent_kernel"})
    assert_close(outputs, plain(x))
    assert np.abs(layer(x, training=True)[0] - outputs[0]).max() > 1e-3  # another mask
    plain.set_weights(layer.cell.get_weights()[: len(plain.get_weights())])
    assert_close(layer(x), plain(x))


@pytest.mark.parametrize("name", ALL)
def test_dropout_has_one_mask_for_all_steps(name):
    layer, x = make(name, dropout=0.5, seed=1)
    x = np.ones_like(x)
    plain, _ = make(name)
    found = np.asarray(layer(x, training=True)[0])
    # Each row has seen one of the 2^p masks, at all its steps.
    masks = np.stack(np.meshgrid(*[[0.0, 2.0]] * x.shape[-1]), -1).reshape(
        -1, x.shape[-1]
    )
    possible = np.asarray(plain(np.repeat(masks[:, None], T, 1))[0])
    errors = np.abs(found[:, None] - possible[None]).max((2, 3))
    assert (errors.min(1) < 1e-10).all()
    assert len(set(errors.argmin(1))) > 1


def test_recurrent_dropout_is_of_the_state_that_gates_read():
    layer, x = make("IRCGRU", recurrent_dropout=0.5, seed=1)
    plain, _ = make("IRCGRU")
    weights = {each.name: each.numpy() for each in plain.trainable_variables}
    masks = np.stack(np.meshgrid(*[[0.0, 2.0]] * UNITS), -1).reshape(-1, UNITS)

    def step(w, x, h, mask):
        z, r, a = numpy_cells.residual(w, x, (mask * h) @ w["recurrent_kernel"], 2)
        h = z * h + (1 - z) * (r * a)
        return h, [h, mask]

    found = np.asarray(layer(x, training=True)[0])
    for row, outputs in zip(x, found, strict=True):
        rows = np.repeat(row[None], len(masks), 0)
        first = [np.zeros((len(masks), UNITS)), masks]
        possible, _ = numpy_cells.run(step, weights, rows, first)
        assert np.abs(possible - outputs).max((1, 2)).min() < 1e-10
    assert np.abs(found - plain(x)[0]).max() > 1e-3


@pytest.mark.parametrize("rate", ["dropout", "recurrent_dropout", "weight_dropout"])
def test_a_stateful_layer_drops_in_training_too(rate):
    layer, x = make("IRCGRU", stateful=True, return_state=False, seed=1, **{rate: 0.5})
    exact = layer(x)
    layer.reset_state()
    assert np.abs(layer(x, training=True) - exact).max() > 1e-3
    layer.reset_state()
    assert_close(layer(x), exact)


@pytest.mark.parametrize("name", ALL)
def test_recurrent_dropout_acts_in_training_alone(name):
    layer, x = make(name, recurrent_dropout=0.5, seed=1)
    assert_close(layer(x)[0], make(name)[0](x)[0])
    assert np.abs(layer(x, training=True)[0] - layer(x)[0]).max() > 1e-3


def test_a_cell_alone_refuses_to_drop():
    loop = keras.layers.RNN(recurrent.IRCGRUCell(UNITS, dropout=0.5))
    x = np.ones((B, T, P), "float32")
    assert loop(x).shape == (B, UNITS)
    message = (
        "use keras_trellis.recurrent.IRCGRU. Received: dropout=0.5, recurrent_dropout"
    )
    with refuses(message):
        loop(x, training=True)


# Attributes of the cell


@pytest.mark.parametrize("rate", ["dropout", "recurrent_dropout", "weight_dropout"])
def test_a_rate_may_be_set_at_any_time(rate):
    layer, x = make("IRCGRU", seed=5, return_state=False)
    before, variables = layer(x, training=True), len(layer.variables)
    setattr(layer, rate, 0.5)
    assert getattr(layer, rate) == layer.get_config()[rate] == 0.5
    assert len(layer.variables) == variables
    dropped = layer(x, training=True)
    assert np.abs(dropped - before).max() > 1e-3
    assert_close(layer(x), before)
    fresh = type(layer).from_config(layer.get_config())
    fresh.build(x.shape)
    fresh.set_weights(layer.get_weights())
    assert_close(fresh(x, training=True), dropped)
    setattr(layer, rate, 0)
    assert_close(layer(x, training=True), before)
    with refuses(rf"`{rate}` must be a number in \[0, 1\).*1.5"):
        setattr(layer, rate, 1.5)


@pytest.mark.parametrize("form", FORMS)
def test_a_layer_has_the_arguments_of_its_cell(form):
    layer, _ = make(form, dropout=0.1, seed=3)
    config = layer.get_config()
    names = {"dropout", "seed", "variant", *FORMS[form][1]}
    assert {name: getattr(layer, name) for name in names} == {
        name: config[name] for name in names
    }
    assert layer.use_bias == any("bias" in weight.path for weight in layer.weights)


# In Keras


def test_cells_in_a_stack_and_the_layers_in_a_language_model():
    cells = [recurrent.TLSTMCell(4), recurrent.IRCGRUCell(2), keras.layers.LSTMCell(3)]
    assert keras.layers.RNN(cells)(np.ones((B, T, P), "float32")).shape == (B, 3)
    model = TrellisLM(7, [IRCGRU(4), IRCGRU(5)], embedding_units=5)
    ids = np.arange(12).reshape(2, 6) % 7
    model.compile("adam", run_eagerly=True)
    history = model.fit(ids, ids, epochs=2, verbose=0).history["loss"]
    assert history[1] < history[0]


def test_regularizers_initializers_and_constraints():
    layer = SRU(
        3,
        kernel_initializer="ones",
        recurrent_initializer="zeros",
        bias_initializer="ones",
        recurrent_constraint="non_neg",
        kernel_regularizer=keras.regularizers.L2(1.0),
        bias_regularizer=keras.regularizers.L1(1.0),
        activity_regularizer=keras.regularizers.L2(0.1),
        variant="released",
    )
    layer(np.ones((1, 2, 3), "float32"))
    losses = sorted(map(float, layer.losses))
    assert losses[1:] == [3 * 2 + 0 + 3 * 1, 3 * 3 * 3] and losses[0] > 0
    assert isinstance(layer.cell.recurrent_kernel.constraint, keras.constraints.NonNeg)
    copy = SRU.from_config(layer.get_config())
    assert copy.get_config() == layer.get_config()


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("name", ["IRCGRU", "TLSTM", "SRU"])
def test_mixed_precision_in_training(name, policy):
    exact, x = make(name)
    layer, _ = make(name, dtype=policy)
    assert {each.dtype for each in layer.trainable_variables} == {"float32"}

    def gradients(layer, x):
        with tf.GradientTape() as tape:
            outputs = layer(x, training=True)[0]
            loss = tf.reduce_mean(tf.square(tf.cast(outputs, tf.float32)))
        return tape.gradient(loss, [each.value for each in layer.trainable_variables])

    found, expected = gradients(layer, x.astype("float32")), gradients(exact, x)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == tf.float32
        difference = np.asarray(one, "float64") - other
        assert np.abs(difference).max() < 0.05 * np.abs(other).max() + 1e-3


def test_a_second_derivative_needs_training_off():
    layer, x = make("IRCGRU")
    x = tf.constant(x)

    def second(training):
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                loss = tf.reduce_sum(layer(x, training=training)[0])
            first = inner.gradient(loss, x)
        return outer.gradient(first, x)

    assert np.abs(second(False)).max() > 1e-3
    with pytest.raises(LookupError, match="needs training=False"):
        second(True)


# Bad input

BAD = [
    (lambda: IRCGRU(0), "`units` must be a positive integer. Received: units=0"),
    (
        lambda: IRCGRU(3, variant="printed"),
        r"`variant` of IRCGRU must be one of \['paper', 'released'\].*'printed'",
    ),
    (
        lambda: TLSTM(3, variant="released"),
        r"`variant` of TLSTM must be one of \['paper'\]. Received: variant='rel",
    ),
    (
        lambda: IHCLSTM(3, projected=True, variant="released"),
        "`projected` must be False in the released form. Received: projected=True",
    ),
    (lambda: SRU(3, dropout=1.0), r"`dropout` must be a number in \[0, 1\).*=1.0"),
    (lambda: SRU(3, recurrent_dropout=-0.1), "`recurrent_dropout` must be.*=-0.1"),
    (
        lambda: FastGRNN(3, weight_dropout=None),
        "`weight_dropout` must be.*=None",
    ),
    (
        lambda: SRU(4)(np.ones((2, 5, 3), "float32")),
        r"inputs of SRU must be.*p = units = 4. Received: units=4, p=3",
    ),
    (
        lambda: IRCSRU(4)(np.ones((2, 5, 3), "float32")),
        "inputs of IRCSRU must be.*Received: units=4, p=3",
    ),
    (
        lambda: IRCGRU(4)(keras.Input((5, None))),
        r"p known. Received: sequences of shape \(None, 5, None\)",
    ),
    (
        lambda: IHCLSTM(4)(
            np.ones((2, 5, 3), "f"), initial_state=[np.ones((2, 4), "f")]
        ),
        r"`initial_state` must be 2 tensor.*\[2, 4\], \[2, 4\].*of shapes \[\[2, 4\]\]",
    ),
    (
        lambda: TLSTM(4)(
            np.ones((2, 5, 3), "f"), initial_state=[np.ones((2, 4), "f")] * 2
        ),
        r"must be 2 tensor.*\[2, 3\], \[2, 4\].*of shapes \[\[2, 4\], \[2, 4\]\]",
    ),
]


@pytest.mark.parametrize("call, message", BAD, ids=[message for _, message in BAD])
def test_bad_input_is_named(call, message):
    with refuses(message):
        call()


def test_bad_input_builds_nothing():
    layer = SRU(4)
    with refuses("p = units"):
        layer(np.ones((2, 5, 3), "float32"))
    assert not layer.variables
