"""Gates: how a level computes its state from its pre-activations and its past.

A gate is a small object without variables. To write your own, derive it from `Gate`, set the
numbers of its gate blocks and of its states and the index of its forget block, and write `step`:

    @keras.saving.register_keras_serializable("my_package")
    class MinimalGate(keras_trellis.Gate):
        name, blocks, states = "minimal", 2, 1
        forget_block = 0

        def step(self, blocks, shifted_state):
            update, candidate = blocks
            update = self.recurrent_activation(update)
            (hidden,) = shifted_state
            return (update * hidden + (1 - update) * self.activation(candidate),)

    layer = keras_trellis.TrellisLayer(64, depth=8, gate=MinimalGate())
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_trellis.core.network import Activation, activation_function
from keras_trellis.core.network import Gate as Gate
from keras_trellis.types import State, Tensor


@keras.saving.register_keras_serializable("keras_trellis")
class LSTMGate(Gate):
    """The paper's gate (Bai et al. 2019, equations 11 and 12), with blocks i, f, c, o as in Keras.

    c' = sigmoid(f) c_{t-d} + sigmoid(i) tanh(g);  h' = sigmoid(o) tanh(c')

    Args:
        activation: of g and c', tanh by default.
        recurrent_activation: of i, f and o, a sigmoid by default.
    """

    name = "lstm"
    blocks = 4
    states = 2
    forget_block = 1

    def step(self, blocks: Sequence[Tensor], shifted_state: State) -> State:
        """Returns (h, c)."""
        write, keep, candidate, read = blocks
        # h of the level below is in the blocks already, by the taps. Equation 11 reads its c, one
        # dilation back: so c runs along a diagonal, through one gate a level.
        _, cell = shifted_state
        retained = self.recurrent_activation(keep) * cell
        written = self.recurrent_activation(write) * self._proposed(candidate)
        cell = retained + written
        # Equation 12.
        return self.recurrent_activation(read) * self.activation(cell), cell

    def _proposed(self, candidate: Tensor) -> Tensor:
        return self.activation(candidate)


@keras.saving.register_keras_serializable("keras_trellis")
class GRUGate(Gate):
    """A GRU's gate with four blocks u, r, a, b.

    h' = u h_{t-d} + (1 - u) tanh(a + r b), with sigmoids on u and r. For a Keras GRU with
    `reset_after=True`, a is the input's part and b the recurrent part.

    Args:
        activation: of the candidate, tanh by default.
        recurrent_activation: of u and r, a sigmoid by default.
    """

    name = "gru"
    blocks = 4
    states = 1

    def step(self, blocks: Sequence[Tensor], shifted_state: State) -> State:
        """Returns (h,)."""
        update, reset, direct, gated = blocks
        (hidden,) = shifted_state
        update = self.recurrent_activation(update)
        reset = self.recurrent_activation(reset)
        # The reset follows the product, so that all four blocks are of one product. A GRU that
        # resets h before it would need a second one, after r.
        candidate = self.activation(direct + reset * gated)
        return (update * hidden + (1 - update) * candidate,)


@keras.saving.register_keras_serializable("keras_trellis")
class TanhGate(Gate):
    """The plain activation of a SimpleRNN, without gates: h' = tanh(a).

    Args:
        activation: of a, tanh by default.
        recurrent_activation: of nothing; every gate has it.
    """

    name = "tanh"
    blocks = 1
    states = 1

    def step(self, blocks: Sequence[Tensor], shifted_state: State) -> State:
        """Returns (h,)."""
        return (self.activation(blocks[0]),)


@keras.saving.register_keras_serializable("keras_trellis")
class IRCGRUGate(Gate):
    """The gate of an IRC-GRU, with blocks z, r, a: h' = z h_{t-d} + (1 - z) r a.

    z and r are sigmoids. By default a has no activation (Kuo et al. 2020, equations 14 to 17;
    z is their 1 - i).

    Args:
        activation: of a, none by default.
        recurrent_activation: of z and r, a sigmoid by default.
    """

    name = "irc_gru"
    blocks = 3
    states = 1
    forget_block = 0

    def __init__(
        self,
        activation: Activation = "linear",
        recurrent_activation: Activation = "sigmoid",
    ) -> None:
        super().__init__(activation, recurrent_activation)

    def step(self, blocks: Sequence[Tensor], shifted_state: State) -> State:
        """Returns (h,)."""
        keep, reset, candidate = blocks
        (hidden,) = shifted_state
        keep = self.recurrent_activation(keep)
        # The reset scales what is written, not what the product reads: one product, as for a GRU.
        written = self.recurrent_activation(reset) * self.activation(candidate)
        return (keep * hidden + (1 - keep) * written,)


@keras.saving.register_keras_serializable("keras_trellis")
class IRCLSTMGate(LSTMGate):
    """The gate of an IRC-LSTM, with blocks i, f, c, o: an LSTM's whose candidate is linear.

    c' = sigmoid(f) c_{t-d} + sigmoid(i) a;  h' = sigmoid(o) tanh(c'); Kuo et al. 2020,
    equations 24 to 26.

    Args:
        activation: of c', tanh by default.
        recurrent_activation: of i, f and o, a sigmoid by default.
    """

    name = "irc_lstm"

    def _proposed(self, candidate: Tensor) -> Tensor:
        return candidate


@keras.saving.register_keras_serializable("keras_trellis")
class FastGRNNGate(Gate):
    """The gate of a FastGRNN, with blocks f, a.

    h' = f h_{t-d} + (beta (1 - f) + kappa) tanh(a), f a sigmoid (Kuo et al. 2020, equations
    45 to 47). Its scalars are numbers: a gate has no variables.

    Args:
        activation: of a, tanh by default.
        recurrent_activation: of f, a sigmoid by default.
        beta: see above.
        kappa: see above.
    """

    name = "fastgrnn"
    blocks = 2
    states = 1
    forget_block = 0

    def __init__(
        self,
        activation: Activation = "tanh",
        recurrent_activation: Activation = "sigmoid",
        beta: float = 1.0,
        kappa: float = 0.0,
    ) -> None:
        super().__init__(activation, recurrent_activation)
        self.beta = float(beta)
        self.kappa = float(kappa)

    def step(self, blocks: Sequence[Tensor], shifted_state: State) -> State:
        """Returns (h,)."""
        keep, candidate = blocks
        (hidden,) = shifted_state
        keep = self.recurrent_activation(keep)
        # With beta = 1 and kappa = 0 a convex combination, as in a GRU.
        written = self.beta * (1 - keep) + self.kappa
        return (keep * hidden + written * self.activation(candidate),)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return super().get_config() | {"beta": self.beta, "kappa": self.kappa}


NAMES: dict[str, type[Gate]] = {
    "fastgrnn": FastGRNNGate,
    "gru": GRUGate,
    "irc_gru": IRCGRUGate,
    "irc_lstm": IRCLSTMGate,
    "lstm": LSTMGate,
    "tanh": TanhGate,
}
"""The gates by the names that `TrellisLayer` and `config.model.gate` accept."""


def remembering(gate: Gate, initializer: Any) -> Any:
    """Returns an initializer of biases as another one's, with ones for the gate's forget block."""

    def initialize(shape: Sequence[int], dtype: Any = None) -> Tensor:
        blocks: Any = ops.split(initializer(shape, dtype=dtype), gate.blocks)
        blocks[gate.forget_block] = ops.ones_like(blocks[gate.forget_block])
        return ops.concatenate(blocks, axis=0)

    return initialize


OWN = "auto"
"""The activation of a layer's gate where nothing else is said: the one that the gate has."""


def get(
    identifier: str | Gate | dict[str, Any],
    activation: Activation = OWN,
    recurrent_activation: Activation = OWN,
) -> Gate:
    """Returns the gate with this name or configuration, or the gate itself.

    Args:
        identifier: a name, a configuration or a gate.
        activation: that of a gate by its name; a gate that is made already must have it.
        recurrent_activation: the same.

    Raises:
        ValueError: `identifier` is none of these, or the gate has another activation.
    """
    given = {"activation": activation, "recurrent_activation": recurrent_activation}
    given = {name: value for name, value in given.items() if value != OWN}
    # Whoever names a gate may choose its activations; a gate that is made keeps its own.
    gate = identifier
    if isinstance(identifier, dict):
        gate = keras.saving.deserialize_keras_object(identifier)
    elif isinstance(identifier, str) and identifier in NAMES:
        return NAMES[identifier](**given)
    if isinstance(gate, Gate):
        _check_activations(gate, given)
        return gate
    raise ValueError(
        f"`gate` must be one of {sorted(NAMES)} or a `keras_trellis.Gate`. "
        f"Received: gate={identifier!r}"
    )


def _check_activations(gate: Gate, given: dict[str, Any]) -> None:
    for name, value in given.items():
        own = getattr(gate, name, None)
        if own is not activation_function(name, value):
            has = f"{type(gate).__name__}({name}={getattr(own, '__name__', own)!r})"
            raise ValueError(
                f"`{name}` must be that of the gate, which is made already, or be left out. "
                f"Received: {name}={value!r}, gate={has}"
            )
