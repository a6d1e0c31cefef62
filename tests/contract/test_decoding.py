"""Decoding step by step, after Keras's `lstm_seq2seq` example and tutorials of text generation.

There an encoder hands its states to a decoder, which is trained on whole sequences and then writes
one character a call. What is trained is small.
"""

import warnings

import keras
import numpy as np
import pytest
from keras import ops

from keras_trellis import EquilibriumTrellisLayer, TrellisLayer, TrellisLM
from keras_trellis.layers.sequence import SequenceLayer
from keras_trellis.recurrent import IRCGRU
from tests.contract import tensors
from tests.contract.registry import CHANNELS, ENTRIES

pytestmark = tensors.not_in_float64_on_jax
BATCH, STEPS = 3, 5
LAYERS = {
    name: entry
    for name, entry in ENTRIES.items()
    if issubclass(entry.cls, SequenceLayer) and not entry.graphs
}


@pytest.fixture(scope="module", params=LAYERS)
def layer(request):
    """A layer that returns all outputs and its states."""
    return LAYERS[request.param].built()


def draw(seed, steps=STEPS):
    return np.random.default_rng(seed).normal(size=(BATCH, steps, CHANNELS))


def array(tensor):
    return ops.convert_to_numpy(tensor)


def assert_close(actual, expected, tolerance=1e-5):
    actual, expected = array(actual), array(expected)
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


def ignore_others():
    """Ignores NumPy's warning about Keras's conversion of a tensor of torch."""
    warnings.filterwarnings("ignore", "__array__ implementation", DeprecationWarning)


def test_a_state_handed_on_step_by_step_is_exact_or_warns_once(layer):
    x = draw(2)
    whole, *_ = layer(x)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ignore_others()
        output, *states = layer(x[:, :1])
        assert not caught
        outputs = [array(output)]
        for time in range(1, STEPS):
            output, *states = layer(x[:, time : time + 1], initial_state=states)
            outputs.append(array(output))
    error = np.abs(np.concatenate(outputs, axis=1) - array(whole)).max()
    if not caught:
        assert error < 1e-5
        return
    # It warns in vain only where an output depends on its own step alone.
    if error < 1e-5:
        assert_close(layer(x[:, 1:2])[0], whole[:, 1:2])
        return
    assert error > 1e-3
    (warning,) = caught
    assert warning.category is UserWarning and warning.filename == __file__
    line = "cache = layer.get_initial_cache(batch_size, initial_state=states)"
    assert line in str(warning.message) and "layer.stream(" in str(warning.message)


@tensors.not_in_float64_on_jax
@pytest.mark.parametrize(
    ("arguments", "is_exact"),
    [
        ({}, False),
        ({"kernel_size": 1}, True),
        ({"kernel_size": 1, "dilation_rate": 2}, False),
        ({"groups": 2}, True),
        ({"groups": 2, "kernel_size": 3}, False),
        ({"groups": 2, "inject_every": 2}, False),
    ],
    ids=str,
)
def test_the_state_of_an_equilibrium_is_exact_where_no_level_reads_more(
    arguments, is_exact
):
    layer = EquilibriumTrellisLayer(4, tolerance=1e-7, dtype=tensors.FLOAT, **arguments)
    x = draw(1, 3)
    whole, *_ = layer.propagate(x)
    _, states, _ = layer.propagate(x[:, :2])
    last, *_ = layer.propagate(x[:, 2:], initial_state=states)
    error = np.abs(array(last) - array(whole)[:, 2:]).max()
    assert (error < 1e-5) == layer.state_is_exact == is_exact


# What warns, and what does not


def decoder_of_one_step():
    """The inference model of `lstm_seq2seq`: a character and states in, the same out."""
    layer = TrellisLayer(4, 2, return_sequences=True, return_state=True)
    states = [keras.Input([4]), keras.Input([4])]
    inputs = keras.Input([None, CHANNELS])
    return layer, keras.Model([inputs, *states], layer(inputs, initial_state=states))


@tensors.not_in_float64_on_jax
@pytest.mark.parametrize("how", ["called", "predicted", "traced"])
def test_it_warns_wherever_one_known_step_is_computed(how):
    layer, model = decoder_of_one_step()
    state = np.zeros([BATCH, 4])
    run = {
        "called": model,
        "predicted": lambda inputs: model.predict(inputs, verbose=0),
        "traced": tensors.traced(model),
    }[how]
    with pytest.warns(UserWarning, match=f"'{layer.name}' was called on one time step"):
        run([draw(1, 1), state, state])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ignore_others()
        run([draw(1, 1), state, state])


