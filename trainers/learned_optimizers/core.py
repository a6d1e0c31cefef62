"""A recurrent network as an optimizer: one network for all coordinates, a state for each.

Source: Andrychowicz et al. 2016, "Learning to learn by gradient descent by gradient descent".
Kuo et al. 2020 exchange the cell.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import keras
import tensorflow as tf

from keras_trellis import arguments
from keras_trellis.types import Tensor
from trainers.models.cells import initial_states, output_units

ADDED, GATED = UPDATES = ("added", "gated")
_SCALE = 0.1
# At the start a step is nearly one of gradient descent, of this rate: sig(-5) = 0.0067.
_INPUT_BIAS = -5.0
# A coordinate keeps 0.9999 of itself at the start: 100 steps leave 0.99 of it.
_FORGET_BIAS = 9.0

States: TypeAlias = list[list[Tensor]]
"""The states of each cell, then those of a gated update, each `[coordinates, width]`."""
Loss: TypeAlias = Callable[[Tensor, Any], Tensor]
"""Takes coordinates and the number of the step; returns a number, or one for each of several."""


def preprocess(gradients: Tensor, p: float = 10.0) -> Tensor:
    """Returns two numbers for each gradient, of about the same size whatever its own.

    They are (log|g| / p, sign g) if |g| >= exp(-p), else (-1, exp(p) g), the paper's appendix A.

    Args:
        gradients: of any shape.
        p: gradients below exp(-p) are told by their value, not by its logarithm.

    Returns:
        `[*shape, 2]`.
    """
    least = tf.exp(tf.constant(-p, gradients.dtype))
    size = tf.abs(gradients)
    large = size >= least
    # Where it is small the logarithm is not used; its argument must be above 0 all the same.
    ones = tf.ones_like(size)
    positive = tf.where(large, size, ones)
    logarithm = tf.math.log(positive) / p
    first = tf.where(large, logarithm, -ones)
    second = tf.where(large, tf.sign(gradients), gradients / least)
    return tf.stack([first, second], axis=-1)


class Point(NamedTuple):
    """Where a step begins.

    Attributes:
        theta: the coordinates, `[..., size]`.
        losses: the loss of each row of them, `[...]`; or one of all.
        gradient: of the losses by theta.
    """

    theta: Tensor
    losses: Tensor
    gradient: Tensor


class GatedUpdate(keras.layers.Layer):
    """theta = f * theta' - i * gradient, with both gates learned.

        i = sig(W_I [h, theta', i'] + b_I),  f = sig(W_F [h, theta', f'] + b_F)

    ' marks what the step before has left. h is what cells make of the gradient and the loss; if it
    is these two numbers, the equations are the printed ones (Ravi and Larochelle 2017,
    "Optimization as a model for few-shot learning", recalled). The weights start at 0, so that an
    untrained update is gradient descent.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.input_gate = self._gate("input_gate", _INPUT_BIAS)
        self.forget_gate = self._gate("forget_gate", _FORGET_BIAS)

    def build(self, values_shape: Any) -> None:
        """Creates the weights of both gates for h `[coordinates, width]`."""
        width = values_shape[-1] + 2  # theta', and the gate itself
        for gate in (self.input_gate, self.forget_gate):
            gate.build((None, width))
        self.built = True

    def initial_state(self, coordinates: Any) -> list[Tensor]:
        """Returns i' and f' before the first step: zeros, each `[coordinates, 1]`."""
        return [tf.zeros([coordinates, 1], self.compute_dtype)] * 2

    def call(
        self,
        values: Tensor,
        gradients: Tensor,
        theta: Tensor,
        state: list[Tensor],
    ) -> tuple[Tensor, list[Tensor]]:
        """Returns what a step adds to theta', `[coordinates]`, and the gates of this step.

        Args:
            values: h, `[coordinates, width]`.
            gradients: `[coordinates]`.
            theta: `[coordinates]`.
            state: i' and f'.
        """
        column = tf.expand_dims(theta, -1)
        gates = [
            gate(tf.concat([values, column, before], -1))
            for gate, before in zip(
                (self.input_gate, self.forget_gate), state, strict=True
            )
        ]
        write, keep = (gate[:, 0] for gate in gates)
        return keep * theta - write * gradients - theta, gates

    def _gate(self, name: str, bias: float) -> keras.layers.Dense:
        return keras.layers.Dense(
            1,
            "sigmoid",
            kernel_initializer="zeros",
            bias_initializer=keras.initializers.Constant(bias),
            name=name,
            dtype=self.dtype_policy,
        )


