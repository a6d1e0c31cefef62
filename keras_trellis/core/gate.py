"""The interface of gates."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import keras

from keras_trellis.backend import current as backend
from keras_trellis.types import State, Tensor

Activation = str | Callable[[Tensor], Tensor]


class Gate(abc.ABC):
    """The gated activation of one level.

    Attributes:
        name: a short name for messages and configurations.
        blocks: the number of pre-activation blocks, each of `units` channels.
        states: the number of tensors in the state. The first is the hidden state h, which the next
            level's convolution reads.
        forget_block: the index of the block that decides what the gate keeps of its past state: the
            larger its pre-activations, the more. `unit_forget_bias` starts its bias at 1. None for
            a gate without such a block; the layer refuses `unit_forget_bias=True` then.

    Args:
        activation: the activation of the values that the gate writes into the state.
        recurrent_activation: the activation of the gates themselves.
    """

    name: ClassVar[str]
    blocks: ClassVar[int]
    states: ClassVar[int]
    forget_block: ClassVar[int | None] = None

    def __init__(
        self,
        activation: Activation = "tanh",
        recurrent_activation: Activation = "sigmoid",
    ) -> None:
        self.activation = _precise(keras.activations.get(activation))
        self.recurrent_activation = _precise(
            keras.activations.get(recurrent_activation)
        )

    @abc.abstractmethod
    def step(self, blocks: Sequence[Tensor], shifted_state: State) -> State:
        """Returns the level's state.

        Args:
            blocks: the pre-activations, `self.blocks` tensors `[B, T, units]`.
            shifted_state: the state of the level below, delayed by the level's dilation:
                `self.states` tensors `[B, T, units]`.

        Returns:
            `self.states` tensors `[B, T, units]`.
        """

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        serialize = keras.activations.serialize
        return {
            "activation": serialize(self.activation),
            "recurrent_activation": serialize(self.recurrent_activation),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Gate:
        """Makes a gate from its config."""
        return cls(**config)


def _precise(activation: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Returns an activation that does not round more than its argument is rounded."""
    if activation is keras.activations.tanh:
        return backend.tanh
    return activation
