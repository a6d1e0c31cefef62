"""What a request to a language model must hold; what cannot be right is a ValueError."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_trellis.formats.checks import require, requirement
from keras_trellis.formats.limits import MOST_STOP_BYTES
from keras_trellis.formats.sampling import Sampling

# In `forbidden_ids`, beside ids of the vocabulary.
_UNKNOWN, _NOTHING = -1, -2
_INT64 = 2**63
_LARGEST = np.finfo(np.float32).max
# Of the settings that a request may leave out.
_USUAL: dict[str, Any] = {
    "temperature": 1.0,
    "top_k": 0,
    "top_p": 1.0,
    "stop_ids": (),
    "stop": (),
    "forbidden_ids": (),
    "alternatives": 0,
}


class Settings(NamedTuple):
    """How a row is continued.

    Attributes:
        sampling: how a token is chosen, with one value of each kind.
        max_length: how many tokens to add.
        addends: `[V]`, minus infinity for what is not written and 0 for the rest; None: all 0.
        stop_ids: tokens that end the row; negative ones stand for none.
        stop: the texts that end it.
        alternatives: how many of the most probable tokens to return in the place of each.
    """

    sampling: Sampling
    max_length: int
    addends: np.ndarray | None
    stop_ids: frozenset[int]
    stop: list[str]
    alternatives: int


class Vocabulary:
    """Checks requests against a vocabulary.

    Args:
        size: the number of tokens, V.
        unknown_id: the id of `<unk>`; None if there is none.
    """

    def __init__(self, size: int, unknown_id: int | None) -> None:
        self.size = size
        self._unknown_id = _NOTHING if unknown_id is None else unknown_id

    def tokens(self, name: str, ids: Any, least: int = 0) -> np.ndarray:
        """Returns ids, which must be in the vocabulary, or from `least` on."""
        given = _integers(name, ids)
        begin = "" if least == 0 else f"{least} or "
        expected = f"{begin}in [0, {self.size}), the vocabulary"
        require(name, given, (given >= least) & (given < self.size), expected)
        return given.astype(np.int32)

    def rows(
        self, ids: Any, lengths: Any, least: int, most: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns ids `[B, T]` with 0 after each row's end, and lengths `[B]`.

        Args:
            ids: the ids; anything may stand after a row's end.
            lengths: how many of each row count, at least `least`.
            least: see `lengths`.
            most: how many tokens a row may have; None: any number.
        """
        ids = _integers("ids", ids)
        if ids.ndim != 2:
            raise ValueError(
                f"`ids` must be of shape [B, T]. Received: {list(ids.shape)}"
            )
        rows, columns = ids.shape
        if most is not None and columns > most:
            raise ValueError(
                f"`ids` must be prompts of at most {most} tokens. Received: {columns}"
            )
        lengths = _integers("lengths", lengths)
        _require_rows("lengths", lengths, rows)
        expected = f"from {least} to the number of columns of `ids`"
        require("lengths", lengths, (lengths >= least) & (lengths <= columns), expected)
        ids = np.where(np.arange(columns) < lengths[:, None], ids, 0)
        return self.tokens("ids", ids), lengths.astype(np.int32)

    def alternatives(
        self, value: Any, rows: int, name: str = "alternatives"
    ) -> np.ndarray:
        """Returns how many of the most probable tokens each row asks for, at most V."""
        values = _per_row(name, value, rows)
        require(name, values, *requirement("alternatives", values, self.size))
        counts: np.ndarray = np.minimum(values, self.size)
        return counts

    def settings(self, rows: int, **given: Any) -> list[Settings]:
        """Returns how to continue each of so many rows; see `LanguageModel.generate`."""
        given = {**_USUAL, **given}

        def checked(name: str, values: np.ndarray) -> np.ndarray:
            require(name, values, *requirement(name, values, self.size))
            return values

        def number(name: str, kinds: str = "iu") -> np.ndarray:
            return checked(name, _per_row(name, given[name], rows, kinds))

        def ids(name: str) -> np.ndarray:
            return checked(name, _matrix(name, given[name], rows))

        max_length, stop_ids = number("max_length"), ids("stop_ids")
        temperature = np.minimum(number("temperature", "iuf"), _LARGEST)
        top_k, top_p = number("top_k"), number("top_p", "iuf")
        sampling = zip(
            # An infinite divisor would make NaN of minus infinity.
            temperature.astype(np.float32),
            np.where(top_k == 0, self.size, np.minimum(top_k, self.size)),
            top_p.astype(np.float32),
            _per_row("seed", given["seed"], rows),
            strict=True,
        )
        columns = zip(
            itertools.starmap(Sampling, sampling),
            max_length.tolist(),
            self._addends(ids("forbidden_ids")),
            map(frozenset, stop_ids.tolist()),
            _stop_texts(given["stop"], rows),
            self.alternatives(given["alternatives"], rows).tolist(),
            strict=True,
        )
        return [*itertools.starmap(Settings, columns)]

    def _addends(self, ids: np.ndarray) -> Sequence[np.ndarray | None]:
        ids = np.where(ids == _UNKNOWN, self._unknown_id, ids)
        if not (ids >= 0).any():
            return [None] * len(ids)
        addends = np.zeros([len(ids), self.size], np.float32)
        row, _ = np.nonzero(ids >= 0)
        addends[row, ids[ids >= 0]] = -np.inf
        if np.isinf(addends).all(axis=1).any():
            raise ValueError(
                f"`forbidden_ids` must be less than all {self.size} tokens"
            )
        return [*addends]


