"""Trellis networks for Keras: https://arxiv.org/abs/1810.06682."""

import importlib
from typing import TYPE_CHECKING, Any

import keras

if keras.backend.backend() != "tensorflow":
    raise ImportError(
        "keras_trellis needs Keras on the TensorFlow backend. Received: the backend "
        f"{keras.backend.backend()!r}. Set the environment variable KERAS_BACKEND=tensorflow "
        "before Keras is imported."
    )

from keras_trellis import convert, heads, recurrent  # noqa: E402
from keras_trellis.core.gates import (  # noqa: E402
    FastGRNNGate,
    Gate,
    GRUGate,
    IRCGRUGate,
    IRCLSTMGate,
    LSTMGate,
    TanhGate,
)
from keras_trellis.core.receptive_field import depth_for, receptive_field  # noqa: E402
from keras_trellis.layers import moved  # noqa: E402
from keras_trellis.layers.equilibrium import EquilibriumTrellisLayer  # noqa: E402
from keras_trellis.layers.recurrent import RecurrentLayer  # noqa: E402
from keras_trellis.layers.sequence import SequenceLayer  # noqa: E402
from keras_trellis.layers.trellis import TrellisLayer  # noqa: E402
from keras_trellis.models.classifier import TrellisClassifier  # noqa: E402
from keras_trellis.models.language_model import TrellisLM  # noqa: E402
from keras_trellis.models.losses import LossTerms  # noqa: E402
from keras_trellis.recurrent.tensorized import TensorizedLSTM  # noqa: E402
from keras_trellis.types import Cache, Convergence, State  # noqa: E402

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
