"""Output heads turn a network's features into a distribution over a vocabulary.

A head owns everything between the features and the probabilities, except the table of word vectors.
The embedding owns that table, since the two are tied; every method of a head takes it as an
argument. The features have any rank, `[..., E]`: one call computes those of the top level, `[B, T,
E]`, or the auxiliary ones of several levels, `[B, M, T, E]`.

Heads compute softmax and nll in at least float32, for features of any dtype.

To add a head, write a class derived from `Head` in a new file. In this file, import it, and add its
name to `__all__` and to `NAMES`.
"""

from __future__ import annotations

from typing import Any

import keras

from keras_trellis.core.convolution import at_least_float32
from keras_trellis.heads.adaptive import AdaptiveSoftmax
from keras_trellis.heads.blockwise import BLOCK, WORDS
from keras_trellis.heads.head import Head, TiedSoftmax
from keras_trellis.heads.mixture import MixtureOfSoftmaxes

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
"""The heads by the names that `get`, `TrellisLM` and `config.model.head` accept."""


def get(identifier: Any, **arguments: Any) -> Head:
    """Returns the head with this name or configuration, or the head itself.

    Args:
        identifier: a name in `NAMES`, the result of `keras.saving.serialize_keras_object` for a
            head, or a `Head`.
        **arguments: constructor arguments for a head given by name.

    Raises:
        ValueError: the identifier is none of these, or the head lacks an argument.

    Examples:
        >>> from keras_trellis import heads
        >>> heads.get("adaptive", cutoffs=[10, 30]).cutoffs
        (10, 30)
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
