"""EquilibriumTrellisLayer against very deep networks of the same weights, and its solver."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.linalg import norm

from keras_trellis import EquilibriumTrellisLayer, TrellisLayer, convert
from keras_trellis.core.fixed_point import solve
from tests.contract import saved
from tests.contract.registry import REGISTRY
from tests.keras_trellis.gradients import assert_no_second_gradient
from tests.nests import assert_close
from tests.refusals import refuses

P, UNITS = 3, 6
BATCH, STEPS = 2, 7
N_STATES = {"lstm": 2, "gru": 1, "tanh": 1}


def randomize(layer, scale=0.3, batch=None):
    layer.build((batch, None, P))
    rng = np.random.default_rng(0)
    for variable in layer.trainable_variables:
        values = scale * rng.normal(size=variable.shape)
        variable.assign(
            np.abs(values) + 0.3 if variable.path.endswith("_scale") else values
        )
    return layer


def make(scale=0.3, **arguments):
    """A layer in float64 with random variables, solved as well as it can be."""
    defaults = {"tolerance": 1e-13, "max_iterations": 300, "dtype": "float64"}
    layer = EquilibriumTrellisLayer(
        UNITS, **defaults | {"return_sequences": True} | arguments
    )
    return randomize(layer, scale, BATCH if layer.stateful else None)


def deep(layer, turns):
    """The network of so many turns with the variables of an equilibrium layer."""
    config = layer.get_config()
    del config["tolerance"], config["max_iterations"]
    network = TrellisLayer(depth=turns * layer.depth, **config)
    network.build((None, None, P))
    network.set_weights(layer.get_weights())
    return network


def draw_inputs(batch=BATCH, steps=STEPS, seed=1):
    return tf.constant(np.random.default_rng(seed).normal(size=(batch, steps, P)))


def draw_state(gate="lstm", batch=BATCH):
    rng = np.random.default_rng(2)
    return [tf.constant(rng.normal(size=(batch, UNITS))) for _ in range(N_STATES[gate])]


def with_gradients(layer, x, state, mask, training=False):
    """Outputs and states, and the gradients of a sum that weighs each of their numbers."""
    sources = [variable.value for variable in layer.trainable_variables] + [x, *state]
    with tf.GradientTape() as tape:
        tape.watch(sources)
        outputs, states, _ = layer.propagate(
            x, initial_state=state, mask=mask, training=training
        )
        total = 0.0
        for seed, each in enumerate([outputs, *states]):
            weights = np.random.default_rng(seed).normal(size=each.shape)
            total += tf.reduce_sum(each * weights)
    gradients = tape.gradient(total, sources, unconnected_gradients="zero")
    return [outputs, *states], gradients


# The layer is the network without end.


@settings(max_examples=4)
@given(
    gate=st.sampled_from(sorted(N_STATES)),
    kernel_size=st.integers(1, 3),
    dilation_rate=st.sampled_from([1, 2, (1, 2), (3, 1), 9]),
    groups=st.sampled_from([1, 1, 2]),
    inject_groups=st.booleans(),
    inject_every=st.integers(1, 2),
    output_units=st.sampled_from([None, 2]),
    weight_normalization=st.booleans(),
    use_bias=st.booleans(),
    masked=st.booleans(),
    training=st.booleans(),
)
@example(
    gate="lstm",
    kernel_size=2,
    dilation_rate=(1, 2),
    groups=1,
    inject_groups=False,
    inject_every=1,
    output_units=None,
    weight_normalization=False,
    use_bias=True,
    masked=True,
    training=False,
)
@example(
    gate="lstm",
    kernel_size=2,
    dilation_rate=1,
    groups=2,
    inject_groups=True,
    inject_every=1,
    output_units=2,
    weight_normalization=False,
    use_bias=True,
    masked=True,
    training=True,
)
def test_it_is_a_very_deep_network(gate, masked, training, **arguments):
    """So are its gradients: those of the theorem in training, else those of the iterations."""
    arguments["inject_groups"] &= arguments["groups"] > 1
    layer = make(gate=gate, **arguments)
    x, state = draw_inputs(), draw_state(gate)
    mask = (
        tf.constant(np.random.default_rng(4).random((BATCH, STEPS)) < 0.7)
        if masked
        else None
    )
    run = tf.function(with_gradients)
    got, gradients = run(layer, x, state, mask, training)
    expected, expected_gradients = run(deep(layer, 200), x, state, mask)
    assert_close(got, expected, 1e-8)
    assert_close(gradients, expected_gradients, 1e-6)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_it_is_a_recurrent_network_without_truncation(kind):
    """Theorem 1's construction, its depth no longer bounding how far the network remembers."""
    arguments = {"return_sequences": True, "dtype": "float64"}
    layers = [getattr(keras.layers, kind)(4, **arguments) for _ in range(2)]
    x = draw_inputs(steps=20)
    expected = layers[1](layers[0](x))
    layer = EquilibriumTrellisLayer.from_layer(
        convert.layer_from_rnn(layers, steps=1), tolerance=1e-12
    )
    assert_close(layer.propagate(x)[0], expected, 1e-10)


