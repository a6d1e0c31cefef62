"""Decoding step by step, after Keras's `lstm_seq2seq` example and tutorials of text generation.

There an encoder hands its states to a decoder, which is trained on whole sequences and then writes
one character a call. What is trained is small; with random weights every public sequence layer is
encoder and decoder at once.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_trellis import TrellisLayer, TrellisLM
from keras_trellis.base import SequenceLayer
from keras_trellis.recurrent import IRCGRU
from tests.contract.registry import CHANNELS, REGISTRY

BATCH, STEPS, START = 3, 5, 0
MASK = np.array([[1, 1, 1, 0, 0], [0, 1, 0, 1, 0], [1, 1, 1, 1, 1]], bool)
# What the registry wraps in a `RecurrentLayer` is here by itself.
LAYERS = {
    name: entry
    for name, entry in REGISTRY.items()
    if issubclass(entry.cls, SequenceLayer) and not entry.graphs
}


@pytest.fixture(scope="module", params=LAYERS)
def layer(request):
    """A layer that returns all outputs and its states."""
    built = LAYERS[request.param].built()
    return built.layers[0] if LAYERS[request.param].holds else built


@pytest.fixture(scope="module")
def states(layer):
    """The states of an encoder."""
    _, *states = layer(draw(1))
    return states


def draw(seed, steps=STEPS):
    return np.random.default_rng(seed).normal(size=(BATCH, steps, CHANNELS))


def assert_close(actual, expected, tolerance=1e-5):
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


def test_it_writes_step_by_step_what_one_pass_computes(layer, states):
    """The loop of `lstm_seq2seq`: the most probable character is what is read next."""
    characters = np.eye(CHANNELS)
    to_logits = np.random.default_rng(5).normal(size=(layer.output_units, CHANNELS))
    cache = layer.get_initial_cache(BATCH, initial_state=states)
    written, logits = [np.full(BATCH, START)], []
    for _ in range(STEPS):
        output, cache = layer.stream(characters[written[-1]][:, None], cache)
        logits.append(output[:, 0] @ to_logits)
        written.append(np.argmax(logits[-1], axis=-1))
    read = characters[np.stack(written[:-1], axis=1)]
    outputs, *_ = layer(read, initial_state=states)
    assert_close(np.stack(logits, axis=1), outputs @ to_logits)


def test_chunks_after_a_state_are_one_pass(layer, states):
    """Masked steps leave the cache alone, and repeat the output before."""
    x, outputs = draw(2), []
    expected, *_ = layer(x, initial_state=states, mask=MASK)
    spoiled = np.where(MASK[..., None], x, np.nan)
    cache = layer.get_initial_cache(BATCH, states)
    for chunk in (slice(0, 0), slice(0, 3), slice(3, 5)):
        output, cache = layer.stream(spoiled[:, chunk], cache, mask=MASK[:, chunk])
        outputs.append(output)
    begun = np.cumsum(MASK, axis=1) > 0
    assert_close(np.concatenate(outputs, axis=1)[begun], expected[begun])


def test_one_state_stands_for_all_rows_of_a_cache(layer, states):
    first = [np.asarray(state)[:1] for state in states]
    for_all = [np.repeat(state, BATCH, axis=0) for state in first]
    expected = layer.get_initial_cache(BATCH, for_all)
    given = first[0] if len(first) == 1 else first
    for rows in (BATCH, tf.constant(BATCH)):
        cache = layer.get_initial_cache(rows, given)
        tf.nest.map_structure(np.testing.assert_array_equal, cache, expected)
    for bad in ([*for_all, for_all[0]], [state[:-1] for state in for_all]):
        with pytest.raises(ValueError, match="`initial_state` must be"):
            layer.get_initial_cache(BATCH, bad)


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
        return np.mean(np.argmax(dense(outputs), axis=-1) == text[:, 1:])

    whole, *_ = layer(read)
    streamed, cache = [], layer.get_initial_cache(50)
    for time in range(LENGTH):
        output, cache = layer.stream(read[:, time : time + 1], cache)
        streamed.append(output)
    streamed = np.concatenate(streamed, axis=1)
    assert_close(streamed, whole)
    assert accuracy(streamed) > 3 / LETTERS