@tensors.not_in_float64_on_jax
def test_what_continues_nothing_step_by_step_does_not_warn():
    """Training that carries history, longer windows, statefulness, the models."""
    layer, model = decoder_of_one_step()
    state = np.zeros([BATCH, 4], "float32")
    stateful = TrellisLayer(4, 2, stateful=True)
    language_model = TrellisLM(8, TrellisLayer(4, 2), embedding_units=4)
    ids = np.ones([BATCH, 1], "int32")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ignore_others()
        model([draw(1, 1), state, state], training=True)
        model([draw(1, 2), state, state])
        stateful(draw(1, 1), initial_state=[state, state])
        states = language_model.get_initial_state(BATCH)
        for training in (False, True):
            language_model.loss_terms(ids, ids, initial_state=states, training=training)
        language_model.score(ids, ids, initial_state=states)


@pytest.mark.skipif(tensors.BACKEND != "tensorflow", reason="a graph of TensorFlow")
def test_a_graph_of_unknown_lengths_does_not_warn():
    import tensorflow as tf

    _, model = decoder_of_one_step()
    state = tf.zeros([BATCH, 4])
    unknown = [tf.TensorSpec([None, None, CHANNELS]), *[tf.TensorSpec([None, 4])] * 2]
    run = tf.function(lambda *inputs: model(inputs), unknown)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ignore_others()
        run(tf.zeros([BATCH, 1, CHANNELS]), state, state)


@tensors.not_in_float64_on_jax
def test_a_language_model_begins_from_a_state():
    model = TrellisLM(8, TrellisLayer(4, 3), embedding_units=4)
    ids = np.random.default_rng(0).integers(0, 8, [BATCH, STEPS])
    _, states = model.score(ids, ids)
    expected, _ = model.score(ids, ids, initial_state=states)
    cache = model.get_initial_cache(BATCH, initial_state=states)
    assert_close(model.score(ids, ids, cache=cache)[0], expected)


# Text generation, trained

LETTERS, LENGTH = 8, 24
WORDS = np.random.default_rng(0).integers(0, LETTERS, [6, 6])


def draw_text(rows, seed):
    """Texts of six words in random order, without spaces, [rows, LENGTH + 1]."""
    drawn = np.random.default_rng(seed).integers(0, len(WORDS), [rows, LENGTH // 6 + 1])
    return WORDS[drawn].reshape(rows, -1)[:, : LENGTH + 1]


@tensors.not_in_float64_on_jax
@pytest.mark.parametrize("kind", ["TrellisLayer", "IRCGRU"])
def test_a_trained_text_generator_is_as_good_step_by_step(kind):
    keras.utils.set_random_seed(1)
    embed, dense = keras.layers.Embedding(LETTERS, 8), keras.layers.Dense(LETTERS)
    layer = {
        "TrellisLayer": lambda **flags: TrellisLayer(
            24, 4, dilation_rate=[1, 2], **flags
        ),
        "IRCGRU": lambda **flags: IRCGRU(24, **flags),
    }[kind](return_sequences=True, return_state=True)
    inputs = keras.Input([LENGTH])
    model = keras.Model(inputs, dense(layer(embed(inputs))[0]))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.02), loss)
    text = draw_text(1000, seed=1)
    model.fit(text[:, :-1], text[:, 1:], batch_size=20, epochs=1, verbose=0)
    text = draw_text(50, seed=2)
    read = embed(text[:, :-1])

    def accuracy(outputs):
        return np.mean(np.argmax(array(dense(outputs)), axis=-1) == text[:, 1:])

    whole, *_ = layer(read)
    streamed, cache = [], layer.get_initial_cache(50)
    handed, states = [], None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if kind == "TrellisLayer" else "error")
        ignore_others()
        for time in range(LENGTH):
            step = read[:, time : time + 1]
            output, cache = layer.stream(step, cache)
            streamed.append(array(output))
            output, *states = layer(step, initial_state=states)
            handed.append(array(output))
    streamed, handed = np.concatenate(streamed, 1), np.concatenate(handed, 1)
    assert_close(streamed, whole)
    assert accuracy(streamed) > 3 / LETTERS
    if kind == "TrellisLayer":
        assert accuracy(handed) < accuracy(streamed) / 2
    else:
        assert_close(handed, whole)
