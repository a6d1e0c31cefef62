"""A linear recurrence in blocks of steps, against its cell in Keras's loop, and in chunks."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st

from keras_trellis import recurrent
from keras_trellis.engine import linear_recurrence
from tests import nests

DTYPE = "float64"


def make(units):
    """A layer of random weights that returns all it has."""
    flags = {"return_sequences": True, "return_state": True, "dtype": DTYPE}
    layer = recurrent.TLSTM(units, **flags)
    layer.build((None, None, units))
    rng = np.random.default_rng(0)
    for variable in layer.trainable_variables:
        variable.assign(rng.normal(size=variable.shape))
    return layer


def draw(seed, rows, steps, units):
    """Sequences, two states, and a mask."""
    rng = np.random.default_rng(seed)
    shapes = [(rows, steps, units), (rows, units), (rows, units)]
    tensors = [rng.normal(size=shape) for shape in shapes]
    return *tensors, rng.random((rows, steps)) < rng.random()


@functools.cache
def graphs(units):
    """The layer and its cell in Keras's loop, with gradients; of any size, traced once."""
    layer = make(units)
    loop = keras.layers.RNN(
        layer.cell, return_sequences=True, return_state=True, dtype=DTYPE
    )
    loop.built = True
    shapes = [(None, None, units), (None, units), (None, units)]
    specs = [tf.TensorSpec(shape, DTYPE) for shape in shapes]

    def graph(call):
        @tf.function(input_signature=[*specs, tf.TensorSpec((None, None), tf.bool)])
        def run(x, first, cell, mask):
            sources = [x, first, cell, *(each.value for each in weights)]
            with tf.GradientTape() as tape:
                tape.watch(sources)
                results = call(x, initial_state=[first, cell], mask=mask)
                loss = sum(tf.reduce_mean(tf.sin(3 * result)) for result in results)
            return *results, *tape.gradient(loss, sources)

        return run

    weights = layer.trainable_variables
    return graph(functools.partial(layer, training=True)), graph(loop)


@pytest.fixture(scope="module")
def short_blocks():
    """Blocks from four steps on, and for up to eight numbers in a state."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linear_recurrence, "MIN_STEPS", 4)
        patch.setattr(linear_recurrence, "MAX_CHANNELS", 8)
        yield


@given(
    units=st.sampled_from([1, 3]),
    rows=st.integers(1, 4),
    steps=st.integers(1, 40),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=15, deadline=None)
def test_it_is_the_loop(short_blocks, units, rows, steps, seed):
    inputs = draw(seed, rows, steps, units)
    layer, loop = graphs(units)
    nests.assert_close(layer(*inputs), loop(*inputs), tolerance=1e-12)


@given(cuts=st.lists(st.integers(0, 300), max_size=3), seed=st.integers(0, 2**32 - 1))
@example(cuts=[128, 129, 300], seed=0)
@settings(max_examples=5, deadline=None)
def test_chunks_are_one_pass(cuts, seed):
    layer = make(2)
    x, first, cell, mask = draw(seed, 2, 300, 2)
    expected, *_ = layer(x, initial_state=[first, cell], mask=mask)
    cache = layer.get_initial_cache(2, [first, cell])
    outputs = []
    bounds = [0, *sorted(cuts), 300]
    for begin, end in zip(bounds, bounds[1:], strict=False):
        chunk, cache = layer.stream(x[:, begin:end], cache, mask[:, begin:end])
        outputs.append(chunk)
    outputs = np.concatenate(outputs, axis=1)
    np.testing.assert_allclose(outputs, expected, rtol=0, atol=1e-12)
