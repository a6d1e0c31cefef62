"""The heads of the released code: tied softmax, mixture of softmaxes, split softmax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from keras_trellis.convert.arrays import Arrays, require_shape
from keras_trellis.heads import AdaptiveSoftmax, Head, MixtureOfSoftmaxes

_MIXTURE = frozenset({"prior.weight", "prior.bias", "latent.weight", "latent.bias"})
_SPLIT = frozenset({"tail_vectors", "tail_bias"})
_EPSILON = 1e-8  # what the released code adds to the probabilities of a mixture


def head_names(arrays: Arrays) -> frozenset[str]:
    """Returns the names of the head's own arrays, all of them where `arrays` has one."""
    names: frozenset[str] = frozenset()
    for head in (_MIXTURE, _SPLIT):
        if head & arrays.keys():
            names |= head
    return names


def head_weights(arrays: Arrays, cutoffs: Sequence[int] | None) -> Arrays:
    """Returns the head's variables but its bias, by their Keras names.

    Raises:
        ValueError: an array has another shape, or a split softmax has no `cutoffs`.
    """
    units = arrays["encoder.weight"].shape[1]
    if "tail_vectors" in arrays:
        return _split_weights(arrays, cutoffs, units)
    if "prior.weight" in arrays:
        return _mixture_weights(arrays, units)
    return {}


def make_head(
    weights: Arrays,
    cutoffs: Sequence[int] | None,
    latent_dropout: float,
    *,
    seed: int | None,
    dtype: Any,
) -> str | Head:
    """Returns the head of these variables, as `TrellisLM` takes it.

    Raises:
        ValueError: an argument belongs to another head.
    """
    if cutoffs is not None and "tail_vectors" not in weights:
        raise ValueError(
            f"`cutoffs` needs the arrays of a split softmax, {sorted(_SPLIT)}. "
            f"Received: cutoffs={cutoffs!r}, and `arrays` without them"
        )
    if latent_dropout and "prior_bias" not in weights:
        raise ValueError(
            f"`latent_dropout` needs the arrays of a mixture of softmaxes, {sorted(_MIXTURE)}. "
            f"Received: latent_dropout={latent_dropout!r}, and `arrays` without them"
        )
    if "prior_bias" in weights:
        return MixtureOfSoftmaxes(
            len(weights["prior_bias"]),
            latent_dropout=latent_dropout,
            epsilon=_EPSILON,
            seed=seed,
            dtype=dtype,
        )
    if cutoffs is not None:
        return AdaptiveSoftmax(cutoffs, dtype=dtype)
    return "tied"


def _split_weights(
    arrays: Arrays,
    cutoffs: Sequence[int] | None,
    units: int,
) -> Arrays:
    if cutoffs is None:
        raise ValueError(
            "`cutoffs` must say where the split softmax of `arrays` is split (the released "
            "script's `splits`). Received: cutoffs=None"
        )
    require_shape("tail_vectors", arrays["tail_vectors"], (len(cutoffs), units))
    require_shape("tail_bias", arrays["tail_bias"], (len(cutoffs),))
    # There the first of the rare clusters has the last of the tokens.
    return {name: arrays[name][::-1] for name in _SPLIT}


def _mixture_weights(arrays: Arrays, units: int) -> Arrays:
    prior = arrays["prior.weight"]
    latent = arrays["latent.weight"]
    require_shape("prior.weight", prior, (None, None))
    experts, features = prior.shape
    require_shape("prior.bias", arrays["prior.bias"], (experts,))
    require_shape("latent.weight", latent, (experts * units, features))
    require_shape("latent.bias", arrays["latent.bias"], (experts * units,))
    return {
        "prior_kernel": prior.T,
        "prior_bias": arrays["prior.bias"],
        "latent_kernel": latent.T,
        "latent_bias": arrays["latent.bias"],
    }