def _integers(name: str, value: Any, kinds: str = "iu") -> np.ndarray:
    """Returns numbers as int64, or as float64 where `kinds` has floats."""
    try:
        values = np.asarray(value)
    except ValueError:
        values = np.asarray(None)
    if values.size == 0 and values.dtype.kind == "f":
        values = values.astype(np.int64)  # NumPy takes an empty list for floats
    if values.dtype.kind not in kinds:
        what = "numbers" if "f" in kinds else "integers of 64 bits"
        raise ValueError(f"`{name}` must be {what}. Received: {value!r}")
    if "f" in kinds:
        return values.astype(np.float64)
    if values.dtype.kind == "u" and values.size and values.max() >= _INT64:
        raise ValueError(
            f"`{name}` must be integers of 64 bits. Received: {values.max()}"
        )
    return values.astype(np.int64)


def _per_row(name: str, value: Any, rows: int, kinds: str = "iu") -> np.ndarray:
    """Returns a number for each row, from one for all or one for each."""
    values = _integers(name, value, kinds)
    if values.ndim == 0:
        return np.full(rows, values)
    _require_rows(name, values, rows)
    return values


def _matrix(name: str, value: Any, rows: int) -> np.ndarray:
    """Returns integers `[B, F]`, from `[F]` for all rows or `[B, F]`."""
    values = _integers(name, value)
    if values.ndim < 2:
        values = np.broadcast_to(np.ravel(values), [rows, values.size])
    if values.ndim != 2 or len(values) != rows:
        raise ValueError(
            f"`{name}` must be of shape [F], or [{rows}, F] with a row for each row of `ids`. "
            f"Received: {list(values.shape)}"
        )
    return values


def _stop_texts(value: Any, rows: int) -> list[list[str]]:
    """Returns the stop texts of each row, without empty ones."""
    texts: Any = [value] if isinstance(value, str) else list(value)
    if all(isinstance(text, str) for text in texts):
        texts = [texts] * rows
    if len(texts) != rows or isinstance(texts[0] if texts else [], str):
        raise ValueError(
            f"`stop` must be texts, or a list of texts for each of the {rows} rows. "
            f"Received: {value!r}"
        )
    for text in itertools.chain.from_iterable(texts):
        if not isinstance(text, str) or len(text.encode()) > MOST_STOP_BYTES:
            raise ValueError(
                f"`stop` must be texts of at most {MOST_STOP_BYTES} bytes. Received: {text!r}"
            )
    return [[text for text in row if text] for row in texts]


def _require_rows(name: str, values: np.ndarray, rows: int) -> None:
    if values.shape != (rows,):
        raise ValueError(
            f"`{name}` must have one value for each of the {rows} rows of `ids`. Received: shape "
            f"{list(values.shape)}"
        )
