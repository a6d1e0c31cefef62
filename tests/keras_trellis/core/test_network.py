"""Receptive fields against their sums, depths against a search."""

import itertools

import hypothesis
import hypothesis.strategies as st
import pytest

import keras_trellis
from tests.refusals import refuses

CYCLES = st.one_of(
    st.integers(1, 5), st.lists(st.integers(1, 9), min_size=1, max_size=4)
)


def dilations(cycle, depth):
    cycle = [cycle] if isinstance(cycle, int) else cycle
    return list(itertools.islice(itertools.cycle(cycle), depth))


@hypothesis.given(st.integers(1, 40), st.integers(1, 4), CYCLES)
def test_receptive_field(depth, k, cycle):
    used = dilations(cycle, depth)
    expected = 1 + sum(used[1:]) if k == 1 else 1 + (k - 1) * sum(used)
    got = keras_trellis.receptive_field(depth, kernel_size=k, dilation_rate=cycle)
    assert got == expected


@hypothesis.given(st.integers(1, 300), st.integers(1, 4), CYCLES)
def test_depth_for_is_the_smallest(steps, k, cycle):
    arguments = dict(kernel_size=k, dilation_rate=cycle)
    depth = keras_trellis.depth_for(steps, **arguments)
    assert keras_trellis.receptive_field(depth, **arguments) >= steps
    assert depth == 1 or keras_trellis.receptive_field(depth - 1, **arguments) < steps


def test_a_million_steps():
    assert keras_trellis.depth_for(1_000_001) == 1_000_000
    assert keras_trellis.depth_for(1_000_001, dilation_rate=(1, 9)) == 200_000


def test_the_paper_sees_as_far_as_it_is_deep():
    assert keras_trellis.receptive_field(55) == 56
    # The released pixel model: its dilations reach over the 784 pixels of an image.
    cycle = (1, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
    assert keras_trellis.receptive_field(11, dilation_rate=cycle) == 1025


@pytest.mark.parametrize("value", [0, -1, 1.5, "2", None, True])
@pytest.mark.parametrize(
    "function", [keras_trellis.receptive_field, keras_trellis.depth_for]
)
def test_bad_arguments(function, value):
    first = "depth" if function is keras_trellis.receptive_field else "steps"
    calls = {
        first: lambda: function(value),
        "kernel_size": lambda: function(3, kernel_size=value),
        "dilation_rate": lambda: function(3, dilation_rate=value),
    }
    for name, call in calls.items():
        if name == "dilation_rate" and value is True:
            continue
        with refuses(name) as error:
            call()
        assert repr(value) in str(error.value)


@pytest.mark.parametrize("cycle", [(), [], (0,), (1, -1), (1, 1.5)], ids=str)
def test_bad_cycles(cycle):
    with refuses("dilation_rate") as error:
        keras_trellis.receptive_field(3, dilation_rate=cycle)
    assert repr(cycle) in str(error.value)
