"""Theorem 1 of the paper as a function: a truncated RNN is a trellis network.

An L-layer RNN truncated to M steps equals a trellis network of depth M + L - 1 with L groups of
channels, one for each RNN layer. The past tap is block diagonal (each layer's own recurrence), the
present tap block sub-diagonal (each layer's input from the layer below). Group l is zero below
level l: there its layer has not had its first step, nor read its bias.

A gate of an IRC layer reads W_k v = W_k x + (W_k diag(alpha) U_V) h'. That is linear in
(x, h'), so that the recurrent matrix of block k is W_k diag(alpha) U_V.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

import keras
import numpy as np

from keras_trellis import arguments, recurrent
from keras_trellis.core.gates import (
    FastGRNNGate,
    Gate,
    GRUGate,
    IRCGRUGate,
    IRCLSTMGate,
    LSTMGate,
    TanhGate,
)
from keras_trellis.core.kernels import TRAINING_ARGUMENTS
from keras_trellis.layers.trellis import TrellisLayer

RNN: TypeAlias = keras.layers.Layer

_GATES: dict[type[RNN], type[Gate]] = {
    keras.layers.LSTM: LSTMGate,
    keras.layers.GRU: GRUGate,
    keras.layers.SimpleRNN: TanhGate,
}
_RESIDUAL = (recurrent.IRCGRU, recurrent.IRCLSTM, recurrent.IRCFastGRNN)
_GATED = (*_RESIDUAL, recurrent.FastGRNN)
# Why a trellis network cannot equal a layer.
_REASONS = {
    recurrent.IHCLSTM: "its highway multiplies what the state and the input say before "
    "the kernel does, so that no pre-activation is linear in them",
    recurrent.SRU: "its gates read the state through vectors, not through a kernel that "
    "reads h",
}


class _Blocks(NamedTuple):
    """The weights of one RNN layer by gate blocks of the trellis network.

    Attributes:
        kernel: `[blocks, inputs, units]`.
        recurrent_kernel: `[blocks, units, units]`.
        bias: `[blocks, units]`.
    """

    kernel: np.ndarray
    recurrent_kernel: np.ndarray
    bias: np.ndarray


def layer_from_rnn(layers: RNN | Sequence[RNN], steps: int) -> TrellisLayer:
    """Builds the trellis layer that equals a stack of recurrent layers.

    Source: Bai et al. 2019, Theorem 1. On sequences of at most `steps` steps the two are equal,
    to rounding. On longer ones an output of the trellis layer is that of the RNN on the last
    `steps` steps alone, from the zero state. A state carried from call to call is the RNN's own.

    The layer is the RNN at inference. A warning names what it leaves behind because it acts in
    training alone: dropout, regularizers, constraints.

    Args:
        layers: built `keras.layers.LSTM`, `GRU` (with `reset_after=True`) or `SimpleRNN` layers,
            or `IRCGRU`, `IRCLSTM`, `FastGRNN` or `IRCFastGRNN` layers of
            `keras_trellis.recurrent`. They are of one kind, the lowest first, all but the last
            with `return_sequences=True`.
        steps: M, how many steps back the trellis layer reaches.

    Returns:
        a built layer of `len(layers)` groups, each as wide as the widest RNN layer, and of `steps
        + len(layers) - 1` levels. The top RNN layer gives its outputs, `return_sequences`,
        `return_state`, `zero_output_for_mask` and dtype. The state holds the layers' states side
        by side: h and, for an LSTM, c, each `[B, len(layers) * widest]`. The state of a narrower
        layer comes last in its group, after zeros.

    Raises:
        ValueError: a layer is of another kind, not built, not like the others, or has an
            option without counterpart in a trellis network, such as `stateful`.

    Examples:
        >>> import keras
        >>> import numpy as np
        >>> from keras_trellis import convert
        >>> lstm = keras.layers.LSTM(8)
        >>> sequences = np.ones([2, 10, 3], "float32")
        >>> expected = lstm(sequences)
        >>> layer = convert.layer_from_rnn(lstm, steps=10)
        >>> bool(np.allclose(layer(sequences), expected, atol=1e-5))
        True
    """
    layers = list(layers) if isinstance(layers, Iterable) else [layers]
    steps = arguments.positive("steps", steps)
    _check(layers)
    top = layers[-1]
    groups = len(layers)
    widest = max(layer.units for layer in layers)
    trellis = TrellisLayer(
        groups * widest,
        steps + groups - 1,
        gate=_layer_gate(top),
        output_units=top.units,
        groups=groups,
        staggered=True,
        return_sequences=top.return_sequences,
        return_state=top.return_state,
        zero_output_for_mask=top.zero_output_for_mask,
        dtype=top.dtype_policy,
    )
    inputs = layers[0].cell.kernel.shape[0]
    trellis.warns_unseen_steps = False  # `steps` says how many it sees
    trellis.build((None, None, inputs))
    blocks = [_weight_blocks(layer) for layer in layers]
    below = [inputs] + [widest] * (groups - 1)
    pairs = zip(blocks, below, strict=True)
    _assign(trellis, [_widened(*pair, widest) for pair in pairs])
    _warn_left_behind(layers)
    return trellis


def _assign(layer: TrellisLayer, weights: Sequence[_Blocks]) -> None:
    """Gives the layer the weights of its groups."""
    kernel = _joined(weights[0].kernel)
    recurrent = [_joined(group.recurrent_kernel) for group in weights]
    present = [_joined(group.kernel) for group in weights[1:]]
    input_taps = [kernel]
    if len(weights) == 1:
        # A dense kernel: the past tap recurs, the present tap reads the input.
        input_taps = [np.zeros_like(kernel), kernel]
        present = [np.zeros_like(recurrent[0])]
    layer.kernel.assign(np.stack(input_taps))
    layer.recurrent_kernel.assign(np.stack(recurrent + present))
    # [blocks, groups, units]: a block has the channels of all groups side by side.
    biases = [group.bias for group in weights]
    layer.bias.assign(np.stack(biases, axis=1).ravel())


def _widened(
    blocks: _Blocks,
    inputs: int,
    units: int,
) -> _Blocks:
    """Puts channels in front that nothing enters and that enter nothing."""
    _, old_inputs, old_units = blocks.kernel.shape
    none = (0, 0)
    inputs_ahead = (inputs - old_inputs, 0)
    ahead = (units - old_units, 0)
    return _Blocks(
        kernel=np.pad(blocks.kernel, [none, inputs_ahead, ahead]),
        recurrent_kernel=np.pad(blocks.recurrent_kernel, [none, ahead, ahead]),
        bias=np.pad(blocks.bias, [none, ahead]),
    )


def _warn_left_behind(layers: Sequence[RNN]) -> None:
    left = [
        name
        for name in TRAINING_ARGUMENTS
        if any(_has(layer, name) for layer in layers)
    ]
    if not all(layer.trainable for layer in layers):
        left.append("trainable=False")
    if left:
        warnings.warn(
            "`layer_from_rnn` takes the layers as they are at inference. It leaves behind: "
            f"{', '.join(left)}",
            stacklevel=3,
        )


def _has(layer: RNN, name: str) -> bool:
    return bool(getattr(layer, name, None) or getattr(layer.cell, name, None))


def _joined(blocks: np.ndarray) -> np.ndarray:
    """`[blocks, inputs, units]` -> `[inputs, blocks * units]`."""
    return blocks.transpose(1, 0, 2).reshape(blocks.shape[1], -1)


def _check(layers: Sequence[RNN]) -> None:
    """Raises ValueError unless a trellis network can equal the stack of layers."""
    if not layers:
        raise ValueError(
            "`layers` must hold at least one RNN layer. Received: layers=[]"
        )
    for layer in layers:
        _check_kind(layer)
    first = layers[0]
    for below, layer in itertools.pairwise(layers):
        if type(layer) is not type(first):
            raise _refusal(f"be of one kind, {type(first).__name__}", layer)
        if layer.cell.kernel.shape[0] != below.units:
            raise _refusal("each take the output of the layer below as input", layer)
        if not below.return_sequences:
            raise _refusal("have return_sequences=True below the last", below)
        if vars(_layer_gate(layer)) != vars(_layer_gate(first)):
            same = "beta and kappa" if type(layer) in _GATED else "activations"
            raise _refusal(f"have the same {same}", layer)
        if layer.dtype_policy != first.dtype_policy:
            raise _refusal(
                f"have the same dtype policy, {first.dtype_policy.name}", layer
            )


def _check_kind(layer: RNN) -> None:
    """Raises ValueError unless a trellis network can equal the layer by itself."""
    # A class derived from one of these may compute something else.
    if type(layer) not in (*_GATES, *_GATED):
        reason = _REASONS.get(type(layer))
        because = f" ({type(layer).__name__} cannot: {reason})" if reason else ""
        raise _refusal(
            "each be a keras.layers.LSTM, GRU or SimpleRNN, or an IRCGRU, IRCLSTM, "
            f"FastGRNN or IRCFastGRNN{because}",
            layer,
        )
    if not layer.built:
        raise _refusal("be built (call the model once)", layer)
    if layer.go_backwards:
        raise _refusal("have go_backwards=False", layer)
    if layer.stateful:
        raise _refusal(
            "have stateful=False (`stream` of the trellis layer continues a batch)",
            layer,
        )
    if isinstance(layer, keras.layers.GRU) and not layer.reset_after:
        raise _refusal(
            "have reset_after=True if they are GRUs (else the reset gate multiplies the "
            "state before the kernel does)",
            layer,
        )


def _layer_gate(layer: RNN) -> Gate:
    if type(layer) in _GATED:
        return _gated_gate(layer)
    gate = _GATES[type(layer)]
    if isinstance(layer, keras.layers.SimpleRNN):
        return gate(layer.activation)
    return gate(layer.activation, layer.recurrent_activation)


def _refusal(expected: str, layer: object) -> ValueError:
    return ValueError(f"`layers` must {expected}. Received: {layer!r}")


def _weight_blocks(layer: RNN) -> _Blocks:
    """Splits an RNN layer's weights into the blocks of the gate."""
    if type(layer) in _GATED:
        return _gated_blocks(layer)
    cell = layer.cell
    units = layer.units

    def split(variable: keras.Variable) -> np.ndarray:
        weight = keras.ops.convert_to_numpy(variable)
        count = weight.shape[-1] // units
        return np.stack(np.split(weight, count, axis=-1))

    kernel = split(cell.kernel)
    recurrent = split(cell.recurrent_kernel)
    if isinstance(layer, keras.layers.GRU):
        return _gru_blocks(layer, kernel, recurrent)
    bias = np.zeros(kernel.shape[::2], kernel.dtype)
    if layer.use_bias:
        bias = split(cell.bias)
    return _Blocks(kernel, recurrent, bias)


