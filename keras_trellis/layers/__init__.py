"""Layers from sequences to sequences, by the protocol of `keras.layers.LSTM`.

All layers of the package are here, as in `keras.layers`, those of `keras_trellis.recurrent` too.
One is imported when it is first asked for: some stand above this folder.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from keras_trellis import *  # noqa: F403
    from keras_trellis.recurrent import *  # noqa: F403

__all__ = [  # noqa: F405
    "EquilibriumTrellisLayer",
    "FastGRNN",
    "FastGRNNCell",
    "IHCLSTM",
    "IHCLSTMCell",
    "IRCFastGRNN",
    "IRCFastGRNNCell",
    "IRCGRU",
    "IRCGRUCell",
    "IRCLSTM",
    "IRCLSTMCell",
    "IRCSRU",
    "IRCSRUCell",
    "IRCTLSTM",
    "IRCTLSTMCell",
    "RecurrentLayer",
    "SRU",
    "SRUCell",
    "SequenceLayer",
    "StackedLSTM",
    "TLSTM",
    "TLSTMCell",
    "TensorizedLSTM",
    "TensorizedLSTMCell",
    "TrellisLayer",
    "WeightDropLSTM",
    "WeightDropLSTMCell",
]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if not TYPE_CHECKING:  # it would have every name

    def __getattr__(name: str) -> Any:
        """Returns a public layer or cell."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        package = importlib.import_module("keras_trellis")
        if name in package.__all__:
            return getattr(package, name)
        return getattr(package.recurrent, name)
