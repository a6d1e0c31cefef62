"""Output heads: what turns a network's features into a distribution over a vocabulary.

A head owns what comes after the features and before the probabilities, except for the table of word
vectors: that one is the embedding's (the two are tied) and comes in as an argument of every method.
All methods take features of any rank, `[..., E]`: those of the top level `[B, T, E]` and the
auxiliary ones of several levels `[B, M, T, E]` go through the same code, the latter in one call.

Softmax and nll are computed in at least float32, whatever the dtype of the features.
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
    "WORDS",
    "AdaptiveSoftmax",
    "Head",
    "MixtureOfSoftmaxes",
    "TiedSoftmax",
    "at_least_float32",
    "get",
]

_NAMES = {"tied": TiedSoftmax}


def get(identifier: Any, **arguments: Any) -> Head:
    """Returns a head for a name, a serialised head, or a head.

    Args:
        identifier: `"tied"`, what `keras.saving.serialize_keras_object` returned for a head, or a
            `Head`, which is returned as it is.
        **arguments: constructor arguments for a head given by name.

    Raises:
        ValueError: the identifier is none of these.
    """
    if isinstance(identifier, str) and identifier in _NAMES:
        return _NAMES[identifier](**arguments)
    if isinstance(identifier, dict):
        identifier = keras.saving.deserialize_keras_object(identifier)
    if isinstance(identifier, Head):
        return identifier
    raise ValueError(
        f"`head` must be one of {sorted(_NAMES)} or a keras_trellis.heads.Head. "
        f"Received: head={identifier!r}"
    )
