"""The gated cells: which variables each has, and what it computes before the loop.

Source of the equations: Kuo et al. 2020 ("paper"), and the authors' code ("released").
`steps` has one time step of each.
"""

from __future__ import annotations

from typing import Any, ClassVar

import keras
from keras import ops

from keras_trellis.arguments import constructor
from keras_trellis.backend import current as backend
from keras_trellis.core.convolution import multiply
from keras_trellis.core.recurrence import Recurrent, Step
from keras_trellis.recurrent import steps
from keras_trellis.recurrent.cell import (
    BIAS,
    KERNEL,
    RECURRENT,
    Before,
    GatedCell,
    Variables,
    Weights,
)
from keras_trellis.types import State, Tensor

_registered = keras.saving.register_keras_serializable("keras_trellis")
_ALPHA = keras.initializers.Constant(2.0)  # of the released code: alpha = 0.88
_BETA = keras.initializers.Constant(1.0)
_KAPPA = keras.initializers.Constant(-4.0)


class ResidualCell(GatedCell):
    """A cell with an input residual connection.

    Its gates read v = x + alpha * (U_V h'), its candidate reads x alone.
    """

    gates: ClassVar[int]

    def variables_for(self, inputs: int) -> Variables:
        """Returns W of the gates and the candidate, U_V, alpha, biases."""
        return {
            "kernel": ((inputs, (self.gates + 1) * self.units), KERNEL),
            "recurrent_kernel": ((self.units, inputs), RECURRENT),
            "alpha_logit": ((inputs,), _ALPHA),
            **self.bias_variable(),
        }

    def recurrent(self, weights: Weights) -> Recurrent:
        """Returns alpha * U_V, the kernel of the gates, and their biases."""
        memory = weights["recurrent_kernel"] * ops.sigmoid(weights["alpha_logit"])
        gates, _ = self._kernels(weights)
        return Recurrent((memory, gates), self.gate_biases(weights, self.gates))

    def project(self, weights: Weights, inputs: Tensor, before: Before) -> State:
        """Returns the inputs and the candidate."""
        _, candidate = self._kernels(weights)
        return inputs, multiply(inputs, candidate)

    def _kernels(self, weights: Weights) -> tuple[Tensor, Tensor]:
        """Returns the kernels of the gates and of the candidate."""
        sizes = [self.gates * self.units, self.units]
        gates, candidate = backend.split(weights["kernel"], sizes)
        return gates, candidate


@_registered
class IRCGRUCell(ResidualCell):
    """One time step of `IRCGRU`.

    Args:
        units: n, the number of channels of the output.
        **kwargs: the arguments of `GatedCell`.
    """

    gates = 2
    step = staticmethod(steps.irc_gru)


@_registered
class WeightDropLSTMCell(GatedCell):
    """One time step of `WeightDropLSTM`.

    Args:
        units: n, the number of channels of the output.
        **kwargs: the arguments of `GatedCell`.
    """

    state_names = ("h", "c")
    biases = {"paper": (0.0, 1.0, 0.0, 0.0), "released": (0.0, 0.0, 0.0, 0.0)}
    activation = "tanh"
    step = staticmethod(steps.lstm)

    @constructor
    def __init__(
        self, units: int, *, recurrent_initializer: Any = "orthogonal", **kwargs: Any
    ) -> None:
        super().__init__(units, recurrent_initializer=recurrent_initializer, **kwargs)

    def variables_for(self, inputs: int) -> Variables:
        """Returns W, U and b of i, f, the candidate and o, as in Keras's LSTM."""
        channels = 4 * self.units
        return {
            "kernel": ((inputs, channels), KERNEL),
            "recurrent_kernel": ((self.units, channels), RECURRENT),
            **self.bias_variable(),
        }

    def recurrent(self, weights: Weights) -> Recurrent:
        """Returns U."""
        return Recurrent((weights["recurrent_kernel"],))

    def project(self, weights: Weights, inputs: Tensor, before: Before) -> State:
        """Returns the blocks W x + b."""
        return (multiply(inputs, weights["kernel"]) + weights["bias"],)


@_registered
class IRCLSTMCell(ResidualCell):
    """One time step of `IRCLSTM`.

    Args:
        units: n, the number of channels of the output.
        **kwargs: the arguments of `GatedCell`.
    """

    biases = {"paper": ()}
    state_names = ("h", "c")
    gates = 3
    activation = "tanh"
    step = staticmethod(steps.irc_lstm)


