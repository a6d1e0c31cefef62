"""Requests to signatures, as dictionaries of arrays, and what comes back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

Arrays = dict[str, np.ndarray]
SIGNATURES = (
    "serving_default",
    "tokenize",
    "detokenize",
    "score_v2",
    "score_ids_v2",
    "prefill_v2",
    "step_v2",
    "generate_v2",
)
"""Those of a language model; `serve` is `serving_default` once more."""


class Served:
    """A version of an exported model, as `tf.saved_model.load` loads it."""

    def __init__(self, folder: Any) -> None:
        self._loaded = tf.saved_model.load(str(folder))
        self._signatures = self._loaded.signatures

    def __call__(self, signature: str, request: Mapping[str, Any]) -> Arrays:
        """Calls a signature with its inputs, cast to their dtypes; by default no alternatives."""
        function = self._signatures[signature]
        specs = function.structured_input_signature[1]
        if "alternatives" in specs and "alternatives" not in request:
            rows = len(next(iter(request.values())))
            request = {**request, "alternatives": np.zeros([rows])}
        tensors = {
            name: tf.constant(request[name], specs[name].dtype) for name in specs
        }
        return {name: value.numpy() for name, value in function(**tensors).items()}

    def signatures(self) -> list[str]:
        """Returns the signatures' names."""
        return list(self._signatures)

    def inputs(self, signature: str) -> dict[str, tf.TensorSpec]:
        """Returns the shapes and dtypes of a signature's inputs, by name."""
        return self._signatures[signature].structured_input_signature[1]

    def no_text(self, rows: int, signature: str = "prefill_v2") -> Arrays:
        """Returns the cache of no text: what `prefill` returns of empty prompts."""
        empty = {"ids": np.zeros([rows, 0]), "lengths": np.zeros([rows])}
        return cache_of(self(signature, empty))


def cache_of(answer: Mapping[str, np.ndarray]) -> Arrays:
    """Returns the tensors of an answer that are a cache."""
    return {name: value for name, value in answer.items() if name.startswith("cache_")}


def ragged(rows: list[list[int]], width: int | None = None) -> Arrays:
    """Returns ids and lengths, with an id that is none after each row's end."""
    lengths = [len(row) for row in rows]
    ids = np.full([len(rows), max([*lengths, width or 0])], -7)
    for row, values in zip(ids, rows, strict=True):
        row[: len(values)] = values
    return {"ids": ids, "lengths": np.array(lengths, int)}


def sampling(rows: int, **settings: Any) -> Arrays:
    """Returns the settings of `generate_v2`: those given, one for all rows or one a row.

    `stop` and `stop_ids` are lists of a list a row.
    """
    usual = {
        "temperature": 1,
        "top_k": 0,
        "top_p": 1,
        "seed": 1,
        "max_length": 4,
        "alternatives": 0,
    }
    stops = {"stop": [[""]] * rows, "stop_ids": [[-1]] * rows}
    stops |= {name: settings.pop(name) for name in stops if name in settings}
    forbidden = np.atleast_1d(settings.pop("forbidden_ids", -2))  # `[F]` or `[rows, F]`
    values = {
        name: np.broadcast_to(value, [rows])
        for name, value in {**usual, **settings}.items()
    }
    return {
        **values,
        "forbidden_ids": np.broadcast_to(forbidden, [rows, forbidden.shape[-1]]),
        "stop": np.array(stops["stop"], object),
        "stop_ids": np.array(stops["stop_ids"]),
    }


def rows_of(request: Mapping[str, np.ndarray], rows: Any) -> Arrays:
    """Returns some rows of a request, or of an answer."""
    return {name: value[rows] for name, value in request.items()}


def assert_row(
    actual: Mapping[str, Any], expected: Mapping[str, Any], tolerance=1e-5
) -> None:
    """Asserts that two answers to one row are the same but for padding, which either may have."""
    assert actual.keys() == expected.keys()
    for name in expected:
        got, value = np.atleast_1d(actual[name]), np.atleast_1d(expected[name])
        both = tuple(map(slice, np.minimum(got.shape, value.shape)))
        for padded in (got, value):
            beyond = np.ones(padded.shape, bool)
            beyond[both] = False
            assert {*padded[beyond].flat} <= {0, -1, b""}, name
        got, value = got[both], value[both]
        if value.dtype.kind == "f":
            assert_allclose(got, value, rtol=tolerance, atol=tolerance, err_msg=name)
        else:
            assert_array_equal(got, value, err_msg=name)
