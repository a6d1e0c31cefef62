"""Weights from elsewhere: the authors' PyTorch code, and Keras's RNN layers (Theorem 1)."""

from keras_trellis.convert.released import (
    classifier_from_torch,
    language_model_from_torch,
    layer_from_torch,
)
from keras_trellis.convert.theorem1 import layer_from_rnn

__all__ = [
    "classifier_from_torch",
    "language_model_from_torch",
    "layer_from_rnn",
    "layer_from_torch",
]
