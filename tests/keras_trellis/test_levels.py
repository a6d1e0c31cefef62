"""The depth loop calls each level once, in order, with its phase, and no wider than it must be."""

import hypothesis
import hypothesis.strategies as st
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


@hypothesis.given(
    widths=st.lists(st.integers(0, 9), min_size=1, max_size=30),
    steps=st.integers(1, 80),
    data=st.data(),
)
def test_segments_lose_nothing_that_is_kept_and_little_else_remains(widths, steps, data):
    depth = len(widths)
    discard = data.draw(st.integers(0, steps), "discard")
    stops = data.draw(st.sets(st.integers(1, depth)), "stops")
    found = list(levels.segments(widths, stops=stops, steps=steps, discard=discard))
    assert [segment.first for segment in found] == [0, *(each.last for each in found[:-1])]
    assert found[-1].last == depth and stops <= {segment.last for segment in found}
    right = np.ones(steps, bool)  # whether a step's state is that of the whole network
    for segment in found:
        right[: segment.start] = False
        for level in range(segment.first, segment.last):
            right = np.array(
                [right[max(0, step - widths[level]) : step + 1].all() for step in range(steps)]
            )
            right[: segment.start] = False
        if segment.last in stops:
            assert right[discard:].all()
        above = min(discard, steps - 1) - sum(widths[segment.first :])
        needless = max(0, above) - segment.start
        assert 0 <= needless <= (steps - found[0].start) / 14
    assert len(found) <= 15 + len(stops)
    assert right[-1] and right[discard:].all()


def test_segments_where_the_number_of_steps_is_unknown():
    found = list(levels.segments([1] * 6, stops=[2], steps=None, discard=4))
    assert found == [(0, 2, 0), (2, 6, 0)]
