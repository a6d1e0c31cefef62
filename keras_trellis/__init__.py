"""Trellis networks for Keras: https://arxiv.org/abs/1810.06682.

A name is imported when it is first asked for, so that `keras_trellis.serving` runs where neither
Keras nor TensorFlow is installed. Once Keras is imported, so is all that Keras may have to find by
its registered name as it loads a file.
"""

import importlib
from typing import TYPE_CHECKING, Any

from keras_trellis import after_keras
from keras_trellis.version import __version__ as __version__

if TYPE_CHECKING:
    from keras_trellis import convert as convert
    from keras_trellis import heads as heads
    from keras_trellis import recurrent as recurrent
    from keras_trellis.core.gates import FastGRNNGate as FastGRNNGate
    from keras_trellis.core.gates import Gate as Gate
    from keras_trellis.core.gates import GRUGate as GRUGate
    from keras_trellis.core.gates import IRCGRUGate as IRCGRUGate
    from keras_trellis.core.gates import IRCLSTMGate as IRCLSTMGate
    from keras_trellis.core.gates import LSTMGate as LSTMGate
    from keras_trellis.core.gates import TanhGate as TanhGate
    from keras_trellis.core.network import depth_for as depth_for
    from keras_trellis.core.network import receptive_field as receptive_field
    from keras_trellis.layers.equilibrium import (
        EquilibriumTrellisLayer as EquilibriumTrellisLayer,
    )
    from keras_trellis.layers.recurrent import RecurrentLayer as RecurrentLayer
    from keras_trellis.layers.sequence import SequenceLayer as SequenceLayer
    from keras_trellis.layers.trellis import TrellisLayer as TrellisLayer
    from keras_trellis.models.classifier import TrellisClassifier as TrellisClassifier
    from keras_trellis.models.language_model import TrellisLM as TrellisLM
    from keras_trellis.models.losses import LossTerms as LossTerms
    from keras_trellis.models.streamed.model import StreamedModel as StreamedModel
    from keras_trellis.recurrent.stacked import StackedLSTM as StackedLSTM
    from keras_trellis.recurrent.tensorized import TensorizedLSTM as TensorizedLSTM
    from keras_trellis.types import Cache as Cache
    from keras_trellis.types import Convergence as Convergence
    from keras_trellis.types import State as State

# The module of each name that is none itself.
_MODULES = {
    "Cache": "types",
    "Convergence": "types",
    "EquilibriumTrellisLayer": "layers.equilibrium",
    "FastGRNNGate": "core.gates",
    "GRUGate": "core.gates",
    "Gate": "core.gates",
    "IRCGRUGate": "core.gates",
    "IRCLSTMGate": "core.gates",
    "LSTMGate": "core.gates",
    "LossTerms": "models.losses",
    "RecurrentLayer": "layers.recurrent",
    "SequenceLayer": "layers.sequence",
    "StackedLSTM": "recurrent.stacked",
    "State": "types",
    "StreamedModel": "models.streamed.model",
    "TanhGate": "core.gates",
    "TensorizedLSTM": "recurrent.tensorized",
    "TrellisClassifier": "models.classifier",
    "TrellisLM": "models.language_model",
    "TrellisLayer": "layers.trellis",
    "depth_for": "core.network",
    "receptive_field": "core.network",
}

__all__ = [*_MODULES, "convert", "heads", "recurrent"]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if not TYPE_CHECKING:  # it would have every name

    def __getattr__(name: str) -> Any:
        """Returns a public name, or a module."""
        if name in _MODULES:
            module = importlib.import_module(f"{__name__}.{_MODULES[name]}")
            globals()[name] = getattr(module, name)
            return globals()[name]
        path = f"{__name__}.{name}"
        if not name.startswith("_"):
            try:
                return importlib.import_module(path)
            except ModuleNotFoundError as error:
                if error.name != path:
                    raise
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _register() -> None:
    """Imports what registers itself with Keras."""
    for name in __all__:
        getattr(importlib.import_module(__name__), name)


after_keras.run(_register)
