"""The terms of a language model's loss."""

from __future__ import annotations

from typing import Any, NamedTuple

from keras import ops

from keras_trellis import heads
from keras_trellis.models import passes
from keras_trellis.models.passes import Features
from keras_trellis.types import Tensor


class LossTerms(NamedTuple):
    """The terms of the paper's loss: scalars, weighted, each a mean over the scored positions.

    Attributes:
        prediction: nll of the targets.
        auxiliary: `auxiliary_weight` times the sum over the auxiliary levels of their nll.
        activation: `activation_weight` times the mean square of the dropped outputs (AR).
        temporal: `temporal_weight` times the mean square of the step from one raw output to the
            next (TAR).
    """

    prediction: Tensor
    auxiliary: Tensor
    activation: Tensor
    temporal: Tensor


def sums(
    model: Any,
    features: Features,
    targets: Tensor,
    weights: Tensor,
    training: bool,
) -> tuple[LossTerms, LossTerms]:
    """Returns the terms as weighted sums over positions, and the sums of those weights.

    A mean over all replicas is not the mean of their means, so that these are sums.

    Args:
        model: the language model.
        features: of the scored positions.
        targets: `[B, T]`.
        weights: how much each position counts, `[B, T]`.
        training: whether the head drops.
    """
    raw, dropped, auxiliary, _ = features
    # A change from one step to the next counts as much as the step that counts less.
    pairs = ops.minimum(weights[:, 1:], weights[:, :-1])
    zero = ops.zeros((), weights.dtype)
    terms = dict.fromkeys(LossTerms._fields, zero)
    nll = passes.nll(model, dropped, targets, training)
    terms["prediction"] = ops.sum(weights * nll)
    if auxiliary is not None:
        nll = passes.nll(model, auxiliary, targets[:, None], training)
        terms["auxiliary"] = model.auxiliary_weight * ops.sum(weights[:, None] * nll)
    if model.activation_weight:
        squares = ops.sum(weights * _mean_square(dropped))
        terms["activation"] = model.activation_weight * squares
    if model.temporal_weight:
        changes = raw[:, 1:] - raw[:, :-1]
        squares = ops.sum(pairs * _mean_square(changes))
        terms["temporal"] = model.temporal_weight * squares
    total = ops.sum(weights)
    return LossTerms(**terms), LossTerms(total, total, total, ops.sum(pairs))


def means(terms: LossTerms, weights: LossTerms) -> LossTerms:
    """Returns the terms as means, zero where nothing is scored."""
    return LossTerms(*map(ops.divide_no_nan, terms, weights))


def _mean_square(values: Tensor) -> Tensor:
    """`[..., E]` -> `[...]` in at least float32."""
    return ops.mean(ops.square(heads.at_least_float32(values)), axis=-1)
