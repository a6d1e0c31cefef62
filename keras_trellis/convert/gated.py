"""The gated layers that Theorem 1 covers: their gates, and their weights by gate blocks.

A gate of an IRC layer reads W_k v = W_k x + (W_k diag(alpha) U_V) h'. That is linear in
(x, h'), so that the recurrent matrix of block k is W_k diag(alpha) U_V.
"""

from __future__ import annotations

import keras
import numpy as np

from keras_trellis import recurrent
from keras_trellis.core.gates import FastGRNNGate, Gate, IRCGRUGate, IRCLSTMGate

RESIDUAL = (recurrent.IRCGRU, recurrent.IRCLSTM, recurrent.IRCFastGRNN)
LAYERS = (*RESIDUAL, recurrent.FastGRNN)
REASONS = {
    recurrent.IHCLSTM: "its highway multiplies what the state and the input say before "
    "the kernel does, so that no pre-activation is linear in them",
    recurrent.SRU: "its gates read the state through vectors, not through a kernel that "
    "reads h",
}
"""Why a trellis network cannot equal a layer."""


def layer_gate(layer: keras.layers.RNN) -> Gate:
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
    activation = "linear" if isinstance(layer, RESIDUAL) else "tanh"
    return FastGRNNGate(activation, beta=beta, kappa=kappa)


def weight_blocks(layer: keras.layers.RNN) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
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
    kernel, read, bias = weights
    return kernel, read, bias


def _state_kernel(layer: keras.layers.RNN, kernel: np.ndarray) -> np.ndarray:
    """Returns what the pre-activations of all blocks read of the state, `[units, channels]`."""
    cell = layer.cell
    read = _array(cell.recurrent_kernel)
    if not isinstance(layer, RESIDUAL):
        return read
    alpha = _sigmoid(_array(cell.alpha_logit))
    gates_kernel = kernel[:, : cell.gates * layer.units]
    candidate_kernel = np.zeros((layer.units, layer.units))  # it reads x alone
    gates_kernel = (read * alpha) @ gates_kernel
    return np.concatenate([gates_kernel, candidate_kernel], axis=1)


def _scalar(layer: keras.layers.RNN, logit: keras.Variable) -> float:
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
