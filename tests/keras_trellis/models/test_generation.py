"""Sampling: filters against NumPy, draws as functions of seed and step, the loop's bookkeeping."""

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from keras_trellis import TrellisLayer, TrellisLM
from keras_trellis.formats import sampling
from keras_trellis.models import generation
from tests.refusals import refuses

V = 7


def log_probs_of(rows, seed=0):
    return tf.nn.log_softmax(np.random.default_rng(seed).normal(size=(rows, V))).numpy()


def filtered(log_probs, top_k, top_p):
    log_probs = tf.constant(log_probs)
    given = tf.constant(top_k), tf.constant(top_p, log_probs.dtype)
    return sampling.filtered(log_probs, *given, generation.OPERATIONS)


def filtered_by_numpy(log_probs, top_k, top_p):
    """The definition, token by token, for one row without ties."""
    order = np.argsort(-log_probs)[:top_k]
    probabilities = np.exp(log_probs[order]) / np.exp(log_probs[order]).sum()
    kept, mass = [], 0.0
    for token, probability in zip(order, probabilities, strict=True):
        kept.append(token)
        mass += probability
        if top_p < 1 and mass >= top_p:
            break
    result = np.full(V, -np.inf)
    result[kept] = log_probs[kept]
    return result


@hypothesis.given(
    seed=st.integers(0, 1000),
    top_k=st.just(generation.ALL) | st.integers(1, V + 2),
    top_p=st.floats(0.01, 1.0),
)
@hypothesis.settings(max_examples=60)
def test_filters_against_numpy(seed, top_k, top_p):
    log_probs = log_probs_of(1, seed)
    actual = filtered(log_probs, [top_k], [top_p])
    expected = filtered_by_numpy(log_probs[0], top_k, top_p)
    assert_array_equal(actual[0], expected)


def test_filters_row_by_row():
    log_probs = log_probs_of(3)
    actual = filtered(log_probs, [1, 3, V], [1.0, 0.6, 0.9])
    for row, (k, p) in enumerate([(1, 1.0), (3, 0.6), (V, 0.9)]):
        assert_array_equal(actual[row], filtered_by_numpy(log_probs[row], k, p))


def test_equals_are_kept_together():
    kept = filtered([[1.0, 2.0, 2.0, 0.0]], [1], [1.0])
    assert_array_equal(np.isfinite(kept), [[False, True, True, False]])


def test_draws_follow_the_distribution():
    log_probs, rows = log_probs_of(1), 4_000

    @tf.function
    def draw():
        tiled = tf.tile(tf.constant(log_probs, tf.float32), [rows, 1])
        return generation.sample(
            tiled, generation.row_seeds(5, rows), 0, temperature=0.7
        )

    expected = np.exp(log_probs[0] / 0.7) / np.exp(log_probs[0] / 0.7).sum()
    assert_allclose(np.bincount(draw(), minlength=V) / rows, expected, atol=0.03)


def test_a_draw_is_a_function_of_seed_and_step():
    log_probs = tf.constant(log_probs_of(4), tf.float32)
    seeds = generation.row_seeds(3, 4)

    def draw(rows, step):
        return generation.sample(
            tf.gather(log_probs, rows), tf.gather(seeds, rows), step
        )

    many = [draw([0, 1, 2, 3], step) for step in range(4)]
    compiled = [
        tf.function(lambda step: draw([0, 1, 2, 3], step), jit_compile=jit_compile)
        for jit_compile in (False, True)
    ]
    for step, drawn in enumerate(many):
        assert_array_equal(draw([2, 0], step), tf.gather(drawn, [2, 0]))
        for function in compiled:
            assert_array_equal(function(tf.constant(step)), drawn)
    assert len({tuple(drawn.numpy()) for drawn in many}) > 1


def test_a_temperature_of_almost_nothing_is_greedy():
    log_probs = log_probs_of(20) - 10  # divided by it, all of them are beyond float32
    seeds = generation.row_seeds(1, 20)
    for filters in ({}, {"top_k": 3, "top_p": 0.9}):
        drawn = generation.sample(log_probs, seeds, 0, temperature=1.2e-38, **filters)
        assert_array_equal(drawn, log_probs.argmax(axis=-1))


