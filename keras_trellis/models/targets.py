"""The targets of a language model and their weights, checked."""

from __future__ import annotations

from typing import Any

from keras import ops

from keras_trellis.backend import current as backend
from keras_trellis.core import checks
from keras_trellis.types import Tensor


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
