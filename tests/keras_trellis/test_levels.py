"""The depth loop calls each level once, in order, with its phase."""

import numpy as np
import pytest
import tensorflow as tf

from keras_trellis import levels


@pytest.mark.parametrize("period", [1, 2, 3])
@pytest.mark.parametrize("first, last", [(0, 0), (0, 1), (0, 7), (2, 7), (1, 2), (3, 9)])
@pytest.mark.parametrize("graph", [False, True])
def test_each_level_once(period, first, last, graph):
    def advance(seen, level, phase):
        row = tf.stack([tf.cast(level, tf.int32), phase])
        return tf.tensor_scatter_nd_update(seen, [[tf.cast(level, tf.int32)]], [row])

    def run():
        nothing = tf.fill([10, 2], -1)
        return levels.iterate_levels(advance, nothing, first=first, last=last, period=period)

    got = (tf.function(run) if graph else run)()
    expected = np.full((10, 2), -1)
    for level in range(first, last):
        expected[level] = level, level % period
    assert np.array_equal(got, expected)


def test_levels_are_applied_in_order_and_the_gradient_passes_under_xla():
    def run(x):
        def advance(carry, level, phase):
            return carry * (1.0 + tf.cast(level, tf.float64)) + phase

        return levels.iterate_levels(advance, x, first=0, last=5, period=2)

    @tf.function(jit_compile=True)
    def both(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = run(x)
        return y, tape.gradient(y, x)

    expected = 2.0
    for level in range(5):
        expected = expected * (1 + level) + level % 2
    y, dy = both(tf.constant(2.0, tf.float64))
    assert float(y) == expected and float(dy) == 120.0


def test_the_graph_does_not_grow_with_depth():
    def nodes(depth):
        def run(x):
            return levels.iterate_levels(lambda c, *_: tf.tanh(c), x, first=0, last=depth, period=2)

        graph = tf.function(run).get_concrete_function(tf.constant(1.0)).graph.as_graph_def()
        return len(graph.node) + sum(len(f.node_def) for f in graph.library.function)

    assert nodes(40) == nodes(4)