def test_temperature_zero_is_greedy_row_by_row():
    log_probs = tf.constant(log_probs_of(50), tf.float32)
    seeds = generation.row_seeds(1, 50)
    temperature = [0.0, 5.0] * 25
    drawn = generation.sample(
        log_probs, seeds, 0, temperature=temperature, top_k=V, top_p=0.99
    )
    best = np.argmax(log_probs, -1)
    assert_array_equal(drawn[::2], best[::2])
    assert (drawn.numpy()[1::2] != best[1::2]).any()


@pytest.mark.parametrize(
    "filters", [{}, {"temperature": 0.0}, {"top_k": 3, "top_p": 0.6}]
)
@pytest.mark.parametrize("forbidden", [[1, 4], [[0, -1], [5, 2], [1, 1], [-2, -1]]])
def test_what_is_forbidden_counts_as_nothing(filters, forbidden):
    log_probs, seeds = log_probs_of(4).astype("float32"), generation.row_seeds(9, 4)
    barred = log_probs.copy()
    for row, ids in enumerate(np.broadcast_to(forbidden, [4, 2])):
        barred[row, ids[ids >= 0]] = -np.inf
    penalties = generation.penalties(forbidden, tf.constant(log_probs))
    assert_array_equal(log_probs + penalties, barred)
    for step in range(3):
        drawn = generation.sample(barred, seeds, step, **filters)
        assert np.isfinite(barred[np.arange(4), drawn]).all()


@pytest.mark.parametrize("temperature", [1e-3, 0.7, 1e6])
def test_what_is_forbidden_is_never_drawn_and_the_others_keep_their_proportions(
    temperature,
):
    log_probs, rows = log_probs_of(1)[0].astype("float64"), 4_000
    forbidden = [int(log_probs.argmax()), 0]

    @tf.function
    def draw():
        tiled = tf.tile(tf.constant(log_probs, tf.float32)[None], [rows, 1])
        seeds = generation.row_seeds(5, rows)
        tiled += generation.penalties(forbidden, tiled)
        return generation.sample(tiled, seeds, 0, temperature=temperature)

    log_probs[forbidden] = -np.inf
    expected = np.exp((log_probs - log_probs.max()) / temperature)
    shares = np.bincount(draw(), minlength=V) / rows
    assert not shares[forbidden].any()
    assert_allclose(shares, expected / expected.sum(), atol=0.03)


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_row_seeds(dtype):
    assert_array_equal(generation.row_seeds(7, 5)[:3], generation.row_seeds(7, 3))
    assert not np.array_equal(
        generation.row_seeds(None, 3), generation.row_seeds(None, 3)
    )
    for extreme in (-1, 2**63, 2**70):
        assert generation.row_seeds(extreme, 2).shape == (2, 3)
    with refuses("`seed` must be None or an integer. Received: seed='a'"):
        generation.row_seeds("a", 2)
    with tf.device("CPU:0"):
        log_probs = tf.cast(log_probs_of(2), dtype)
        generation.sample(log_probs, generation.row_seeds(7, 2), 0)


def count_up(token, cache):
    """A model that is sure of the successor of the token it reads, and counts what it has read."""
    return tf.math.log(tf.one_hot((token + 1) % V, V)), cache + 1


def run(start, steps, **arguments):
    log_probs = tf.math.log(tf.one_hot(tf.cast(start, tf.int32), V))
    seeds = generation.row_seeds(0, len(start))
    return generation.generate(
        count_up, log_probs, tf.zeros(len(start)), steps=steps, seeds=seeds, **arguments
    )


@pytest.mark.parametrize("steps", [1, 2, 9])
def test_tokens_are_fed_back(steps):
    ids, lengths, cache = run([0, 3], steps)
    assert_array_equal(lengths, [steps, steps])
    assert_array_equal(ids, (np.array([[0], [3]]) + np.arange(steps)) % V)
    assert_array_equal(cache, [steps - 1, steps - 1])


def test_a_stop_token_fills_its_row():
    ids, lengths, cache = run([0, 3, 4], 6, stop_token_ids=[4, 2])
    assert_array_equal(ids, [[0, 1, 2, 2, 2, 2], [3, 4, 4, 4, 4, 4], [4] * 6])
    assert_array_equal(lengths, [3, 2, 1])
    # What a row has read, its last token apart.
    assert_array_equal(cache, [2, 1, 0])


