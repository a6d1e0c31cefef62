"""The depth loop calls each level once, in order, with its phase, and no wider than it must be."""

import math

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import tensorflow as tf

from keras_trellis.core import schedule
from keras_trellis.engine.depth_loop import ascend


@pytest.mark.parametrize("period", [1, 2, 3])
@pytest.mark.parametrize(
    "first, last", [(0, 0), (0, 1), (0, 7), (2, 7), (1, 2), (3, 9)]
)
@pytest.mark.parametrize("graph", [False, True])
def test_each_level_once(period, first, last, graph):
    def advance(seen, level, phase):
        row = tf.stack([tf.cast(level, tf.int32), phase])
        return tf.tensor_scatter_nd_update(seen, [[tf.cast(level, tf.int32)]], [row])

    def run():
        nothing = tf.fill([10, 2], -1)
        return ascend(advance, nothing, first=first, last=last, period=period)

    got = (tf.function(run) if graph else run)()
    expected = np.full((10, 2), -1)
    for level in range(first, last):
        expected[level] = level, level % period
    assert np.array_equal(got, expected)


def test_levels_are_applied_in_order_and_the_gradient_passes_under_xla():
    def run(x):
        def advance(carry, level, phase):
            return carry * (1.0 + tf.cast(level, tf.float64)) + phase

        return ascend(advance, x, first=0, last=5, period=2)

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
            return ascend(lambda c, *_: tf.tanh(c), x, first=0, last=depth, period=2)

        graph = (
            tf.function(run)
            .get_concrete_function(tf.constant(1.0))
            .graph.as_graph_def()
        )
        return len(graph.node) + sum(len(f.node_def) for f in graph.library.function)

    assert nodes(40) == nodes(4)


def steps_of(grid, steps):
    """The steps of a grid, one by one."""
    if grid.stride == 0:
        return {steps - 1}
    first = 0 if grid.reach is None else max(0, steps - 1 - grid.reach)
    return set(range(steps - 1, first - 1, -grid.stride))


@hypothesis.given(
    cycle=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    depth=st.integers(1, 30),
    reach=st.integers(1, 2),
    steps=st.integers(1, 80),
    known=st.booleans(),
    data=st.data(),
)
def test_segments_lose_nothing_that_is_kept_and_little_else_remains(
    cycle, depth, reach, steps, known, data
):
    dilations = [cycle[level % len(cycle)] for level in range(depth)]
    num_outputs = data.draw(st.integers(0, steps), "num_outputs")
    stops = data.draw(st.sets(st.integers(1, depth)), "stops")
    found = list(
        schedule.segments(
            dilations,
            reach,
            stops=stops,
            steps=steps if known else None,
            num_outputs=num_outputs,
        )
    )
    assert [each.first for each in found] == [0, *(each.last for each in found[:-1])]
    assert found[-1].last == depth and stops <= {each.last for each in found}
    right = set(range(steps))  # the steps whose state is that of the whole network
    for each in found:
        before, after = steps_of(each.before, steps), steps_of(each.after, steps)
        assert each.before == each.after or each.last == each.first + 1
        right &= before
        for dilation in dilations[each.first : each.last]:
            taps = [tap * dilation for tap in range(reach + 1)]
            right = {
                t for t in after if all(t < tap or t - tap in right for tap in taps)
            }
        if each.last in stops:
            assert right >= set(range(steps - num_outputs, steps))
        needed = max(num_outputs, 1) + reach * sum(dilations[each.first :])
        widest = found[0].before.reach
        if known:
            needed, widest = min(needed, steps), steps - 1 if widest is None else widest
        computed = widest if each.before.reach is None else each.before.reach
        assert 0 <= computed + 1 - needed <= (widest + 1) / 14
    assert steps - 1 in right and right >= set(range(steps - num_outputs, steps))
    assert sum(each.before == each.after for each in found) <= 16 + len(stops)


@hypothesis.given(
    cycle=st.lists(st.integers(1, 12), min_size=1, max_size=6),
    depth=st.integers(1, 12),
    steps=st.integers(1, 60),
)
def test_the_last_output_is_computed_from_what_it_depends_on(cycle, depth, steps):
    dilations = [cycle[level % len(cycle)] for level in range(depth)]
    found = list(schedule.segments(dilations, 1, steps=steps, num_outputs=1))
    needed, strides = {steps - 1}, [0]
    for dilation in reversed(dilations):
        needed |= {step - dilation for step in needed if step >= dilation}
        strides.append(math.gcd(strides[-1], dilation))
    assert needed <= steps_of(found[0].before, steps)
    assert [found[0].before.stride, found[-1].after.stride] == [strides[-1], 0]


def test_where_dilations_double_all_levels_together_compute_two_steps_for_each():
    steps, dilations = 784, [1, *(2**power for power in range(10))]
    found = schedule.segments(dilations, 1, steps=steps, num_outputs=1)
    computed = sum((each.last - each.first) * each.after.size(steps) for each in found)
    assert 1.9 * steps < computed < 2.1 * steps


def test_segments_where_all_steps_are_kept():
    found = list(schedule.segments([1] * 6, 1, stops=[2], steps=None, num_outputs=None))
    assert found == [
        (0, 2, schedule.WHOLE, schedule.WHOLE),
        (2, 6, schedule.WHOLE, schedule.WHOLE),
    ]


def test_a_small_network_has_few_segments():
    cut = [
        schedule.segments([1] * 60, 1, steps=90, num_outputs=1, units=units)
        for units in (16, 512)
    ]
    found = [len(list(each)) for each in cut]
    assert found[0] == 1 and found[1] >= 7
