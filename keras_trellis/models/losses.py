"""The loss of a language model: its targets, its terms, and `fit` and `evaluate` on it."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import operator
from collections.abc import Iterator
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_trellis import heads
from keras_trellis.backend import current as backend
from keras_trellis.core import checks
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


class Features(NamedTuple):
    """What the terms of the loss are made of.

    Attributes:
        raw: the outputs of the layer, `[B, T, output_units]`.
        dropped: the same after dropout, which is what the head gets.
        auxiliary: the outputs of inner levels after dropout, `[B, M, T, output_units]`, or None.
        state: the state after the last step.
    """

    raw: Tensor
    dropped: Tensor
    auxiliary: Tensor | None
    state: tuple[Tensor, ...]


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
    nll = model.nll(dropped, targets, training=training)
    terms["prediction"] = ops.sum(weights * nll)
    if auxiliary is not None:
        nll = model.nll(auxiliary, targets[:, None], training=training)
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
    return backend.mean(ops.square(heads.at_least_float32(values)))[..., 0]


class _Step:
    """One step of `fit` or `evaluate` of a model: its batch, and what the call makes of it."""

    def __init__(self, model: Any, data: Any) -> None:
        self.model = model
        self.data = data
        self.logits: Any = None
        self.sums: Any = None


# Under a strategy each replica takes its step in a thread of its own.
_STEP: contextvars.ContextVar[_Step | None] = contextvars.ContextVar(
    "step", default=None
)


class OwnLoss(keras.Model):
    """A model with a loss of its own, which trains where `compile()` is given none.

    The loss needs more than the logits. But in a step Keras calls the model, on the inputs alone,
    and gives what that returns to `compute_loss`. So a call within a step takes the whole batch: it
    computes the terms of the loss beside the logits, and `compute_loss` finds them. Without a
    metric nobody reads the logits, and a compiled step leaves them out.
    """

    def train_step(self, *args: Any) -> Any:
        """One step of `fit`: on the loss given to `compile`, else on the model's own."""
        with self._step(args):
            return super().train_step(*args)

    def test_step(self, *args: Any) -> Any:
        """One step of `evaluate`: the loss that `train_step` trains, with dropout off."""
        with self._step(args):
            return super().test_step(*args)

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Tensor:
        """Returns the loss given to `compile`, or else the model's own.

        Args:
            x: the inputs.
            y: the targets.
            y_pred: the logits, of which a loss given to `compile` is made.
            sample_weight: None, or weights.
            training: whether to drop.
        """
        if self.loss is not None:
            return super().compute_loss(x, y, y_pred, sample_weight, training)
        step = _STEP.get()
        if step is not None and step.logits is y_pred and y_pred is not None:
            sums, weights = step.sums
        else:  # a training loop of the user's own, or a call that Keras computes again
            sums, weights, _ = self.own_loss((x, y, sample_weight), training)
        return self._loss(sums, weights)

    def step_logits(self, training: bool) -> Tensor | None:
        """Returns what a call within a step on the own loss returns; None for any other call."""
        step = _STEP.get()
        if step is None or step.model is not self:
            return None
        sums, weights, step.logits = self.own_loss(step.data, training)
        step.sums = sums, weights
        return step.logits

    @contextlib.contextmanager
    def _step(self, args: tuple) -> Iterator[None]:
        *_, data = args  # on JAX the values of the variables come first
        own = _Step(self, data) if self.loss is None else None
        token = _STEP.set(own)
        try:
            yield
        finally:
            _STEP.reset(token)

    def _loss(self, sums: LossTerms, weights: LossTerms) -> Tensor:
        """Returns this replica's share of the loss, by which Keras trains.

        With several replicas its value is the mean share: Keras reports it times their number.
        """
        replicas = backend.num_replicas()
        weights = LossTerms(*map(backend.replica_sum, weights))
        terms = [*means(sums, weights)]
        for penalty in self.losses:
            terms.append(heads.at_least_float32(penalty) / replicas)
        share = functools.reduce(operator.add, terms)
        if replicas == 1:
            return share
        mean = backend.replica_sum(share) / replicas
        return share + ops.stop_gradient(mean - share)


def next_tokens(
    name: str,
    targets: Tensor,
    ids_name: str,
    ids: Tensor,
) -> Tensor:
    """Returns targets as integers; their shape must be that of the ids."""
    return checks.with_shape(
        name,
        checks.integers(name, targets),
        checks.sizes(ids),
        f"of the shape of `{ids_name}`, the token after each of them: of a text, text[:, :-1] and "
        "text[:, 1:]",
    )


def begun(name: str, ids: Tensor) -> Tensor:
    """Returns ids `[B, T]`; T must be at least 1."""
    if ids.shape[1] == 0:
        raise ValueError(
            f"`{name}` must have at least one token a row. "
            f"Received: {name} of shape {tuple(ids.shape)}"
        )
    return ids


def where_valid(mask: Any, values: Tensor) -> Tensor:
    """Returns values with zeros at masked positions, so that nothing reads what padding holds."""
    if mask is None:
        return values
    return ops.where(ops.cast(mask, "bool"), values, 0)


def scored(
    model: Any,
    targets: Any,
    ids: Tensor,
    mask: Any,
    sample_weight: Any,
    names: tuple[str, str] = ("targets", "ids"),
) -> tuple[Tensor, Tensor]:
    """Returns the targets of a loss, 0 where they are not scored, and their weights.

    Args:
        model: the language model.
        targets: integers `[B, T]`.
        ids: `[B, T]`.
        mask: None, or booleans `[B, T]`.
        sample_weight: None, or weights `[B]` or `[B, T]`.
        names: what to call targets and ids in errors.

    Returns:
        the targets, and their weights in at least float32, both `[B, T]`.

    Raises:
        ValueError: targets or weights have another shape, or a target is outside of the vocabulary.
    """
    dtype = "float64" if model.compute_dtype == "float64" else "float32"
    targets = next_tokens(names[0], targets, names[1], ids)
    weights = _position_weights(sample_weight, ids, names[1], dtype)
    weights = where_valid(mask, weights)
    targets = where_valid(weights != 0, targets)
    return checks.within(names[0], targets, model.vocabulary_size), weights


def _position_weights(
    sample_weight: Any,
    ids: Tensor,
    ids_name: str,
    dtype: str,
) -> Tensor:
    """Returns how much each position counts, `[B, T]`."""
    rows, steps = checks.sizes(ids)
    ones = ops.ones([rows, steps], dtype)
    if sample_weight is None:
        return ones
    weights = ops.cast(backend.to_tensor(sample_weight), dtype)
    shape = backend.static_shape(weights)
    expected = f"of shape [B], or of that of `{ids_name}`, [B, T]"
    if shape is not None and len(shape) < 2:
        weights = checks.with_shape("sample_weight", weights, [rows], expected)
    if shape is None or len(shape) < 2:  # Keras makes one graph for all ranks
        weights = ops.reshape(weights, [rows, -1])
    columns = checks.sizes(weights)[1]
    if not isinstance(columns, int):
        columns = ops.where(columns == 1, 1, steps)
    elif columns != 1:
        columns = steps
    return ones * checks.with_shape("sample_weight", weights, [rows, columns], expected)