def test_the_loop_ends_when_every_row_has():
    ids, _, cache = run([0, 3], 1000, stop_token_ids=[4])
    assert_array_equal(ids[:, :6], [[0, 1, 2, 3, 4, 4], [3, 4, 4, 4, 4, 4]])
    assert_array_equal(ids[:, 6:], 4)
    assert_array_equal(cache, [4, 1])


def test_rows_of_different_lengths():
    ids, lengths, cache = run([0, 3, 5], [2, 1, 4])
    assert_array_equal(ids, [[0, 1, 1, 1], [3, 3, 3, 3], [5, 6, 0, 1]])
    assert_array_equal(lengths, [2, 1, 4])
    assert_array_equal(cache, [1, 0, 3])


def test_no_rows():
    ids, lengths, cache = run([], 3)
    assert ids.shape[0] == lengths.shape[0] == cache.shape[0] == 0


def test_draws_numbered_by_position_go_on_in_another_call():
    seeds = generation.row_seeds(5, 2)
    table = tf.constant(np.random.default_rng(0).normal(size=(V, V)), tf.float32)

    def step(token, cache):
        return tf.gather(table, token), cache + 1

    def draw(token, cache, steps):
        log_probs, cache = step(token, cache)
        return generation.generate(
            step, log_probs, cache, steps=steps, seeds=seeds, first=cache
        )

    whole, *_ = draw(tf.constant([1, 2]), tf.constant([0, 3]), 9)
    first, _, cache = draw(tf.constant([1, 2]), tf.constant([0, 3]), 4)
    second, *_ = draw(first[:, -1], cache, 5)
    assert_array_equal(tf.concat([first, second], 1), whole)
    again, *_ = draw(first[:, -1], tf.zeros_like(cache), 5)
    assert np.any(again != second)


def test_stop_tokens_row_by_row():
    ids, *_ = run([0, 0], 4, stop_token_ids=[[1], [2]])
    assert_array_equal(ids, [[0, 1, 1, 1], [0, 1, 2, 2]])


@pytest.mark.parametrize("jit_compile", [False, True])
def test_what_is_forbidden_row_by_row(jit_compile):
    table = tf.constant(np.random.default_rng(0).normal(size=(V, V)), tf.float32)
    seeds = generation.row_seeds(3, 3)

    @tf.function(jit_compile=jit_compile)
    def draw(forbidden_ids):
        step = lambda token, cache: (tf.gather(table, token), cache)  # noqa: E731
        first = tf.gather(table, [0, 0, 0])
        return generation.generate(
            step, first, tf.zeros(3), steps=30, seeds=seeds, forbidden_ids=forbidden_ids
        )[0]

    free = draw(tf.constant([[-1, -2]] * 3)).numpy()
    forbidden = [[-1, -1], [free[1, 0], free[1, 1]], [-1, free[2, 5]]]
    drawn = draw(tf.constant(forbidden)).numpy()
    assert_array_equal(drawn[0], free[0])
    # Until then nothing is forbidden of it.
    before = free[2].tolist().index(forbidden[2][1])
    assert_array_equal(drawn[2, :before], free[2, :before])
    for row in (1, 2):
        assert not np.isin(drawn[row], forbidden[row]).any()


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((-0.1, None, None), "`temperature` must be .*temperature=-0.1"),
        ((float("nan"), None, None), "`temperature` must be .*temperature=nan"),
        ((float("inf"), None, None), "`temperature` must be .*temperature=inf"),
        (("hot", None, None), "`temperature` must be .*temperature='hot'"),
        ((1.0, 0, None), "`top_k` must be .*top_k=0"),
        ((1.0, 2.5, None), "`top_k` must be .*top_k=2.5"),
        ((1.0, None, 0.0), "`top_p` must be .*top_p=0.0"),
        ((1.0, None, 1.5), "`top_p` must be .*top_p=1.5"),
    ],
)
def test_bad_arguments(arguments, message):
    with refuses(message):
        generation.check_sampling(*arguments)


def test_prompts_of_several_lengths_share_a_graph():
    """From the second length on, TensorFlow traces a graph for any: shapes are unknown in it."""
    layer = TrellisLayer(3, 2, output_units=3)
    model = TrellisLM(V, layer, embedding_units=3)
    for length in (1, 2, 3):
        prompt = np.ones([2, length], int)
        assert_array_equal(model.generate(prompt, 5, seed=1)[:, :length], prompt)
