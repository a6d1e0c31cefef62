"""Optimizers against NumPy, written from the equations."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from tests.refusals import refuses
from trainers import optimizers
from trainers.tasks import config as configs

STEPS, SHAPES, DECAY = 7, [(3, 2), (4,)], 0.01


@pytest.fixture
def start():
    generator = np.random.default_rng(0)
    return [generator.normal(size=shape) for shape in SHAPES]


@pytest.fixture
def gradients():
    generator = np.random.default_rng(1)
    return [[generator.normal(size=shape) for shape in SHAPES] for _ in range(STEPS)]


def run(optimizer, start, gradients, *, averaged_after=None):
    """The variables after each step."""
    variables = [keras.Variable(value, dtype="float64") for value in start]
    optimizer.build(variables)
    after = []
    for step, each in enumerate(gradients):
        if step == averaged_after:
            optimizer.start_averaging()
        optimizer.apply([tf.constant(gradient) for gradient in each])
        after.append([variable.numpy() for variable in variables])
    return variables, after


def test_clip_by_global_norm_is_torchs():
    gradients = [np.array([3.0, 0.0]), np.array([[4.0]])]
    clipped, norm = optimizers.clip_by_global_norm(
        [tf.constant(g) for g in gradients], 0.5
    )
    assert_allclose(norm, 5.0, rtol=1e-15)
    for got, gradient in zip(clipped, gradients, strict=True):
        assert_allclose(got, gradient * 0.5 / (5.0 + 1e-6), rtol=1e-15)


@pytest.mark.parametrize("clip_norm", [None, 5.1])
def test_small_gradients_are_not_clipped(clip_norm):
    clipped, _ = optimizers.clip_by_global_norm([tf.constant([3.0, 4.0])], clip_norm)
    assert_array_equal(clipped[0], [3.0, 4.0])


def test_sgd_adds_the_decay_to_the_gradient(start, gradients):
    _, after = run(optimizers.SGD(0.1, weight_decay=DECAY), start, gradients)
    expected = list(start)
    for each, got in zip(gradients, after, strict=True):
        expected = [
            w - 0.1 * (g + DECAY * w) for w, g in zip(expected, each, strict=True)
        ]
        for a, b in zip(got, expected, strict=True):
            assert_allclose(a, b, rtol=1e-12)


def test_adam_is_torchs(start, gradients):
    _, after = run(optimizers.Adam(0.002, weight_decay=DECAY), start, gradients)
    for i, w in enumerate(start):
        mean, square = np.zeros_like(w), np.zeros_like(w)
        for t, each in enumerate(gradients, 1):
            gradient = each[i] + DECAY * w
            mean = 0.9 * mean + 0.1 * gradient
            square = 0.999 * square + 0.001 * gradient**2
            w = w - 0.002 * (mean / (1 - 0.9**t)) / (
                np.sqrt(square / (1 - 0.999**t)) + 1e-8
            )
            assert_allclose(after[t - 1][i], w, rtol=1e-12)


def test_adam_follows_small_gradients_where_epsilon_counts():
    """Keras's formula would be 30 times off at the first step."""
    variable = keras.Variable([1.0], dtype="float64")
    optimizer = optimizers.Adam(1.0)
    optimizer.build([variable])
    optimizer.apply([tf.constant([1e-8], "float64")])
    assert_allclose(variable.numpy(), [0.5], rtol=1e-9)


@pytest.mark.parametrize("kind", optimizers.OPTIMIZERS.values())
def test_averages_weigh_1_1_then_a_half_a_third(kind, start, gradients):
    optimizer = kind(0.1, averages=True)
    variables, after = run(optimizer, start, gradients, averaged_after=2)
    averaged = after[2:]
    expected = averaged[0]
    for n, each in enumerate(averaged, 1):
        weight = 1 / max(1, n - 1)
        expected = [a + weight * (w - a) for a, w in zip(expected, each, strict=True)]
    with optimizer.evaluation_weights(variables):
        for variable, value in zip(variables, expected, strict=True):
            assert_allclose(variable.numpy(), value, rtol=1e-12)
    for variable, value in zip(variables, after[-1], strict=True):
        assert_array_equal(variable.numpy(), value)
    _, plain = run(kind(0.1), start, gradients)
    assert_array_equal(after[-1][0], plain[-1][0])


def test_before_the_first_averaged_step_the_weights_themselves_are_evaluated(
    start, gradients
):
    optimizer = optimizers.SGD(0.1, averages=True)
    variables, after = run(optimizer, start, gradients)
    optimizer.start_averaging()
    with optimizer.evaluation_weights(variables):
        for variable, value in zip(variables, after[-1], strict=True):
            assert_array_equal(variable.numpy(), value)


