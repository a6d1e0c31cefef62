"""Rules by which optimizers change coordinates, and what becomes of functions under them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from keras_trellis.types import Tensor
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

    start: Callable[[Tensor], Any]
    update: Callable[[Point, Any, Tensor], tuple[Tensor, Any]]


def learned(network: UpdateNetwork) -> Rule:
    """Returns the rule of a network."""

    def start(theta: Tensor) -> Any:
        return network.initial_states(tf.size(theta))

    def update(point: Point, state: Any, _: Tensor) -> tuple:
        return core.step(network, point, state)

    return Rule(start, update)


def _from_zeros(states: int, update: Callable[[Point, Any, Tensor], tuple]) -> Rule:
    """Returns a rule with so many states for each coordinate, zeros at the start."""

    def start(theta: Tensor) -> tuple[Tensor, ...]:
        return (tf.zeros_like(theta),) * states

    return Rule(start, update)


def sgd(rate: Tensor) -> Rule:
    """Returns gradient descent; the rate, here as below, is `[draws, 1]`."""

    def update(point: Point, state: Any, _: Tensor) -> tuple:
        return -rate * point.gradient, state

    return _from_zeros(0, update)


def momentum(rate: Tensor) -> Rule:
    """Returns gradient descent with a momentum of 0.9."""

    def update(point: Point, state: Any, _: Tensor) -> tuple:
        (velocity,) = state
        velocity = 0.9 * velocity - rate * point.gradient
        return velocity, (velocity,)

    return _from_zeros(1, update)


def rmsprop(rate: Tensor) -> Rule:
    """Returns RMSprop, as Keras has it."""

    def update(point: Point, state: Any, _: Tensor) -> tuple:
        (square,) = state
        square = 0.9 * square + 0.1 * tf.square(point.gradient)
        updates = -rate * point.gradient / tf.sqrt(square + 1e-7)
        return updates, (square,)

    return _from_zeros(1, update)


def adam(rate: Tensor) -> Rule:
    """Returns Adam, of Kingma and Ba 2015."""

    def update(point: Point, state: Any, step: Tensor) -> tuple:
        mean, square = state
        mean = 0.9 * mean + 0.1 * point.gradient
        square = 0.999 * square + 0.001 * tf.square(point.gradient)
        power = tf.cast(step, mean.dtype)
        unbiased = mean / (1 - 0.9**power)
        size = tf.sqrt(square / (1 - 0.999**power))
        updates = -rate * unbiased / (size + 1e-8)
        return updates, (mean, square)

    return _from_zeros(2, update)


TUNED: dict[str, Callable[[Tensor], Rule]] = {
    "SGD": sgd,
    "momentum": momentum,
    "RMSprop": rmsprop,
    "Adam": adam,
}
"""Those with a rate to tune."""


def losses(rule: Rule, draw: Draw, steps: int) -> Tensor:
    """Returns the losses before the first step and after each, `[steps + 1, draws]`."""

    def step(number: Tensor, theta: Tensor, state: Any, recorded: Any) -> tuple:
        value, gradient = value_and_gradient(draw.loss, theta, number)
        point = Point(theta, value, gradient)
        updates, state = rule.update(point, state, number + 1)
        recorded = recorded.write(number, value)
        return number + 1, theta + updates, state, recorded

    values = tf.TensorArray(draw.theta.dtype, steps + 1)
    state = rule.start(draw.theta)
    _, theta, _, values = tf.while_loop(
        lambda number, *_: number < steps,
        step,
        (0, draw.theta, state, values),
        parallel_iterations=1,
    )
    last = draw.loss(theta, tf.constant(steps))
    values = values.write(steps, last)
    return values.stack()
