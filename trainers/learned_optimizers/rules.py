"""Rules by which optimizers change coordinates, and what becomes of functions under them."""

from __future__ import annotations

import functools
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


def _sgd(rate: Tensor, gradient: Tensor, step: Tensor) -> tuple:
    """Gradient descent. Each of these returns what to add, and the next states."""
    del step
    return -rate * gradient, ()


def _momentum(rate: Tensor, gradient: Tensor, step: Tensor, velocity: Tensor) -> tuple:
    """Gradient descent with a momentum of 0.9."""
    del step
    velocity = 0.9 * velocity - rate * gradient
    return velocity, (velocity,)


def _rmsprop(rate: Tensor, gradient: Tensor, step: Tensor, square: Tensor) -> tuple:
    """RMSprop, as Keras has it."""
    del step
    square = 0.9 * square + 0.1 * tf.square(gradient)
    return -rate * gradient / tf.sqrt(square + 1e-7), (square,)


def _adam(
    rate: Tensor, gradient: Tensor, step: Tensor, mean: Tensor, square: Tensor
) -> tuple:
    """Adam, of Kingma and Ba 2015."""
    mean = 0.9 * mean + 0.1 * gradient
    square = 0.999 * square + 0.001 * tf.square(gradient)
    power = tf.cast(step, mean.dtype)
    unbiased = mean / (1 - 0.9**power)
    size = tf.sqrt(square / (1 - 0.999**power))
    return -rate * unbiased / (size + 1e-8), (mean, square)


def _tuned(states: int, update: Callable[..., tuple], rate: Tensor) -> Rule:
    """Returns a rule with so many states for each coordinate, zeros at the start."""

    def start(theta: Tensor) -> tuple[Tensor, ...]:
        return (tf.zeros_like(theta),) * states

    def advance(point: Point, state: Any, step: Tensor) -> tuple[Tensor, Any]:
        return update(rate, point.gradient, step, *state)

    return Rule(start, advance)


TUNED: dict[str, Callable[[Tensor], Rule]] = {
    "SGD": functools.partial(_tuned, 0, _sgd),
    "momentum": functools.partial(_tuned, 1, _momentum),
    "RMSprop": functools.partial(_tuned, 1, _rmsprop),
    "Adam": functools.partial(_tuned, 2, _adam),
}
"""Those with a rate to tune, which they take."""


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
