"""Layers from sequences to sequences, by the protocol of `keras.layers.LSTM`.

All layers of the package are here, as in `keras.layers`, those of `keras_trellis.recurrent` too.
One is imported when it is first asked for: some stand above this folder.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from keras_trellis import *  # noqa: F403
    from keras_trellis.recurrent import *  # noqa: F403

# The layers that `keras_trellis.recurrent` does not have.
_OTHERS = (
    "EquilibriumTrellisLayer",
    "RecurrentLayer",
    "SequenceLayer",
    "TrellisLayer",
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})


def __getattr__(name: str) -> Any:
    """Returns a public layer or cell; `__all__`: the names of all of them."""
    if name == "__all__" or name[0].isupper():  # nor a module of this folder
        package = importlib.import_module("keras_trellis")
        names = [*_OTHERS, *package.recurrent.__all__]
        if name == "__all__":
            return names
        if name in names:
            return getattr(package if name in _OTHERS else package.recurrent, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