@_registered
class IHCLSTMCell(ResidualCell):
    """One time step of `IHCLSTM`.

    Args:
        units: n, the number of channels of the output.
        projected: see `IHCLSTM`.
        **kwargs: the arguments of `GatedCell`.
    """

    state_names = ("h", "c")
    gates = 3
    activation = "tanh"

    @constructor
    def __init__(self, units: int, *, projected: bool = False, **kwargs: Any) -> None:
        super().__init__(units, **kwargs)
        self.projected = bool(projected)
        if self.projected and self.variant != "paper":
            raise ValueError(
                "`projected` must be False in the released form. "
                f"Received: projected={projected!r}, variant={self.variant!r}"
            )

    @property
    def step(self) -> Step:
        """One time step."""
        if self.projected:
            return steps.ihc_lstm_projected
        return steps.ihc_lstm

    def variables_for(self, inputs: int) -> Variables:
        """Returns W of gates and candidate, U_V, Gamma, W_G and b_G, biases."""
        gamma = (inputs if self.projected else self.units, inputs)
        variables: Variables = {
            "kernel": ((inputs, 4 * self.units), KERNEL),
            "recurrent_kernel": ((self.units, inputs), RECURRENT),
            "highway_recurrent_kernel": (gamma, RECURRENT),
        }
        if self.variant == "paper":
            variables["highway_kernel"] = ((inputs, inputs), KERNEL)
            variables["highway_bias"] = ((inputs,), BIAS)
        return variables | self.bias_variable()

    def recurrent(self, weights: Weights) -> Recurrent:
        """Returns U_V, Gamma, the kernel of the gates, and their biases."""
        read = [weights["recurrent_kernel"], weights["highway_recurrent_kernel"]]
        if not self.projected:
            read = [ops.concatenate(read, axis=-1)]
        gates, _ = self._kernels(weights)
        return Recurrent((*read, gates), self.gate_biases(weights, self.gates))

    def project(self, weights: Weights, inputs: Tensor, before: Before) -> State:
        """Returns the inputs, the candidate, and W_G x + b_G in the paper's form."""
        now = super().project(weights, inputs, before)
        if self.variant != "paper":
            return now
        opening = multiply(inputs, weights["highway_kernel"])
        return *now, opening + weights["highway_bias"]


@_registered
class SRUCell(GatedCell):
    """One time step of `SRU`.

    Args:
        units: n, the number of channels of the output, and of the input.
        **kwargs: the arguments of `GatedCell`.
    """

    square = True
    state_names = ("c",)
    biases = {"paper": (0.0, 0.0), "released": (1.0, -1.0, 0.0)}
    step = staticmethod(steps.sru)

    def variables_for(self, inputs: int) -> Variables:
        """Returns W of f, q and the candidate, omega of f and q, biases."""
        return {
            "kernel": ((inputs, 3 * self.units), KERNEL),
            "recurrent_kernel": ((2 * self.units,), RECURRENT),
            **self.bias_variable(),
        }

    def recurrent(self, weights: Weights) -> Recurrent:
        """Returns omega."""
        return Recurrent(vectors=(weights["recurrent_kernel"],))

    def project(self, weights: Weights, inputs: Tensor, before: Before) -> State:
        """Returns the inputs, the gate blocks and the candidate."""
        (bias,) = self.gate_biases(weights, 3)
        blocks = multiply(inputs, weights["kernel"]) + bias
        sizes = [2 * self.units, self.units]
        gates, candidate = backend.split(blocks, sizes)
        return inputs, gates, candidate


class ElementwiseResidualCell(ResidualCell):
    """A cell with an element-wise connection: v = x + alpha * (tanh(omega_V) * h')."""

    square = True
    state_names: Any = ("h", "c")
    gates = 2

    def variables_for(self, inputs: int) -> Variables:
        """Returns W of gates and candidate, omega_V before its tanh, alpha, biases."""
        variables = super().variables_for(inputs)
        return variables | {"recurrent_kernel": ((inputs,), RECURRENT)}

    def recurrent(self, weights: Weights) -> Recurrent:
        """Returns the kernel of the gates; alpha * omega_V, and biases."""
        gates, _ = self._kernels(weights)
        vectors = (self._weight(weights), *self.gate_biases(weights, self.gates))
        return Recurrent((gates,), vectors)

    def _weight(self, weights: Weights) -> Tensor:
        return ops.sigmoid(weights["alpha_logit"]) * backend.tanh(
            weights["recurrent_kernel"]
        )


@_registered
class IRCSRUCell(ElementwiseResidualCell):
    """One time step of `IRCSRU`.

    Args:
        units: n, the number of channels of the output, and of the input.
        **kwargs: the arguments of `GatedCell`.
    """

    biases = {"paper": (), "released": (1.0, -1.0)}
    step = staticmethod(steps.irc_sru)


def _strongly_typed(keep: Tensor, read: Tensor, candidate: Tensor) -> State:
    """Returns f, o and (1 - f) * a, which a strongly typed step reads."""
    keep = ops.sigmoid(keep)
    return keep, ops.sigmoid(read), (1 - keep) * candidate


