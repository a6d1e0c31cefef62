"""Theorem 1 of the paper as a function: a truncated RNN is a trellis network.

An L-layer RNN truncated to M steps equals a trellis network of depth M + L - 1 and of L groups of
channels, one an RNN layer, whose past tap is block diagonal (each layer's own recurrence) and
whose present tap is block sub-diagonal (each layer's input from the layer below).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import keras
import numpy as np

from keras_trellis import arguments
from keras_trellis.gates import Gate, GRUGate, LSTMGate, TanhGate
from keras_trellis.layer import TrellisLayer

RNN: TypeAlias = keras.layers.Layer

_KINDS = (keras.layers.LSTM, keras.layers.GRU, keras.layers.SimpleRNN)


class _Blocks(NamedTuple):
    """One RNN layer's weights by the trellis gate's blocks."""

    kernel: np.ndarray  # [blocks, inputs, units]
    recurrent_kernel: np.ndarray  # [blocks, units, units]
    bias: np.ndarray  # [blocks, units]


def layer_from_rnn(layers: RNN | Sequence[RNN], steps: int) -> TrellisLayer:
    """Builds the trellis layer that equals a stack of Keras RNN layers.

    Source: Bai et al. 2019, Theorem 1. On sequences of at most `steps` steps the two are equal,
    to rounding; on longer ones the trellis layer is the RNN truncated to the last `steps` steps.
    A state carried from call to call is the RNN's own.

    Args:
        layers: built `keras.layers.LSTM`, `GRU` (with `reset_after=True`) or `SimpleRNN` layers
            of one kind and one number of units, the lowest first.
        steps: M, how many steps back the trellis layer shall reach.

    Returns:
        A built layer of `len(layers) * units` channels, `steps + len(layers) - 1` levels and
        `len(layers)` groups. Its outputs are the top RNN layer's; `return_sequences`,
        `return_state` and the dtype are those of the top layer. Its states hold the layers'
        states side by side: h and, for the LSTM, c, each [B, len(layers) * units].

    Raises:
        ValueError: if a layer is of another kind, not built, or not like the others.
    """
    layers = [layers] if isinstance(layers, keras.layers.Layer) else list(layers)
    steps = arguments.positive("steps", steps)
    gate = _common_gate(layers)
    top, groups = layers[-1], len(layers)
    weights = [_blocks_of(layer) for layer in layers]
    layer = TrellisLayer(
        groups * top.units,
        steps + groups - 1,
        gate=gate,
        output_units=top.units,
        groups=groups,
        return_sequences=top.return_sequences,
        return_state=top.return_state,
        dtype=top.dtype_policy,
    )
    layer.build((None, None, weights[0].kernel.shape[1]))
    # A dense kernel (one group) has its past tap for the recurrence, its present for the input.
    kernel = _joined(weights[0].kernel)
    layer.kernel.assign(np.stack([np.zeros_like(kernel), kernel]) if groups == 1 else kernel[None])
    recurrent = [_joined(each.recurrent_kernel) for each in weights]
    present = [_joined(each.kernel) for each in weights[1:]] or [np.zeros_like(recurrent[0])]
    layer.recurrent_kernel.assign(np.stack(recurrent + present))
    # [blocks, groups, units]: within a block the groups' channels stand side by side.
    layer.bias.assign(np.stack([each.bias for each in weights], axis=1).ravel())
    return layer


def _joined(blocks: np.ndarray) -> np.ndarray:
    """[blocks, inputs, units] -> [inputs, blocks * units]."""
    return blocks.transpose(1, 0, 2).reshape(blocks.shape[1], -1)


def _common_gate(layers: Sequence[RNN]) -> Gate:
    """Checks the stack and returns its gate."""
    if not layers:
        raise ValueError("`layers` must hold at least one RNN layer. Received: layers=[]")
    for layer in layers:
        if not isinstance(layer, _KINDS):
            raise _refusal("each be a keras.layers.LSTM, GRU or SimpleRNN", layer)
        if not layer.built:
            raise _refusal("be built (call the model once)", layer)
        if layer.go_backwards:
            raise _refusal("have go_backwards=False", layer)
        if isinstance(layer, keras.layers.GRU) and not layer.reset_after:
            raise _refusal("have reset_after=True if they are GRUs", layer)
    first = layers[0]
    for layer in layers[1:]:
        if type(layer) is not type(first) or layer.units != first.units:
            raise _refusal(f"be of one kind and of one number of units, {first.units}", layer)
        if layer.cell.kernel.shape[0] != first.units:
            raise _refusal("each take the output of the one below as its input", layer)
        if _activations(layer) != _activations(first):
            raise _refusal("have the same activations", layer)
    kinds = {keras.layers.LSTM: LSTMGate, keras.layers.GRU: GRUGate}
    return kinds.get(type(first), TanhGate)(*_activations(first))


def _activations(layer: RNN) -> tuple:
    if isinstance(layer, keras.layers.SimpleRNN):
        return (layer.activation,)
    return layer.activation, layer.recurrent_activation


def _refusal(expected: str, layer: object) -> ValueError:
    return ValueError(f"`layers` must {expected}. Received: {layer!r}")


def _blocks_of(layer: RNN) -> _Blocks:
    """Splits an RNN layer's weights into the blocks of the gate."""
    cell, units = layer.cell, layer.units

    def split(weight: np.ndarray) -> np.ndarray:
        return np.stack(np.split(weight, weight.shape[-1] // units, axis=-1))

    kernel = split(keras.ops.convert_to_numpy(cell.kernel))
    recurrent = split(keras.ops.convert_to_numpy(cell.recurrent_kernel))
    if isinstance(layer, keras.layers.GRU):
        return _gru_blocks(layer, kernel, recurrent)
    bias = np.zeros(kernel.shape[::2], kernel.dtype)
    if layer.use_bias:
        bias = split(keras.ops.convert_to_numpy(cell.bias))
    return _Blocks(kernel, recurrent, bias)


def _gru_blocks(layer: keras.layers.GRU, kernel: np.ndarray, recurrent: np.ndarray) -> _Blocks:
    """z, r, h of a `reset_after` GRU -> u, r, a (from the input), b (from the recurrence)."""
    bias = np.zeros((2, 3, layer.units), kernel.dtype)
    if layer.use_bias:
        bias = keras.ops.convert_to_numpy(layer.cell.bias).reshape(bias.shape)
    nothing = np.zeros_like(kernel[:1]), np.zeros_like(recurrent[:1])
    return _Blocks(
        kernel=np.concatenate([kernel, nothing[0]]),
        recurrent_kernel=np.concatenate([recurrent[:2], nothing[1], recurrent[2:]]),
        bias=np.concatenate([bias.sum(0)[:2], bias[:, 2]]),
    )
