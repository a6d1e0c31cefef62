"""A number that tells models apart, so that a cache goes to the model that made it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

_BITS = 52  # JSON's numbers hold so many in every language


def fingerprint(model: keras.Model, vocabulary: Sequence[str]) -> int:
    """Returns a number that depends on all that a model computes by, not on the names in it.

    Args:
        model: the model, as `inference_model` returns it.
        vocabulary: its tokens, or labels.
    """
    digest = hashlib.sha256()
    config = _without_names(model.get_config())
    described = [type(model).__name__, config, list(vocabulary)]
    digest.update(json.dumps(described, sort_keys=True, default=str).encode())
    for weight in model.weights:
        values = np.asarray(weight)
        digest.update(f"{values.shape}{values.dtype}".encode())
        digest.update(np.ascontiguousarray(values).tobytes())
    return int.from_bytes(digest.digest()[:8], "big") >> (64 - _BITS)


def _without_names(config: Any) -> Any:
    """Returns a config without the names and the numbers that Keras gives to what it makes."""
    if isinstance(config, dict):
        left_out = ("name", "shared_object_id", "seed")
        items = ((key, value) for key, value in config.items() if key not in left_out)
        return {key: _without_names(value) for key, value in items}
    if isinstance(config, (list, tuple)):
        return [_without_names(value) for value in config]
    return config