@pytest.mark.parametrize("groups", [1, 2])
def test_dropout_is_drawn_once_a_call(groups):
    rates = dict(dropout=0.2, recurrent_dropout=0.3, weight_dropout=0.4)
    layer = make(seed=3, groups=groups, **rates)
    x, state = draw_inputs(), draw_state()
    expected, expected_gradients = with_gradients(
        deep(layer, 100), x, state, None, training=True
    )
    got, gradients = with_gradients(layer, x, state, None, training=True)
    assert_close(got, expected, 1e-8)
    assert_close(gradients, expected_gradients, 1e-6)
    assert not np.allclose(layer(x, training=True), layer(x, training=True))


def test_stateful_batches_are_one_pass():
    x = draw_inputs()
    whole = make(dilation_rate=(2, 1))(x)
    layer = make(dilation_rate=(2, 1), stateful=True)
    assert_close(tf.concat([layer(x[:, :3]), layer(x[:, 3:])], axis=1), whole, 1e-10)
    warm = EquilibriumTrellisLayer.from_layer(layer)
    assert_close(warm(x), whole, 1e-10)


def test_an_output_depends_on_all_steps_before_it():
    layer = make()
    assert layer.receptive_field is None
    x = draw_inputs()
    with tf.GradientTape() as tape:
        tape.watch(x)
        last = tf.reduce_sum(layer(x)[:, -1])
    assert np.abs(tape.gradient(last, x)).max(axis=2).min() > 0


# How far the iteration came.


def test_more_iterations_come_nearer():
    x = draw_inputs()
    mask = tf.constant([[False, True] * 3 + [True], [True] * 5 + [False] * 2])
    exact, *_ = make().propagate(x, mask=mask)
    before = None
    for bound in (3, 9, 27):
        layer = make(max_iterations=bound, tolerance=1e-7)
        outputs, _, found = layer.propagate(x, mask=mask)
        distance = np.abs(outputs - exact).max()
        assert before is None or distance < before
        before = distance
        assert (
            found.iterations.shape
            == found.residual.shape
            == found.converged.shape
            == [2, 7]
        )
        assert np.max(found.iterations) <= bound
        assert np.all(found.converged == (found.residual <= 1e-7))
        assert np.all(found.converged) == (bound == 27)
    assert before < 1e-6
    assert found.converged[0, 0] and found.iterations[0, 0] == 0  # no valid step yet
    assert found.residual[1, 5] == found.residual[1, 4]


def test_the_residual_is_that_of_the_state_returned():
    """A step alone, without input: one level more, in NumPy."""
    layer = make(gate="tanh", kernel_size=1, max_iterations=4)
    _, (state,), found = layer.propagate(tf.zeros([1, 1, P], tf.float64))
    after = np.tanh(
        state @ np.asarray(layer.recurrent_kernel[0]) + np.asarray(layer.bias)
    )
    assert_close(found.residual[0, 0], norm(after - state) / norm(after), 1e-10)
    assert found.residual[0, 0] > 1e-6


def test_levels_that_do_not_settle_are_told():
    layer = make(scale=4.0, max_iterations=20, tolerance=1e-3)
    outputs, _, found = layer.propagate(draw_inputs())
    assert np.isfinite(outputs).all()
    assert not np.all(found.converged)
    assert np.max(found.iterations) == 20 and np.max(found.residual) > 1e-3


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_rounding_bounds_the_tolerance(policy):
    layer = make(tolerance=1e-12, max_iterations=100, dtype=policy)
    found = layer.propagate(tf.cast(draw_inputs(), tf.float32))[2]
    assert np.all(found.converged) and found.residual.dtype == tf.float32


# The solver.


@pytest.mark.parametrize("reverse", [False, True])
def test_affine_maps_that_plain_iteration_does_not_solve(reverse):
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(3, 3))
    matrix = matrix @ np.diag([-1.3, 0.5, 0.2]) @ np.linalg.inv(matrix)
    constant = rng.normal(size=(BATCH, 4, 3))
    direction = -1 if reverse else 1

    def function(z):
        before = tf.pad(z[:, ::direction], [[0, 0], [1, 0], [0, 0]])[:, :-1][
            :, ::direction
        ]
        return constant + z @ matrix + 0.3 * before

    z, found = solve(
        function,
        tf.zeros_like(constant),
        tolerance=1e-12,
        max_iterations=200,
        reverse=reverse,
    )
    assert np.all(found.converged)
    assert_close(function(z), z, 1e-9)
    expected = np.zeros((BATCH, 3))
    for step in range(4)[::direction]:
        expected = (constant[:, step] + 0.3 * expected) @ np.linalg.inv(
            np.eye(3) - matrix
        )
        assert_close(z[:, step], expected, 1e-9)