def _gru_blocks(
    layer: keras.layers.GRU,
    kernel: np.ndarray,
    recurrent: np.ndarray,
) -> _Blocks:
    """Splits z, r, h of a `reset_after` GRU into u, r, a (of the input), b (of the recurrence)."""
    bias = np.zeros((2, 3, layer.units), kernel.dtype)
    if layer.use_bias:
        bias = keras.ops.convert_to_numpy(layer.cell.bias).reshape(bias.shape)
    no_input = np.zeros_like(kernel[:1])
    no_recurrence = np.zeros_like(recurrent[:1])
    return _Blocks(
        kernel=np.concatenate([kernel, no_input]),
        recurrent_kernel=np.concatenate([recurrent[:2], no_recurrence, recurrent[2:]]),
        bias=np.concatenate([bias.sum(0)[:2], bias[:, 2]]),
    )


# The gated layers


def _gated_gate(layer: RNN) -> Gate:
    """Returns the gate of a trellis network that computes a step of a gated layer."""
    if isinstance(layer, recurrent.IRCGRU):
        return IRCGRUGate()
    if isinstance(layer, recurrent.IRCLSTM):
        return IRCLSTMGate()
    beta = 1.0
    kappa = 0.0
    if hasattr(layer.cell, "beta_logit"):
        beta = _scalar(layer, layer.cell.beta_logit)
    if hasattr(layer.cell, "kappa_logit"):
        kappa = _scalar(layer, layer.cell.kappa_logit)
    activation = "linear" if isinstance(layer, _RESIDUAL) else "tanh"
    return FastGRNNGate(activation, beta=beta, kappa=kappa)


