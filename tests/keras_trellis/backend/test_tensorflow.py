"""Masks of inverted dropout as pure functions of a seed, on TensorFlow."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_trellis.backend import tensorflow as backend


def draw(seed, rate, shape, dtype):
    return backend.dropout_mask(seed, "inputs", rate, shape, dtype)


def test_values_and_frequency():
    mask = draw(tf.constant([1, 2]), 0.3, [200, 300], tf.float64).numpy()
    assert set(np.unique(mask)) == {0.0, 1 / 0.7}
    assert abs((mask == 0).mean() - 0.3) < 0.01  # 5 standard deviations
    assert abs(mask.mean() - 1) < 0.02


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32, tf.float64])
def test_number_formats(dtype):
    seed = tf.constant([1, 2])
    mask = draw(seed, 0.25, [100], dtype)
    assert mask.dtype == dtype
    zeros = draw(seed, 0.25, [100], tf.float64) == 0
    assert np.array_equal(mask == 0, zeros)


@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float32, tf.float64])
def test_eager_graph_and_xla_agree(dtype):
    def draw_one(seed):
        return draw(seed, 0.5, [7, 9], dtype)

    # An argument: XLA would find a constant's mask folded already.
    seed = tf.constant([3, 4])
    eager = draw_one(seed)
    assert np.array_equal(eager, tf.function(draw_one)(seed))
    assert np.array_equal(eager, tf.function(draw_one, jit_compile=True)(seed))


def test_seeds_differ_and_repeat():
    def draw_one(seed):
        return draw(seed, 0.5, [64], tf.float32).numpy()

    first, again = keras.random.SeedGenerator(5), keras.random.SeedGenerator(5)
    seeds = [backend.next_seed(first) for _ in range(3)]
    masks = [draw_one(seed) for seed in seeds]
    for seed, mask in zip(seeds, masks, strict=True):
        assert seed.dtype == tf.int32 and seed.shape == (2,)
        assert np.array_equal(draw_one(backend.next_seed(again)), mask)
        assert np.array_equal(draw_one(seed), mask)
    masks += [draw_one(backend.fold_in(seeds[0], data)) for data in range(3)]
    assert len({m.tobytes() for m in masks}) == len(masks)


def test_a_stream_is_a_function_of_seed_and_name():
    seeds = [tf.constant([1, 2]), tf.constant([1, 3])]
    streams = [
        backend.stream_seed(seed, name)
        for seed in seeds
        for name in ("inputs", "states")
    ]
    assert len({stream.numpy().tobytes() for stream in streams}) == 4
    assert all(stream.dtype == tf.int32 and stream.shape == (2,) for stream in streams)
    # The same in every process and every release: a run resumed is the run that never stopped.
    assert backend.stream_seed(seeds[0], "inputs").numpy().tolist() == [
        1105988140,
        28364839,
    ]