@keras.saving.register_keras_serializable("trainers")
class UpdateNetwork(keras.layers.Layer):
    """Maps gradients to updates, coordinate by coordinate.

    The same network takes each coordinate for itself: preprocessing, cells on top of each other,
    and what makes an update of their output.

    - "added": theta + `scale` * (W h + b), a dense layer to one number. An untrained network moves
      nothing: the dense layer begins at 0.
    - "gated": f * theta - i * gradient, `GatedUpdate`. The network then reads the loss too, and an
      untrained one is gradient descent.

    Args:
        cells: Keras cells, the lowest first. Default: two
            `keras.layers.LSTMCell(20)`, the published ones.
        update: "added" (Andrychowicz et al. 2016) or "gated" (Ravi and Larochelle 2017).
        scale: of added updates; None: 0.1. With gates it must be None: they say how far a step
            goes.
        projection: the inputs of the lowest cell, which a dense layer makes of the preprocessed
            numbers, two of the gradient and, with gates, two of the loss; None: it reads these. A
            cell whose gates see its memory through its inputs, such as an IHC-LSTM, needs a
            projection.
        p: as in `preprocess`.
        **kwargs: those of `keras.layers.Layer`.

    Raises:
        ValueError: an argument is not what it must be, or a cell's output is not `[B, units]`.
    """

    def __init__(
        self,
        cells: Sequence[keras.layers.Layer] | None = None,
        *,
        update: str = ADDED,
        scale: float | None = None,
        projection: int | None = None,
        p: float = 10.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if update not in UPDATES:
            raise arguments.refusal("update", update, f"one of {UPDATES}")
        if update == GATED and scale is not None:
            expected = "None with update='gated', whose gates say how far a step goes"
            raise arguments.refusal("scale", scale, expected)
        for name, value in (("scale", scale), ("p", p)):
            if value is not None and not 0 < value < math.inf:
                raise arguments.refusal(name, value, "a finite number above 0")
        self.update, self.p = update, p
        self.scale = _SCALE if update == ADDED and scale is None else scale
        policy = self.dtype_policy
        if cells is None:
            cells = [keras.layers.LSTMCell(20, dtype=policy) for _ in range(2)]
        self.cells = list(cells)
        self.projection = None
        if projection is not None:
            units = arguments.positive("projection", projection)
            self.projection = keras.layers.Dense(units, name="projection", dtype=policy)
        self.gates: GatedUpdate | None = None
        self.output_layer: Any = None
        if update == GATED:
            self.gates = GatedUpdate(name="gates", dtype=policy)
        else:
            # From a random start most updates have one sign, whatever the gradients: step after
            # step they move all weights one way, until the relus of a network are 0.
            self.output_layer = keras.layers.Dense(
                1, kernel_initializer="zeros", name="output", dtype=policy
            )
        self.build()

    def build(self, inputs_shape: Any = None) -> None:
        """Creates the variables; the number of coordinates does not matter."""
        del inputs_shape
        size = 4 if self.gates else 2
        if self.projection:
            self.projection.build((None, size))
            size = self.projection.units
        for cell in self.cells:
            if not cell.built:
                cell.build((None, size))
            size = output_units("each of `cells`", cell, size)
        (self.gates or self.output_layer).build((None, size))
        self.built = True

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        own = {
            "cells": [keras.saving.serialize_keras_object(cell) for cell in self.cells],
            "update": self.update,
            "scale": self.scale,
            "projection": self.projection and self.projection.units,
            "p": self.p,
        }
        return super().get_config() | own

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> UpdateNetwork:
        """Returns the network of a config."""
        cells = map(keras.saving.deserialize_keras_object, config["cells"])
        return cls(**{**config, "cells": list(cells)})

    def initial_states(self, coordinates: Any) -> States:
        """Returns the states at the start, for a number of coordinates."""
        states = [initial_states(cell, coordinates) for cell in self.cells]
        if self.gates:
            states.append(self.gates.initial_state(coordinates))
        return states

    def call(
        self,
        gradients: Tensor,
        states: States,
        theta: Tensor | None = None,
        losses: Tensor | None = None,
    ) -> tuple[Tensor, States]:
        """Returns the updates to add, `[coordinates]`, and the next states.

        Args:
            gradients: `[coordinates]`. No gradient flows back into them, nor into the losses.
            states: from `initial_states` or the step before.
            theta: `[coordinates]`, which gates alone read.
            losses: `[coordinates]`, the loss that each coordinate belongs to; gates alone read it.
        """
        gradients = tf.stop_gradient(gradients)
        values = preprocess(gradients, self.p)
        if self.gates:
            seen = preprocess(tf.stop_gradient(losses), self.p)
            values = tf.concat([values, seen], -1)
        if self.projection:
            values = self.projection(values)
        after = []
        for cell, before in zip(self.cells, states, strict=False):  # gates are the last
            values, state = cell(values, before)
            after.append(list(state))
        if self.gates:
            updates, gates = self.gates(values, gradients, theta, states[-1])
            return updates, [*after, gates]
        updates = self.scale * self.output_layer(values)[:, 0]
        return updates, after


def step(network: UpdateNetwork, point: Point, states: States) -> tuple[Tensor, States]:
    """Returns what a network adds to coordinates of any shape, and the next states."""
    theta, losses, gradient = point
    missing = len(theta.shape) - len(losses.shape)
    shape = tf.concat([tf.shape(losses), [1] * missing], 0)
    losses = tf.reshape(losses, shape)
    losses = tf.broadcast_to(losses, tf.shape(theta))
    tensors = (theta, losses, gradient)
    theta, losses, gradient = [tf.reshape(tensor, [-1]) for tensor in tensors]
    updates, states = network(gradient, states, theta, losses)
    updates = tf.reshape(updates, tf.shape(point.theta))
    return updates, states


def unroll(
    network: UpdateNetwork,
    loss: Loss,
    theta: Tensor,
    states: States,
    steps: int,
) -> tuple[Tensor, Tensor, States]:
    """Optimizes with a network for some steps; meta-training differentiates the losses.

    Args:
        network: what computes the updates.
        loss: what to make small, of theta after 0 to `steps` of these steps.
        theta: the coordinates, of any shape.
        states: from `initial_states`, of as many coordinates.
        steps: how many.

    Returns:
        the loss after each update, `[steps, ...]`; theta; the states. The gradient of the loss is
        a constant to whoever differentiates these, as in the published program.
    """
    losses = []
    value, gradient = value_and_gradient(loss, theta, 0)
    for number in range(1, steps + 1):
        point = Point(theta, value, gradient)
        updates, states = step(network, point, states)
        theta += updates
        value, gradient = value_and_gradient(loss, theta, number)
        losses.append(value)
    return tf.stack(losses), theta, states


def value_and_gradient(loss: Loss, theta: Tensor, step: Any) -> tuple[Tensor, Tensor]:
    """Returns the loss after a step, and the gradient of its sum by theta."""
    with tf.GradientTape() as tape:
        tape.watch(theta)
        value = loss(theta, step)
    return value, tape.gradient(value, theta)
