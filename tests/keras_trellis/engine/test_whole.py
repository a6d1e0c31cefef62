"""The engine against the plain network: values and gradients, of whole sequences and of chunks."""

import functools
import itertools
from unittest import mock

import hypothesis
import hypothesis.strategies as st
import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_trellis
from keras_trellis.core import caches, gates
from keras_trellis.core.network import Network, Weights
from keras_trellis.core.trellis import trellis
from keras_trellis.engine import streaming, tiles, whole
from tests import nests
from tests.keras_trellis.networks import (
    WIDTHS,
    P,
    assert_close,
    draw_mask,
    networks,
    state_of,
    tensor,
    weights_of,
    with_gradients,
)


@hypothesis.settings(max_examples=25)
@hypothesis.given(
    network=networks(depth=st.integers(1, 7)),
    steps=st.integers(0, 10),
    carried=st.booleans(),
    masked=st.booleans(),
    use_bias=st.booleans(),
    drops=st.booleans(),
    training=st.booleans(),
    recompute=st.booleans(),
    graph=st.sampled_from([False, False, True]),
    width=WIDTHS,
    data=st.data(),
)
def test_whole_sequences(
    network,
    steps,
    carried,
    masked,
    use_bias,
    drops,
    training,
    recompute,
    graph,
    width,
    data,
):
    # The last output alone has a way of its own.
    num_outputs = data.draw(
        st.one_of(st.none(), st.just(1), st.integers(0, steps)), "num_outputs"
    )
    num_outputs = num_outputs if num_outputs is None else min(num_outputs, steps)
    stops = data.draw(st.sets(st.integers(1, network.depth)), "stops") | {network.depth}
    weights = weights_of(network, 3, use_bias, drops, width)
    sequences = tensor(3, steps, width, seed=6)
    initial = state_of(network, 3) if carried else None
    mask = draw_mask(3, steps) if masked else None
    inputs = (weights, sequences, initial)

    def plain(weights, sequences, initial):
        return trellis(
            network,
            weights,
            sequences,
            initial,
            mask,
            stops=stops,
            num_outputs=num_outputs,
        )

    def fast(weights, sequences, initial):
        how = dict(
            stops=stops, num_outputs=num_outputs, training=training, recompute=recompute
        )
        return whole.run(network, weights, sequences, initial, mask, **how)

    got = functools.partial(with_gradients, fast)
    got = tf.function(got) if graph else got
    assert_close(got(*inputs), with_gradients(plain, *inputs))


@hypothesis.settings(max_examples=10)
@hypothesis.given(
    network=networks(depth=st.integers(1, 6)),
    steps=st.integers(1, 10),
    tile=st.integers(1, 4),
    masked=st.booleans(),
    graph=st.sampled_from([False, False, True]),
    width=WIDTHS,
    data=st.data(),
)
def test_tiles_of_time(network, steps, tile, masked, graph, width, data):
    stops = data.draw(st.sets(st.integers(1, network.depth)), "stops") | {network.depth}
    sequences = tensor(3, steps, width, seed=6)
    inputs = weights_of(network, 3, width=width), sequences, state_of(network, 3)
    mask = draw_mask(3, steps) if masked else None

    def plain(*inputs):
        return trellis(network, *inputs, mask, stops=stops)

    def in_tiles(*inputs):
        # A layer names the depth twice where it collects it among inner levels.
        how = {"stops": [*stops, network.depth], "training": True, "recompute": True}
        return whole.run(network, *inputs, mask, **how)

    got = functools.partial(with_gradients, in_tiles)
    got = tf.function(got) if graph else got
    with (
        mock.patch.multiple(tiles, TILE_STEPS=tile, TILE_ROWS=0),
        mock.patch.object(tiles, "pay", return_value=True),
    ):
        results = got(*inputs)
    assert_close(results, with_gradients(plain, *inputs))


def test_gradients_of_many_tiles_are_summed_in_float32():
    network = Network(4, 1, gates.get("lstm"), 2, (1,), 1, 2)
    generator = np.random.default_rng(5)
    numbers = [generator.uniform(size=size) for size in [(2, P, 16), 16, (2, 512, P)]]
    kernel, bias, sequences = (tf.cast(each, "bfloat16") for each in numbers)

    def differentiate(recompute):
        weights = Weights(kernel, tf.zeros([2, 4, 16]), bias)
        how = {"stops": [1], "training": True, "recompute": recompute}
        with tf.GradientTape() as tape:
            tape.watch([kernel, bias])
            (hidden,), _ = whole.run(network, weights, sequences, **how)
        return tape.gradient(hidden, [kernel, bias])

    with mock.patch.multiple(tiles, TILE_STEPS=2, TILE_ROWS=0):
        results = tf.function(differentiate)(True)
    for got, expected in zip(results, differentiate(False), strict=True):
        assert np.linalg.norm(got - expected) < 0.01 * np.linalg.norm(expected)


