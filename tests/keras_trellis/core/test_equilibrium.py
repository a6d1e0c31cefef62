"""The plain network of infinite depth against the engine's, and so its solver and its gradients."""

import dataclasses
import math

import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_trellis.core import caches, equilibrium, gates
from keras_trellis.core.equilibrium import Solver
from keras_trellis.core.network import Network
from keras_trellis.engine import equilibrium as engine
from tests.keras_trellis.networks import (
    UNITS,
    P,
    assert_close,
    draw_mask,
    networks,
    state_of,
    tensor,
    weights_of,
)

# Few iterations: all that differs between the two is rounding, settled or not.
SOLVER = Solver(tolerance=1e-4, max_iterations=7, training=False)


def one_turn(network):
    """The shape of an equilibrium layer's network: no group begins late."""
    depth = math.lcm(len(network.dilation_rate), network.inject_every)
    return dataclasses.replace(network, depth=depth, staggered=1)


def stack_of_layers(gate, groups, injected_groups):
    return Network(
        units=UNITS,
        depth=1,
        gate=gates.get(gate),
        kernel_size=2,
        dilation_rate=(1,),
        inject_every=1,
        input_taps=1,
        groups=groups,
        injected_groups=injected_groups,
    )


def group_weights(network, batch, drops):
    """Weights with the kernels of groups alone."""
    units = UNITS // network.groups
    channels = network.gate.blocks * units
    return weights_of(network, batch, drops=drops)._replace(
        kernel=tensor(1, P, channels * network.injected_groups, seed=1, scale=0.4),
        recurrent_kernel=tensor(2 * network.groups - 1, units, channels, seed=2),
    )


def with_gradients(settle, network, weights, sequences, initial, mask):
    """All results, and the gradients of a sum that weighs each number of outputs and state."""
    kernels = [weights.kernel, weights.recurrent_kernel]
    sources = [*kernels, weights.bias, sequences, *initial]
    with tf.GradientTape() as tape:
        tape.watch(sources)
        results = settle(network, weights, sequences, initial, mask, solver=SOLVER)
        outputs, state, _ = results
        sums = [
            tf.reduce_sum(one * tensor(*one.shape, seed=seed))
            for seed, one in enumerate([outputs, *state])
        ]
        total = tf.add_n(sums)
    return results, tape.gradient(total, sources, unconnected_gradients="zero")


def streamed(stream, network, weights, sequences, cache, mask):
    """The outputs of two chunks and the cache after them."""
    outputs = []
    for chunk in (slice(0, 2), slice(2, None)):
        part = None if mask is None else mask[:, chunk]
        hidden, cache = stream(
            network, weights, sequences[:, chunk], cache, part, solver=SOLVER
        )
        outputs.append(hidden)
    return outputs, cache


def check(network, weights, batch, steps, masked):
    """Holds the plain network against the engine's."""
    sequences, initial = tensor(batch, steps, P, seed=6), state_of(network, batch)
    mask = draw_mask(batch, steps) if masked else None
    arguments = network, weights, sequences, initial, mask
    actual = with_gradients(equilibrium.settle, *arguments)
    assert_close(actual, with_gradients(engine.settle, *arguments), tolerance=1e-8)
    cache = caches.begin(network, P, initial)
    arguments = network, weights, sequences, cache, mask
    actual = streamed(equilibrium.stream, *arguments)
    assert_close(actual, streamed(engine.stream, *arguments), tolerance=1e-8)


@settings(max_examples=5)
@given(
    network=networks().map(one_turn),
    batch=st.integers(1, 3),
    steps=st.integers(0, 6),
    masked=st.booleans(),
    drops=st.booleans(),
)
def test_it_is_the_engine(network, batch, steps, masked, drops):
    check(network, weights_of(network, batch, drops=drops), batch, steps, masked)


@settings(max_examples=4)
@given(
    gate=st.sampled_from(["lstm", "gru", "tanh"]),
    groups=st.sampled_from([2, 3]),
    inject_groups=st.booleans(),
    batch=st.integers(1, 3),
    steps=st.integers(0, 6),
    masked=st.booleans(),
    drops=st.booleans(),
)
def test_a_stack_is_the_engines(
    gate, groups, inject_groups, batch, steps, masked, drops
):
    network = stack_of_layers(gate, groups, groups if inject_groups else 1)
    check(network, group_weights(network, batch, drops), batch, steps, masked)


def test_a_graph_need_not_know_the_sizes():
    network = dataclasses.replace(
        stack_of_layers("gru", 1, 1), dilation_rate=(1, 2), depth=2
    )
    weights = weights_of(network, 2, drops=False)
    sequences = tensor(2, 5, P, seed=6)

    @tf.function(input_signature=[tf.TensorSpec([None, None, P], tf.float64)])
    def settle(sequences):
        return equilibrium.settle(network, weights, sequences, solver=SOLVER)

    expected = engine.settle(network, weights, sequences, solver=SOLVER)
    assert_close(settle(sequences), expected)
