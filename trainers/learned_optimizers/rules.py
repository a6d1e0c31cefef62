"""Rules by which optimizers change coordinates, and what becomes of functions under them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from trainers.learned_optimizers import core
from trainers.learned_optimizers.core import Point, UpdateNetwork, value_and_gradient
from trainers.learned_optimizers.optimizees import Draw


class Rule(NamedTuple):
    """An optimizer as functions.

    Attributes:
        start: takes coordinates `[draws, size]`; returns the state, tensors.
        update: takes where a step begins, the state and the step, counted from 1; returns what to
            add to the coordinates, and the next state.
    """

    start: Callable[[tf.Tensor], Any]
    update: Callable[[Point, Any, tf.Tensor], tuple[tf.Tensor, Any]]


def learned(network: UpdateNetwork) -> Rule:
    """Returns the rule of a network."""

    def start(theta: tf.Tensor) -> Any:
        return network.initial_states(tf.size(theta))

    return Rule(start, lambda point, state, _: core.step(network, point, state))


def sgd(rate: tf.Tensor) -> Rule:
    """Returns gradient descent; the rate, here as below, is `[draws, 1]`."""
    return Rule(
        lambda theta: (), lambda point, state, _: (-rate * point.gradient, state)
    )


def momentum(rate: tf.Tensor) -> Rule:
    """Returns gradient descent with a momentum of 0.9."""

    def update(point: Point, state: Any, _: tf.Tensor) -> tuple:
        (velocity,) = state
        velocity = 0.9 * velocity - rate * point.gradient
        return velocity, (velocity,)

    return Rule(lambda theta: (tf.zeros_like(theta),), update)


def rmsprop(rate: tf.Tensor) -> Rule:
    """Returns RMSprop, as Keras has it."""

    def update(point: Point, state: Any, _: tf.Tensor) -> tuple:
        (square,) = state
        square = 0.9 * square + 0.1 * tf.square(point.gradient)
        return -rate * point.gradient / tf.sqrt(square + 1e-7), (square,)

    return Rule(lambda theta: (tf.zeros_like(theta),), update)


def adam(rate: tf.Tensor) -> Rule:
    """Returns Adam, of Kingma and Ba 2015."""

    def update(point: Point, state: Any, step: tf.Tensor) -> tuple:
        mean, square = state
        mean = 0.9 * mean + 0.1 * point.gradient
        square = 0.999 * square + 0.001 * tf.square(point.gradient)
        power = tf.cast(step, mean.dtype)
        unbiased = mean / (1 - 0.9**power)
        size = tf.sqrt(square / (1 - 0.999**power))
        return -rate * unbiased / (size + 1e-8), (mean, square)

    return Rule(lambda theta: (tf.zeros_like(theta), tf.zeros_like(theta)), update)


TUNED: dict[str, Callable[[tf.Tensor], Rule]] = {
    "SGD": sgd,
    "momentum": momentum,
    "RMSprop": rmsprop,
    "Adam": adam,
}
"""Those with a rate to tune."""


def losses(rule: Rule, draw: Draw, steps: int) -> tf.Tensor:
    """Returns the losses before the first step and after each, `[steps + 1, draws]`."""

    def step(number: tf.Tensor, theta: tf.Tensor, state: Any, recorded: Any) -> tuple:
        value, gradient = value_and_gradient(draw.loss, theta, number)
        point = Point(theta, value, gradient)
        updates, state = rule.update(point, state, number + 1)
        return number + 1, theta + updates, state, recorded.write(number, value)

    values = tf.TensorArray(draw.theta.dtype, steps + 1)
    start = (0, draw.theta, rule.start(draw.theta), values)
    _, theta, _, values = tf.while_loop(
        lambda number, *_: number < steps, step, start, parallel_iterations=1
    )
    return values.write(steps, draw.loss(theta, tf.constant(steps))).stack()