def test_a_step_waits_for_those_before_it():
    """The small first step settles last; beside the large second one its changes look like none."""
    constant = tf.constant([[[1e-3], [1.0]]], tf.float64)
    rates = tf.constant([[[0.95], [0.0]]], tf.float64)

    def function(z):
        return constant + rates * z + 0.5 * tf.pad(z, [[0, 0], [1, 0], [0, 0]])[:, :-1]

    z, found = solve(
        function, tf.zeros_like(constant), tolerance=1e-3, max_iterations=4
    )
    assert not np.any(found.converged)
    z, found = solve(
        function, tf.zeros_like(constant), tolerance=1e-3, max_iterations=99
    )
    after = function(z)
    assert np.all(found.converged) and np.all(found.residual <= 1e-3)
    assert_close(found.residual[0, 1], norm(after - z) / norm(after), 1e-12)


def test_no_step_depends_on_a_later_one_nor_a_row_on_another():
    """Even far from solved, and where others are beyond all bounds."""
    layer = make(max_iterations=12, tolerance=1e-3)
    x = draw_inputs(batch=3).numpy()
    _, _, expected = layer.propagate(x)
    alone, _, _ = layer.propagate(x[1:2, :4])
    x[1, 4:], x[2] = np.nan, 1e300
    outputs, _, found = layer.propagate(x)
    assert_close(outputs[1:2, :4], alone, 1e-12)
    assert_close(found.residual[0], expected.residual[0], 1e-10)
    assert not np.any(found.converged[1, 4:])


def test_what_is_kept_for_the_gradient_does_not_grow_with_the_iterations():
    """A loop that remembers its iterations pushes them on lists."""
    x, state = draw_inputs(), draw_state()

    def lists(layer):
        graph = (
            tf.function(with_gradients)
            .get_concrete_function(layer, x, state, None, True)
            .graph
        )
        functions = graph.as_graph_def().library.function
        return sum("TensorListPushBack" in n.op for f in functions for n in f.node_def)

    layer = make()
    assert lists(layer) == 0
    assert lists(deep(layer, 3)) > 0


def test_second_derivatives_are_refused():
    layer, x = make(), draw_inputs()
    assert_no_second_gradient(layer, x, "first gradients")


# A warm start.


def test_the_weights_of_groups_that_an_earlier_version_wrote_fit():
    entry = REGISTRY["EquilibriumTrellisLayer, groups"]
    model = entry.as_model(entry.make("float32"))
    stem = saved.RELEASED / "before_stacked_lstm-equilibriumtrellislayer-groups"
    model.load_weights(f"{stem}.weights.h5")
    with np.load(f"{stem}.npz") as file:
        assert_close(model(file["inputs"]), file["outputs"], 1e-6)


@pytest.mark.parametrize(
    "arguments", [{}, {"weight_normalization": True, "groups": 2}, {"use_bias": False}]
)
def test_it_goes_on_from_a_trained_layer(arguments):
    layer = randomize(
        TrellisLayer(UNITS, 4, gate="gru", name="mine", dtype="float64", **arguments)
    )
    warm = EquilibriumTrellisLayer.from_layer(
        layer, tolerance=1e-12, return_sequences=True
    )
    assert warm.get_config()["gate"] == layer.get_config()["gate"]
    assert warm.return_sequences and warm.compute_dtype == "float64"
    names = [variable.name for variable in layer.weights]
    assert [variable.name for variable in warm.weights] == names
    for mine, theirs in zip(warm.weights, layer.weights, strict=True):
        assert np.array_equal(mine, theirs) and mine is not theirs
    x = draw_inputs()
    assert_close(warm(x), deep(warm, 100)(x), 1e-8)


def test_a_layer_not_built_gives_its_arguments():
    warm = EquilibriumTrellisLayer.from_layer(
        TrellisLayer(UNITS, 4, dilation_rate=(1, 2))
    )
    assert not warm.built and warm.dilation_rate == (1, 2)
    assert (
        EquilibriumTrellisLayer.from_layer(warm).get_config().keys()
        == warm.get_config().keys()
    )


# Arguments.


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"depth": 3}, "no argument `depth`. The depth is.* Received: depth=3"),
        (
            {"recompute": True},
            "no argument `recompute`. The depth is.* Received: recompute=True",
        ),
        (
            {"staggered": True},
            "no argument `staggered`. The depth is.* Received: staggered=True",
        ),
        (
            {"tolerance": 0},
            "`tolerance` must be a number between 0 and 1. .* tolerance=0",
        ),
        ({"tolerance": True}, "`tolerance` must"),
        ({"tolerance": "small"}, "Received: tolerance='small'"),
        (
            {"max_iterations": 0},
            "`max_iterations` must be a positive integer. Received",
        ),
        ({"inject_every": 0}, "`inject_every` must"),
        ({"dilation_rate": []}, "`dilation_rate` must"),
    ],
)
def test_bad_arguments(arguments, message):
    with refuses(message):
        EquilibriumTrellisLayer(UNITS, **arguments)


def test_bad_arguments_of_a_call():
    layer, x = make(), draw_inputs()
    for name in ("auxiliary_every", "depth", "discard"):
        with pytest.raises(TypeError, match=name):
            layer.propagate(x, **{name: 1})
    with refuses("`initial_state` must be 2"):
        layer.propagate(x, initial_state=[x[:, 0]])