def _gated_blocks(layer: RNN) -> _Blocks:
    """Returns a layer's weights by gate blocks.

    Returns:
        the kernel `[blocks, p, units]`, the recurrent kernel `[blocks, units, units]` and the
        biases `[blocks, units]`.
    """
    kernel = _array(layer.cell.kernel)
    bias = np.zeros(kernel.shape[1])
    if hasattr(layer.cell, "bias"):
        given = _array(layer.cell.bias)
        bias[: len(given)] = given  # the blocks that it lacks come last
    blocks = kernel.shape[1] // layer.units
    weights = []
    for weight in (kernel, _state_kernel(layer, kernel), bias):
        by_block = np.split(weight, blocks, axis=-1)
        weights.append(np.stack(by_block))
    if isinstance(layer, recurrent.IRCLSTM):
        # The blocks f, i, o, a, in the gate's order.
        weights = [weight[[1, 0, 3, 2]] for weight in weights]
    return _Blocks(*weights)


def _state_kernel(layer: RNN, kernel: np.ndarray) -> np.ndarray:
    """Returns what the pre-activations of all blocks read of the state, `[units, channels]`."""
    cell = layer.cell
    read = _array(cell.recurrent_kernel)
    if not isinstance(layer, _RESIDUAL):
        return read
    alpha = _sigmoid(_array(cell.alpha_logit))
    gates_kernel = kernel[:, : cell.gates * layer.units]
    candidate_kernel = np.zeros((layer.units, layer.units))  # it reads x alone
    gates_kernel = (read * alpha) @ gates_kernel
    return np.concatenate([gates_kernel, candidate_kernel], axis=1)


def _scalar(layer: RNN, logit: keras.Variable) -> float:
    if len(logit.shape):
        raise ValueError(
            "`layers` must have one beta for all channels, as no gate has variables: the "
            f"released IRCFastGRNN has a vector. Received: {layer!r}"
        )
    return float(_sigmoid(_array(logit)))


def _array(variable: keras.Variable) -> np.ndarray:
    values = keras.ops.convert_to_numpy(variable)
    return np.asarray(values, np.float64)


def _sigmoid(values: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-values))
