"""Gated activations: how a level turns its pre-activations and its past into its state.

A gate is a small object without variables. To use one of your own, derive from `Gate`, say how
many blocks of pre-activations it takes and how many states it keeps, and write `step`:

    @keras.saving.register_keras_serializable("my_package")
    class MinimalGate(keras_trellis.Gate):
        name, blocks, states = "minimal", 2, 1

        def step(self, blocks, shifted_state):
            update, candidate = blocks
            update = self.recurrent_activation(update)
            (hidden,) = shifted_state
            return (update * hidden + (1 - update) * self.activation(candidate),)

    layer = keras_trellis.TrellisLayer(64, depth=8, gate=MinimalGate())
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import keras
import tensorflow as tf

from keras_trellis.types import State

Activation = str | Callable[[tf.Tensor], tf.Tensor]


class Gate(abc.ABC):
    """The gated activation of one level.

    Attributes:
        name: a short name for messages and configurations.
        blocks: the number of pre-activation blocks, each of `units` channels.
        states: the number of tensors in the state; the first is the hidden state h, which is
            what the next level's convolution reads.
        forget_block: which block decides what is kept of the state before, from 0 on: the one whose
            bias `unit_forget_bias` starts at 1. None where there is no such block.

    Args:
        activation: the activation of what is written into the state.
        recurrent_activation: the activation of the gates proper.
    """

    name: ClassVar[str]
    blocks: ClassVar[int]
    states: ClassVar[int]
    forget_block: ClassVar[int | None] = None

    def __init__(
        self, activation: Activation = "tanh", recurrent_activation: Activation = "sigmoid"
    ) -> None:
        self.activation = keras.activations.get(activation)
        self.recurrent_activation = keras.activations.get(recurrent_activation)

    @abc.abstractmethod
    def step(self, blocks: Sequence[tf.Tensor], shifted_state: State) -> State:
        """Returns the level's state.

        Args:
            blocks: the pre-activations, `self.blocks` tensors [B, T, units].
            shifted_state: the state of the level below, delayed by the level's dilation:
                `self.states` tensors [B, T, units].

        Returns:
            `self.states` tensors [B, T, units].
        """

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {
            "activation": keras.activations.serialize(self.activation),
            "recurrent_activation": keras.activations.serialize(self.recurrent_activation),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Gate:
        """Builds a gate from what `get_config` returned."""
        return cls(**config)


@keras.saving.register_keras_serializable("keras_trellis")
class LSTMGate(Gate):
    """The paper's gate (Bai et al. 2019, equations 4 and 5), blocks in Keras's order i, f, c, o.

    c' = sigmoid(f) c_{t-d} + sigmoid(i) tanh(g);  h' = sigmoid(o) tanh(c')
    """

    name, blocks, states = "lstm", 4, 2
    forget_block = 1

    def step(self, blocks: Sequence[tf.Tensor], shifted_state: State) -> State:
        """Returns (h, c)."""
        write, keep, candidate, read = blocks
        _, cell = shifted_state
        cell = self.recurrent_activation(keep) * cell + self.recurrent_activation(
            write
        ) * self.activation(candidate)
        return self.recurrent_activation(read) * self.activation(cell), cell


@keras.saving.register_keras_serializable("keras_trellis")
class GRUGate(Gate):
    """A GRU's gate with four blocks u, r, a, b.

    h' = u h_{t-d} + (1 - u) tanh(a + r b), with sigmoids on u and r. A Keras GRU with
    `reset_after=True` has its input's part in a and its recurrent part in b.
    """

    name, blocks, states = "gru", 4, 1

    def step(self, blocks: Sequence[tf.Tensor], shifted_state: State) -> State:
        """Returns (h,)."""
        update, reset, direct, gated = blocks
        (hidden,) = shifted_state
        update = self.recurrent_activation(update)
        candidate = self.activation(direct + self.recurrent_activation(reset) * gated)
        return (update * hidden + (1 - update) * candidate,)


@keras.saving.register_keras_serializable("keras_trellis")
class TanhGate(Gate):
    """No gate at all, the plain activation of a SimpleRNN: h' = tanh(a)."""

    name, blocks, states = "tanh", 1, 1

    def step(self, blocks: Sequence[tf.Tensor], shifted_state: State) -> State:
        """Returns (h,)."""
        return (self.activation(blocks[0]),)


_GATES: dict[str, type[Gate]] = {gate.name: gate for gate in (LSTMGate, GRUGate, TanhGate)}


def get(identifier: str | Gate | dict[str, Any]) -> Gate:
    """Returns the gate of that name, of that configuration, or the gate itself.

    Raises:
        ValueError: if `identifier` is none of these.
    """
    if isinstance(identifier, Gate):
        return identifier
    if isinstance(identifier, dict):
        gate = keras.saving.deserialize_keras_object(identifier)
        if isinstance(gate, Gate):
            return gate
    elif isinstance(identifier, str) and identifier in _GATES:
        return _GATES[identifier]()
    raise ValueError(
        f"`gate` must be one of {sorted(_GATES)} or a `keras_trellis.Gate`. "
        f"Received: gate={identifier!r}"
    )