def test_a_layer_in_tiles_has_the_gradients_of_one_without():
    """Of all variables, with the same masks, in batches of unknown size."""

    def train(recompute):
        layer = keras_trellis.TrellisLayer(
            6,
            depth=4,
            weight_normalization=True,
            dropout=0.3,
            recurrent_dropout=0.3,
            weight_dropout=0.3,
            return_sequences=True,
            recompute=recompute,
            kernel_initializer=keras.initializers.GlorotUniform(1),
            recurrent_initializer=keras.initializers.Orthogonal(seed=2),
            seed=3,
            dtype="float64",
        )
        layer.build([None, None, P])

        def differentiate(sequences):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(layer(sequences, training=True) ** 2)
            variables = [each.value for each in layer.trainable_variables]
            return loss, tape.gradient(loss, variables)

        if recompute:
            signature = [tf.TensorSpec([None, 24, P], "float64")]
            differentiate = tf.function(differentiate, input_signature=signature)
        return differentiate(tensor(3, 24, P, seed=6))

    with (
        mock.patch.object(tiles, "TILE_STEPS", 4),
        mock.patch.object(tiles, "run", wraps=tiles.run) as run,
    ):
        results = train(recompute=True)
    assert run.called
    nests.assert_close(results, train(recompute=False), tolerance=1e-12)


@pytest.mark.parametrize(
    "depth, dilations, steps, num_outputs, pays",
    [
        (16, (1,), 512, None, True),
        (8, (1, 2, 4, 8), 1024, None, True),
        (16, (1,), 512, 500, True),
        (16, (1,), 100, None, False),  # two tiles are half of all
        (9, (1, 2, 4, 8, 16, 32, 64, 128, 256), 512, 1, False),
        (16, (1,), None, None, False),
    ],
)
def test_tiles_are_chosen_by_shape(depth, dilations, steps, num_outputs, pays):
    network = Network(64, depth, gates.get("lstm"), 2, dilations, 1, 2)
    sequences = keras.KerasTensor([16, steps, 64])
    assert tiles.pay(network, sequences, num_outputs) == pays


@hypothesis.settings(max_examples=15)
@hypothesis.given(
    network=networks(depth=st.integers(1, 10)),
    steps=st.integers(1, 9),
    masked=st.booleans(),
    training=st.booleans(),
    width=WIDTHS,
    data=st.data(),
)
def test_chunks_of_a_stream(network, steps, masked, training, width, data):
    single_steps = st.just(list(range(1, steps)))
    cuts = sorted(data.draw(single_steps | st.lists(st.integers(0, steps), max_size=3)))
    weights = weights_of(network, 3, width=width)
    sequences = tensor(3, steps, width, seed=6)
    initial = state_of(network, 3)
    mask = draw_mask(3, steps) if masked else tf.ones([3, steps], tf.bool)

    def whole_pass(weights, sequences, initial):
        collected, states = trellis(
            network, weights, sequences, initial, mask, stops=[network.depth]
        )
        return collected[0], states

    def chunks(weights, sequences, initial):
        cache, outputs = caches.begin(network, width, initial), []
        for start, end in itertools.pairwise([0, *cuts, steps]):
            chunk_mask = mask[:, start:end] if masked else None
            chunk, cache = streaming.run(
                network,
                weights,
                sequences[:, start:end],
                cache,
                chunk_mask,
                training=training,
            )
            outputs.append(chunk)
        assert np.array_equal(cache.steps, np.sum(mask, axis=1))
        return tf.concat(outputs, axis=1), cache.state

    inputs = (weights, sequences, initial)
    assert_close(with_gradients(chunks, *inputs), with_gradients(whole_pass, *inputs))


@pytest.mark.parametrize("steps", [1, 5])
def test_a_masked_step_leaves_the_cache_of_its_row_untouched(steps):
    network = hypothesis.find(networks(), lambda each: each.dilation_rate == (1, 2))
    weights = weights_of(network, 3, drops=False)
    run = functools.partial(streaming.run, network, weights)
    _, cache = run(
        tensor(3, 5, P, seed=6), caches.begin(network, P, state_of(network, 3))
    )
    mask = np.array([[False] * steps, [True] + [False] * (steps - 1), [True] * steps])
    sequences = tensor(3, steps, P, seed=7).numpy()
    _, one = run(tf.constant(sequences[:, :1]), cache)
    sequences[~mask] = np.nan
    _, after = run(tf.constant(sequences), cache, tf.constant(mask))
    for before, got, first in zip(
        *map(tf.nest.flatten, (cache, after, one)), strict=True
    ):
        assert before.shape == got.shape and before.shape[0] == 3  # dense, batch first
        assert np.array_equal(before[0], got[0])
        assert_close(got[1], first[1])
        assert np.isfinite(got).all()
