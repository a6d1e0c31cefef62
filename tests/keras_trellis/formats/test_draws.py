"""The random numbers of draws and the choice of tokens, in NumPy and in TensorFlow."""

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from keras_trellis.backend import current as backend
from keras_trellis.export import continuation
from keras_trellis.formats import philox, sampling
from keras_trellis.models import generation

# The known answers of Random123 for philox4x32-10: counter, key, block.
KNOWN = [
    (
        "00000000 00000000 00000000 00000000",
        "00000000 00000000",
        "6627e8d5 e169c58d bc57ac4c 9b00dbd8",
    ),
    (
        "ffffffff ffffffff ffffffff ffffffff",
        "ffffffff ffffffff",
        "408f276d 41c83b0e a20bc7c6 6d5451fd",
    ),
    (
        "243f6a88 85a308d3 13198a2e 03707344",
        "a4093822 299f31d0",
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
]


def words(text):
    return np.array([int(word, 16) for word in text.split()], np.uint32)


@pytest.mark.parametrize("counter, key, block", KNOWN)
def test_philox_gives_the_known_answers(counter, key, block):
    found = np.ravel(philox.philox(words(counter)[:, None], words(key)[:, None]))
    assert_array_equal(found, words(block))


@pytest.fixture(scope="module")
def graph():
    """TensorFlow's form of each function, traced once."""
    row, rows = (tf.TensorSpec([None], d) for d in (tf.int64, tf.int32))
    scores = tf.TensorSpec([None, 13], tf.float32)
    number = tf.TensorSpec([None], tf.float32)
    how = sampling.Sampling(number, rows, number, row)
    seeds = tf.TensorSpec([None, 3], tf.int32)

    def filtered(*given):
        return sampling.filtered(*given, generation.OPERATIONS)

    return {
        "bits": tf.function(lambda s, n: backend.row_bits(s, n, 13), [seeds, rows]),
        "draw": tf.function(continuation.draw, [scores, how, rows]),
        "filtered": tf.function(filtered, [scores, rows, number]),
    }


SEEDS = st.integers(-(2**63), 2**63 - 1)
ROWS = st.lists(st.tuples(SEEDS, st.integers(0, 2**31 - 1)), min_size=1, max_size=4)


@hypothesis.given(rows=ROWS)
@hypothesis.settings(max_examples=30)
def test_a_row_draws_by_its_seed_and_number_alone(graph, rows):
    seeds = np.array([seed for seed, _ in rows], np.int64)
    numbers = np.array([number for _, number in rows], np.int32)
    places = np.arange(len(rows))
    found = philox.bits(seeds, numbers, 13, places)
    key = np.array([[s % 2**32, s % 2**64 // 2**32] for s, _ in rows], np.uint32)
    given = np.column_stack([key.view(np.int32), places]).astype(np.int32)
    assert_array_equal(graph["bits"](given, numbers), found)
    for index, number in enumerate(numbers):
        for block in range(4):
            counter = np.array([block, index, number, 0], np.uint32)
            expected = philox.philox(counter[:, None], key[index][:, None])
            own = found[index, 4 * block : 4 * block + 4]
            assert_array_equal(own, np.ravel(expected)[: len(own)])


def test_noise_is_that_of_one_draw_after_the_other():
    seeds, numbers = np.array([3, -4, 5]), np.array([0, 7, 2**31 - 2])
    noise = sampling.Noise(seeds, numbers, 9)
    for step in range(20):
        expected = sampling.gumbel(philox.bits(seeds, numbers + step, 9))
        assert_array_equal(noise(), expected)


def kept(row, top_k, top_p):
    """Which scores of a row are chosen from, by the definition."""
    order = np.argsort(-row, kind="stable")[:top_k]
    shares = np.exp(row[order] - row.max())
    shares /= shares.sum()
    before = np.cumsum(shares) - shares
    least = row[order][(before < top_p) | (top_p == 1)].min()
    return row >= least


# Of some distance, so that rounding decides nothing.
SCORES = st.lists(st.integers(-8, 0), min_size=13, max_size=13)
CHOICE = st.tuples(
    SCORES, st.integers(1, 13), st.sampled_from([0.11, 0.37, 0.73, 0.97, 1.0])
)


@hypothesis.given(rows=st.lists(CHOICE, min_size=1, max_size=3), seed=SEEDS)
@hypothesis.settings(max_examples=40)
def test_a_token_is_chosen_by_the_definition(graph, rows, seed):
    scores = np.array([row for row, *_ in rows], np.float32) * np.float32(0.37)
    top_k = np.array([k for _, k, _ in rows], np.int32)
    top_p = np.array([p for *_, p in rows], np.float32)
    found = sampling.filtered(scores, top_k, top_p)
    assert_array_equal(graph["filtered"](scores, top_k, top_p), found)
    for index, (_, k, p) in enumerate(rows):
        expected = kept(scores[index].astype(float), k, p)
        assert_array_equal(np.isfinite(found[index]), expected)
    temperature = np.linspace(0, 2, len(rows), dtype=np.float32)
    seeds = np.full(len(rows), seed)
    numbers = np.arange(len(rows), dtype=np.int32)
    how = (temperature, top_k, top_p, seeds)
    noise = sampling.Noise(seeds, numbers, 13)
    token = sampling.draw(scores, sampling.Sampling(*how), noise)
    drawn = graph["draw"](scores, sampling.Sampling(*how), numbers)
    assert_array_equal(drawn, token)
    assert token[0] == scores[0].argmax()  # without noise


def test_draws_are_distributed_as_the_softmax_is():
    scores = np.log(np.array([0.5, 0.3, 0.15, 0.05], np.float32))
    count = 40_000
    rows = np.repeat(scores[None], count, 0)
    ones = np.ones(count, np.float32)
    how = sampling.Sampling(ones, np.full(count, 4), ones, np.arange(count))
    noise = sampling.Noise(how.seed, np.zeros(count, int), 4)
    token = sampling.draw(rows, how, noise)
    shares = np.bincount(token, minlength=4) / count
    assert_allclose(shares, np.exp(scores), atol=0.01)


TEXT = st.text("ab é\0", max_size=8)


@hypothesis.given(
    rows=st.lists(st.tuples(TEXT, TEXT, TEXT), min_size=1, max_size=3),
    pieces=st.lists(st.sampled_from(["a", " b", "é", "\0", "ab a"]), max_size=5),
)
@hypothesis.settings(max_examples=40)
def test_a_stop_text_is_where_python_finds_it(rows, pieces):
    texts = tf.constant([text.encode() for text, *_ in rows])
    wanted = tf.constant([[each.encode() for each in row[1:]] for row in rows])
    found = continuation.find_stop(texts, wanted).numpy()
    for place, (text, *listed) in zip(found, rows, strict=True):
        places = [text.encode().find(stop.encode()) for stop in listed if stop]
        assert place == min([each for each in places if each >= 0], default=-1)
    # Piece by piece, each text ends with the first piece that completes a stop.
    state = continuation.begun_text(1)
    written, listed = "", [stop for stop in rows[0][1:] if stop]
    for piece in pieces:
        state = continuation.extended(state, tf.constant([piece.encode()]), wanted[:1])
        written += piece
        places = [written.encode().find(stop.encode()) for stop in listed]
        expected = min([each for each in places if each >= 0], default=-1)
        assert state.end[0] == expected
        if expected >= 0:
            break


@pytest.mark.parametrize("count", [1, 4, 11])
@hypothesis.given(seed=st.tuples(*[st.integers(-(2**63), 2**63 - 1)] * 2))
@hypothesis.settings(max_examples=20, deadline=None)
def test_bits_of_a_seed_are_tensorflows(count, seed):
    expected = tf.random.stateless_uniform(
        [count], tf.constant(seed, "int64"), None, None, "uint32", "philox"
    )
    assert_array_equal(philox.stateless_bits(count, seed), expected)
