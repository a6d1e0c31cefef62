"""Names of the tensors of a nest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import keras

from keras_trellis.types import Tensor


def named(name: str, nest: Any) -> dict[str, Tensor]:
    """Returns the tensors of a nest by their places in it, in the order of `keras.tree.flatten`.

    Args:
        name: what all names begin with.
        nest: a nest; the fields of a named tuple and the keys of a mapping are parts of names.
    """
    if not keras.tree.is_nested(nest):
        return {name: nest}
    parts: Iterable[tuple[Any, Any]] = enumerate(nest)
    if hasattr(nest, "_asdict"):  # a NamedTuple
        parts = nest._asdict().items()
    elif isinstance(nest, Mapping):
        parts = sorted(nest.items())
    tensors: dict[str, Tensor] = {}
    for key, part in parts:
        tensors |= named(f"{name}_{key}", part)
    return tensors