def test_without_averaging_the_weights_themselves_are_evaluated(start, gradients):
    optimizer = optimizers.SGD(0.1, averages=True)
    variables, after = run(optimizer, start, gradients)
    assert not optimizer.averaging
    with optimizer.evaluation_weights(variables):
        assert_array_equal(variables[0].numpy(), after[-1][0])


@pytest.mark.parametrize("optimizer", [optimizers.SGD(0.1), optimizers.Adam(0.1)])
def test_averaging_without_averages_is_refused(optimizer):
    with refuses("averages=True"):
        optimizer.start_averaging()


def test_the_learning_rate_is_a_float64_variable():
    optimizer = optimizers.Adam(0.002)
    assert optimizer.learning_rate.numpy() == 0.002
    optimizer.learning_rate = 0.1
    assert optimizer.learning_rate.numpy() == 0.1
    assert any(variable is optimizer.learning_rate for variable in optimizer.variables)


@pytest.mark.parametrize("kind", [optimizers.SGD, optimizers.Adam])
def test_the_rate_falls_along_half_a_cosine_to_the_end_of_the_run(
    kind, start, gradients
):
    annealed = kind(0.1, steps=STEPS)
    _, got = run(annealed, start, gradients)
    plain = kind(0.1)
    variables = [keras.Variable(value, dtype="float64") for value in start]
    plain.build(variables)
    for step, each in enumerate(gradients):
        plain.learning_rate = 0.1 * (1 + np.cos(np.pi * step / STEPS)) / 2
        plain.apply([tf.constant(gradient) for gradient in each])
        for variable, value in zip(variables, got[step], strict=True):
            assert_allclose(variable.numpy(), value, rtol=1e-12)
    assert annealed.annealed(0.1) < 1e-17


def test_a_scaled_rate_lags_a_step_once_averages_go_on():
    """Torch's ASGD computes the rate of an averaged step at the end of the one before."""
    optimizer = optimizers.SGD(0.1, averages=True, scales=True)
    variable = tf.Variable(0.0, dtype="float64")
    optimizer.build([variable])
    factors = [1.0, 2.0, 3.0, 5.0, 7.0, 11.0]
    for step, factor in enumerate(factors):
        if step == 2:
            optimizer.start_averaging()
        optimizer.scale_rate(tf.constant(factor, "float64"))
        optimizer.apply([tf.constant(-1.0, "float64")])
    used = [1.0, 2.0, 3.0, 3.0, 5.0, 7.0]
    assert_allclose(variable.numpy(), 0.1 * sum(used))
    assert float(optimizer.learning_rate.numpy()) == 0.1


@pytest.mark.parametrize("kind", [optimizers.SGD, optimizers.Adam])
def test_a_scaled_rate_counts_in_a_graph_that_was_traced_before(kind):
    """The factor is a variable, and none of those that a checkpoint holds."""
    steps = {}
    for factor in (1.0, 0.5):
        variable = tf.Variable(0.0, dtype="float64")
        optimizer = kind(0.1, scales=True)
        optimizer.build([variable])
        held = {each.name for each in optimizer.variables}
        apply = tf.function(lambda gradient, of=optimizer: of.apply([gradient]))
        apply.get_concrete_function(tf.TensorSpec([], "float64"))
        optimizer.scale_rate(tf.constant(factor, "float64"))
        apply(tf.constant(-1.0, "float64"))
        steps[factor] = variable.numpy()
        assert {each.name for each in optimizer.variables} == held
        assert "factor" not in held
    assert_allclose(steps[0.5], 0.5 * steps[1.0], rtol=1e-12)
    with refuses("must be made with scales=True"):
        kind(0.1).scale_rate(tf.constant(0.5, "float64"))


@pytest.mark.parametrize("changes", [{}, {"average": True}, {"average_after": 2}])
@pytest.mark.parametrize("name", optimizers.OPTIMIZERS)
def test_an_optimizer_knows_its_slots_before_it_is_made(name, changes):
    kind = optimizers.OPTIMIZERS[name]
    config = configs.load("ptb", "small").unlock()
    config.optimizer.name = name
    config.schedule.update(changes)
    made = kind.from_run_config(config, steps=3, scales=True)
    made.build([keras.Variable([1.0, 2.0])])
    assert tuple(made.slot_variables) == kind.run_slot_names(config)