@_registered
class TLSTMCell(GatedCell):
    """One time step of `TLSTM`.

    Args:
        units: n, the number of channels of the output.
        **kwargs: the arguments of `GatedCell`.
    """

    state_names = ("x", "c")
    step = staticmethod(steps.t_lstm)
    biases = {"paper": (0.0, 0.0, 0.0)}

    def variables_for(self, inputs: int) -> Variables:
        """Returns W and U of f, o and the candidate, and biases."""
        shape = (inputs, 3 * self.units)
        return {
            "kernel": (shape, KERNEL),
            "recurrent_kernel": (shape, RECURRENT),
            **self.bias_variable(),
        }

    def recurrent(self, weights: Weights) -> Recurrent:
        """Returns nothing: no weight meets c."""
        return Recurrent()

    def project(self, weights: Weights, inputs: Tensor, before: Before) -> State:
        """Returns f, o and (1 - f) * a."""
        both = ops.concatenate([inputs, before], axis=-1)
        kernel = ops.concatenate(
            [weights["kernel"], weights["recurrent_kernel"]], axis=0
        )
        blocks = multiply(both, kernel) + weights["bias"]
        return _strongly_typed(*ops.split(blocks, 3, axis=-1))


@_registered
class IRCTLSTMCell(ElementwiseResidualCell):
    """One time step of `IRCTLSTM`.

    Args:
        units: n, the number of channels of the output, and of the input.
        **kwargs: the arguments of `GatedCell`.
    """

    @property
    def state_names(self) -> tuple[str, ...]:
        """The released form reads the last input in the place of h."""
        if self.variant == "paper":
            return ("h", "c")
        return ("x", "c")

    @property
    def step(self) -> Step:
        """One time step."""
        if self.variant == "paper":
            return steps.irc_t_lstm
        return steps.t_lstm

    def recurrent(self, weights: Weights) -> Recurrent:
        """Returns what the state meets; nothing in the released form."""
        if self.keeps_input:
            return Recurrent()
        return super().recurrent(weights)

    def project(self, weights: Weights, inputs: Tensor, before: Before) -> State:
        """Returns the inputs and the candidate; released f, o and (1 - f) * a."""
        inputs, candidate = super().project(weights, inputs, before)
        if not self.keeps_input:
            return inputs, candidate
        gates, _ = self._kernels(weights)
        (bias,) = self.gate_biases(weights, self.gates)
        corrected = inputs + self._weight(weights) * before
        blocks = multiply(corrected, gates) + bias
        keep, read = ops.split(blocks, 2, axis=-1)
        return _strongly_typed(keep, read, candidate)


@_registered
class FastGRNNCell(GatedCell):
    """One time step of `FastGRNN`.

    Args:
        units: n, the number of channels of the output.
        scaled: see `FastGRNN`.
        **kwargs: the arguments of `GatedCell`.
    """

    biases = {"paper": (0.0, 0.0), "released": (1.0, 0.0)}
    activation = "tanh"
    step = staticmethod(steps.fast_grnn)

    @constructor
    def __init__(self, units: int, *, scaled: bool = True, **kwargs: Any) -> None:
        super().__init__(units, **kwargs)
        self.scaled = bool(scaled)

    def variables_for(self, inputs: int) -> Variables:
        """Returns W and U of f and the candidate, biases, beta, kappa."""
        scales = {"beta_logit": ((), _BETA), "kappa_logit": ((), _KAPPA)}
        return {
            "kernel": ((inputs, 2 * self.units), KERNEL),
            "recurrent_kernel": ((self.units, 2 * self.units), RECURRENT),
            **self.bias_variable(),
            **(scales if self.scaled else {}),
        }

    def recurrent(self, weights: Weights) -> Recurrent:
        """Returns U, beta and kappa."""
        kernel = weights["recurrent_kernel"]
        if self.scaled:
            beta = ops.sigmoid(weights["beta_logit"])
            kappa = ops.sigmoid(weights["kappa_logit"])
        else:
            beta = ops.ones([], kernel.dtype)
            kappa = ops.zeros([], kernel.dtype)
        return Recurrent((kernel,), (beta, kappa))

    def project(self, weights: Weights, inputs: Tensor, before: Before) -> State:
        """Returns the blocks of f and the candidate."""
        return (multiply(inputs, weights["kernel"]) + weights["bias"],)


@_registered
class IRCFastGRNNCell(ResidualCell):
    """One time step of `IRCFastGRNN`.

    Args:
        units: n, the number of channels of the output.
        **kwargs: the arguments of `GatedCell`.
    """

    gates = 1
    step = staticmethod(steps.irc_fast_grnn)

    def variables_for(self, inputs: int) -> Variables:
        """Returns W of f and the candidate, U_V, alpha, biases, beta."""
        variables = super().variables_for(inputs)
        if self.variant == "paper":
            return variables | {"beta_logit": ((), _BETA)}
        drawn = keras.initializers.RandomNormal(stddev=0.1, seed=self.seed)
        return variables | {"beta_logit": ((self.units,), drawn)}

    def recurrent(self, weights: Weights) -> Recurrent:
        """Returns alpha * U_V, the kernel of f, beta, and the bias."""
        recurrent = super().recurrent(weights)
        beta = ops.sigmoid(weights["beta_logit"])
        return recurrent._replace(vectors=(beta, *recurrent.vectors))
