"""Trellis networks for Keras: https://arxiv.org/abs/1810.06682."""

import importlib
from typing import TYPE_CHECKING, Any

from keras_trellis import convert, heads, recurrent
from keras_trellis.core.gates import (
    FastGRNNGate,
    Gate,
    GRUGate,
    IRCGRUGate,
    IRCLSTMGate,
    LSTMGate,
    TanhGate,
)
from keras_trellis.core.network import depth_for, receptive_field
from keras_trellis.layers import moved
from keras_trellis.layers.equilibrium import EquilibriumTrellisLayer
from keras_trellis.layers.recurrent import RecurrentLayer
from keras_trellis.layers.sequence import SequenceLayer
from keras_trellis.layers.trellis import TrellisLayer
from keras_trellis.models.classifier import TrellisClassifier
from keras_trellis.models.language_model import TrellisLM
from keras_trellis.models.losses import LossTerms
from keras_trellis.models.streamed.model import StreamedModel
from keras_trellis.recurrent.tensorized import TensorizedLSTM
from keras_trellis.types import Cache, Convergence, State

__all__ = [
    "Cache",
    "Convergence",
    "EquilibriumTrellisLayer",
    "FastGRNNGate",
    "GRUGate",
    "Gate",
    "IRCGRUGate",
    "IRCLSTMGate",
    "LSTMGate",
    "LossTerms",
    "RecurrentLayer",
    "SequenceLayer",
    "State",
    "StreamedModel",
    "TanhGate",
    "TensorizedLSTM",
    "TrellisClassifier",
    "TrellisLM",
    "TrellisLayer",
    "convert",
    "depth_for",
    "heads",
    "receptive_field",
    "recurrent",
]

moved.install()

if not TYPE_CHECKING:  # it would have every name

    def __getattr__(name: str) -> Any:
        """Returns a module by its old path, such as `keras_trellis.base`."""
        path = f"{__name__}.{name}"
        if path in moved.PATHS:
            return importlib.import_module(path)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
