"""Layers that are streamed: one of each kind, and what they read."""

from __future__ import annotations

import keras
import numpy as np
from keras import layers, ops

from examples.linear_attention import LinearAttention
from keras_trellis import (
    EquilibriumTrellisLayer,
    TensorizedLSTM,
    TrellisClassifier,
    TrellisLayer,
    recurrent,
)

ROWS, CHANNELS = 3, 4


class Difference(layers.Layer):
    """A layer of a user's own: how a step differs from the one before it."""

    def call(self, x):
        return x - ops.pad(x, [[0, 0], [1, 0], [0, 0]])[:, :-1]

    def get_initial_cache(self, batch_size):
        return ops.zeros([batch_size, CHANNELS])

    def stream(self, chunk, cache, mask=None):
        padded = ops.concatenate([cache[:, None], chunk], axis=1)
        return chunk - padded[:, :-1], padded[:, -1]


def padded(zeros, window):
    return keras.Sequential([layers.ZeroPadding1D((zeros, 0)), window])


def reshaped():
    """Swaps channels."""
    inside = [
        layers.Reshape((-1, 2, 2)),
        layers.Permute((1, 3, 2)),
        layers.Reshape((-1, 4)),
    ]
    return keras.Sequential(inside)


def some_cells():
    return [layers.GRUCell(3), layers.LSTMCell(CHANNELS, dropout=0.5)]


ALL = {"return_sequences": True}
# Layers from [B, T, 4] to [B, T', 4].
BLOCKS = {
    "trellis": lambda: TrellisLayer(4, 2, **ALL),
    "equilibrium": lambda: EquilibriumTrellisLayer(
        4, groups=2, inject_groups=True, zero_output_for_mask=True, **ALL
    ),
    "tensorized": lambda: TensorizedLSTM(4, 2, **ALL),
    "sru": lambda: recurrent.SRU(4, **ALL),
    "own": Difference,
    "linear attention": lambda: LinearAttention(4, **ALL),
    "lstm": lambda: layers.LSTM(4, zero_output_for_mask=True, **ALL),
    "gru": lambda: layers.GRU(4, **ALL),
    "simple rnn": lambda: layers.SimpleRNN(4, **ALL),
    "conv": lambda: layers.Conv1D(4, 3, padding="causal", activation="tanh"),
    "grouped conv": lambda: layers.Conv1D(4, 3, padding="causal", groups=2),
    "dilated conv": lambda: layers.Conv1D(4, 2, padding="causal", dilation_rate=3),
    "strided conv": lambda: layers.Conv1D(4, 5, strides=2, padding="causal"),
    "patches": lambda: layers.Conv1D(4, 2, strides=2),
    "narrow conv": lambda: layers.Conv1D(4, 1, strides=2, padding="same"),
    "separable conv": lambda: layers.SeparableConv1D(4, 2, strides=2),
    "depthwise conv": lambda: layers.DepthwiseConv1D(2, strides=2),
    "max pool": lambda: layers.MaxPooling1D(2),
    "average pool": lambda: layers.AveragePooling1D(2, padding="same"),
    "padded pool": lambda: padded(2, layers.MaxPooling1D(3, strides=1)),
    "padded strided pool": lambda: padded(3, layers.AveragePooling1D(4, strides=2)),
    "dense": lambda: layers.Dense(4, "tanh"),
    "batch norm": layers.BatchNormalization,
    "layer norm": layers.LayerNormalization,
    "rms norm": layers.RMSNormalization,
    "unit norm": layers.UnitNormalization,
    "normalization": lambda: layers.Normalization(mean=[1.0] * 4, variance=[2.0] * 4),
    "rescaling": lambda: layers.Rescaling([1.0, 2.0, 3.0, 4.0], 1.0),
    "masking": layers.Masking,
    "reshape": reshaped,
    "prelu": lambda: layers.PReLU("ones", shared_axes=[1]),
    "time distributed": lambda: layers.TimeDistributed(layers.Dense(4, "relu")),
    "activation": lambda: layers.Activation("softmax"),
    "activity regularization": layers.ActivityRegularization,
    "elu": layers.ELU,
    "identity": layers.Identity,
    "leaky relu": layers.LeakyReLU,
    "relu": layers.ReLU,
    "alpha dropout": lambda: layers.AlphaDropout(0.5),
    "dropout": lambda: layers.Dropout(0.5),
    "gaussian dropout": lambda: layers.GaussianDropout(0.5),
    "gaussian noise": lambda: layers.GaussianNoise(0.5),
    "spatial dropout": lambda: layers.SpatialDropout1D(0.5),
}
# Layers from [B, T, 4] to answers.
ENDS = {
    "last of a trellis": lambda: TrellisLayer(4, 3, dilation_rate=(1, 2)),
    "last of a stack": lambda: recurrent.StackedLSTM(4, return_state=True),
    "last of a tlstm": lambda: recurrent.TLSTM(4, return_state=True),
    "last of an lstm": lambda: layers.LSTM(4, zero_output_for_mask=True),
    "last of an rnn": lambda: layers.RNN(some_cells(), return_state=True),
    "classifier": lambda: TrellisClassifier(3, TrellisLayer(4, 2)),
    "mean": layers.GlobalAveragePooling1D,
    "largest": lambda: layers.GlobalMaxPooling1D(keepdims=True),
}
KINDS = BLOCKS | ENDS
MERGES = (
    layers.Add,
    layers.Average,
    layers.Concatenate,
    layers.Maximum,
    layers.Minimum,
    layers.Multiply,
    layers.Subtract,
)


def with_random_weights(model):
    rng = np.random.default_rng(0)
    for weight in model.weights:
        if "seed" not in weight.path:
            value = 0.4 * rng.normal(size=weight.shape)
            weight.assign(abs(value) + 0.5 if "variance" in weight.path else value)
    return model


def drawn_steps(steps, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(ROWS, steps, CHANNELS)).astype("float32")
    x[0, 2] = 0  # what a Masking skips
    mask = rng.random((ROWS, steps)) < 0.6
    mask[1, :2] = False
    mask[-1] = False
    return x, mask
