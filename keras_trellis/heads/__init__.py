"""Output heads: what turns a network's features into a distribution over a vocabulary.

A head owns everything between the features and the probabilities but the table of word vectors.
The embedding owns that table, since the two are tied; every method takes it as an argument. All
methods take features of any rank, `[..., E]`: the same code computes those of the top level, `[B,
T, E]`, and the auxiliary ones of several levels, `[B, M, T, E]`, in one call.

Softmax and nll are computed in at least float32, whatever the dtype of the features.

A new head is one new file with a class derived from `Head`, and in this file an import, its name in
`__all__` and its name in `NAMES`.
"""

from __future__ import annotations

from typing import Any

import keras

from keras_trellis.heads.adaptive import AdaptiveSoftmax
from keras_trellis.heads.blockwise import BLOCK, WORDS
from keras_trellis.heads.head import Head, at_least_float32
from keras_trellis.heads.mixture import MixtureOfSoftmaxes
from keras_trellis.heads.tied import TiedSoftmax

__all__ = [
    "BLOCK",
    "NAMES",
    "WORDS",
    "AdaptiveSoftmax",
    "Head",
    "MixtureOfSoftmaxes",
    "TiedSoftmax",
    "at_least_float32",
    "get",
]

NAMES: dict[str, type[Head]] = {
    "adaptive": AdaptiveSoftmax,
    "mixture": MixtureOfSoftmaxes,
    "tied": TiedSoftmax,
}
"""The heads by the names that `get`, `TrellisLM` and `config.model.head` know."""


def get(identifier: Any, **arguments: Any) -> Head:
    """Returns a head for a name, a serialised head, or a head.

    Args:
        identifier: a name in `NAMES`, what `keras.saving.serialize_keras_object` returned for a
            head, or a `Head`, which is returned as it is.
        **arguments: constructor arguments for a head given by name.

    Raises:
        ValueError: the identifier is none of these, or the head lacks an argument.
    """
    if isinstance(identifier, str) and identifier in NAMES:
        return _named(identifier, arguments)
    if isinstance(identifier, dict):
        identifier = keras.saving.deserialize_keras_object(identifier)
    if isinstance(identifier, Head):
        return identifier
    raise ValueError(
        f"`head` must be one of {sorted(NAMES)} or a keras_trellis.heads.Head. "
        f"Received: head={identifier!r}"
    )


def _named(name: str, arguments: dict[str, Any]) -> Head:
    try:
        return NAMES[name](**arguments)
    except TypeError as error:  # an argument is missing, or the head does not have it
        raise ValueError(
            f"`head` must have the arguments of {NAMES[name].__name__}: {error}. "
            f"Received: head={name!r}"
        ) from error
