"""The plain network against its equations in NumPy, row by row and step by step."""

import functools

import hypothesis
import hypothesis.strategies as st
import numpy as np
import tensorflow as tf

from keras_trellis.core.trellis import trellis
from tests import numpy_reference
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


def row_alone(network, weights, sequences, initial, row):
    """The outputs of each level, [depth, T, units], and the states, by the equations."""
    pick = lambda each: None if each is None else np.asarray(each)[row : row + 1]  # noqa: E731
    levels = numpy_reference.levels(
        sequences,
        np.asarray(weights.kernel),
        np.asarray(weights.recurrent_kernel),
        None if weights.bias is None else np.asarray(weights.bias),
        depth=network.depth,
        gate=network.gate.name,
        dilations=network.dilation_rate,
        inject_every=network.inject_every,
        staggered=network.staggered,
        initial_state=[pick(each) for each in initial],
        input_mask=pick(weights.input_mask),
        state_mask=pick(weights.state_mask),
    )
    return np.stack([state[0][0] for state in levels]), [each[0] for each in levels[-1]]


@hypothesis.settings(max_examples=40)
@hypothesis.given(
    network=networks(),
    batch=st.integers(1, 3),
    steps=st.integers(0, 7),
    carried=st.booleans(),
    masked=st.booleans(),
    use_bias=st.booleans(),
    drops=st.booleans(),
    width=WIDTHS,
)
def test_equations(network, batch, steps, carried, masked, use_bias, drops, width):
    weights = weights_of(network, batch, use_bias, drops, width)
    sequences = tensor(batch, steps, width, seed=6).numpy()
    initial = state_of(network, batch)
    if not carried:
        initial = tuple(map(tf.zeros_like, initial))
    mask = draw_mask(batch, steps).numpy() if masked else np.ones((batch, steps), bool)
    spoiled = np.where(mask[..., None], sequences, np.nan)
    collected, states = trellis(
        network,
        weights,
        tf.constant(spoiled),
        initial if carried else None,
        tf.constant(mask) if masked else None,
        stops=range(1, network.depth + 1),
    )
    for row, valid in enumerate(mask):
        levels, last = row_alone(
            network, weights, sequences[row : row + 1, valid], initial, row
        )
        # A masked step repeats the output before it; zeros stand before the first valid one.
        before = np.concatenate([np.zeros_like(levels[:, :1]), levels], axis=1)
        if not valid.any():
            before = np.zeros((network.depth, 1, network.units))
            last = [each[row] for each in initial]
        else:
            last = [each[-1] for each in last]
        expected = before[:, np.cumsum(valid)]
        assert_close([each[row] for each in collected], list(expected))
        assert_close([each[row] for each in states], last)


def test_the_last_steps_alone():
    network = hypothesis.find(networks(), lambda each: each.depth == 3)
    weights, sequences = weights_of(network, 2), tensor(2, 6, P, seed=6)
    whole, states = trellis(network, weights, sequences, stops=[1, 3])
    for num_outputs in (0, 4, tf.constant(2)):
        collected, same = trellis(
            network, weights, sequences, stops=[1, 3], num_outputs=num_outputs
        )
        assert_close(collected, [each[:, 6 - num_outputs :] for each in whole])
        assert_close(same, states)


@hypothesis.settings(max_examples=40)
@hypothesis.given(
    network=networks(depth=st.integers(1, 6)),
    steps=st.integers(0, 12),
    carried=st.booleans(),
    masked=st.booleans(),
    data=st.data(),
)
def test_the_last_outputs_are_those_of_all(network, steps, carried, masked, data):
    """Of each level only what they depend on is computed: values and gradients are the same."""
    num_outputs = data.draw(st.one_of(st.just(1), st.integers(0, steps)), "num_outputs")
    num_outputs = min(num_outputs, steps)
    stops = data.draw(st.sets(st.integers(1, network.depth)), "stops") | {network.depth}
    weights = weights_of(network, 3)
    initial = state_of(network, 3) if carried else None
    mask = draw_mask(3, steps) if masked else None
    inputs = (weights, tensor(3, steps, P, seed=6), initial)

    def run(asked, weights, sequences, initial):
        collected, state = trellis(
            network,
            weights,
            sequences,
            initial,
            mask,
            stops=stops,
            num_outputs=asked,
        )
        if asked is None:
            collected = [each[:, steps - num_outputs :] for each in collected]
        return collected, state

    assert_close(
        with_gradients(functools.partial(run, num_outputs), *inputs),
        with_gradients(functools.partial(run, None), *inputs),
    )
