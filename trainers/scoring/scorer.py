"""The scores of documents, in batches of like lengths."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from trainers.data.stores import one_line
from trainers.kinds.measures import perplexity
from trainers.serving.exported import ExportedModel

_NEEDED = ("tokenize", "score_ids_v2")
# Of a batch. More rows are no faster on a CPU; the tokens bound the memory.
_ROWS, _TOKENS = 32, 2**20
_CHUNK = 128  # tokens that an export reads at once
_LIKE = 1.1  # how much longer than its shortest text the longest of a batch may be
# What no document is to blame for.
_MACHINE_ERRORS = (MemoryError, OSError, tf.errors.ResourceExhaustedError)


class ModelError(Exception):
    """The model cannot be loaded, or fails whatever it reads."""


class Scores(NamedTuple):
    """How probable a document is; each token is scored given a line break and those before it.

    Attributes:
        tokens: the number of tokens.
        nats: the negative log-likelihood of all tokens.
        perplexity: of the tokens; None if there are none.
        unknown_share: the share of tokens that the vocabulary does not have, from 0 to 1; None if
            there are none.
    """

    tokens: int
    nats: float
    perplexity: float | None
    unknown_share: float | None

    @property
    def is_empty(self) -> bool:
        """Whether there are no tokens."""
        return not self.tokens


class _Encoded(NamedTuple):
    """A text as the model reads it: ids `[T]`, the line break first, and its unknown tokens."""

    ids: np.ndarray
    unknown: int


class Scorer:
    """Scores documents under an exported language model.

    A document is read from its first token to its last one with the exact cache, however long it
    is. Its scores are the same to 1e-5 whatever the others are.

    Args:
        version: the folder of a version of the model.

    Raises:
        ValueError: the folder has no language model.
    """

    def __init__(self, version: str) -> None:
        self._model = ExportedModel(version, _NEEDED)
        self._begin = self._model("tokenize", text=["\n"])["ids"][0]

    def __call__(self, texts: Sequence[str]) -> list[Scores | ValueError]:
        """Returns the scores of each text, or the error that says why it has none.

        Raises:
            ModelError: the model fails whatever it reads.
            OSError, MemoryError, tf.errors.ResourceExhaustedError: no document is to blame.
        """
        try:
            return self._together(texts)
        except _MACHINE_ERRORS:
            raise
        except Exception as error:
            if len(texts) == 1:
                self._check_sound(error)
                return [ValueError(f"it cannot be scored: {one_line(error)}")]
        return [score for text in texts for score in self([text])]

    def _together(self, texts: Sequence[str]) -> list[Scores | ValueError]:
        encoded = self._encode(texts)
        scores: list[Any] = [*encoded]  # errors stay
        places = {
            place: entry
            for place, entry in enumerate(encoded)
            if isinstance(entry, _Encoded)
        }
        for batch in _batches({at: len(entry.ids) for at, entry in places.items()}):
            batch_scores = self._score([places[place] for place in batch])
            for place, score in zip(batch, batch_scores, strict=True):
                scores[place] = score
        return scores

    def _encode(self, texts: Sequence[str]) -> list[_Encoded | ValueError]:
        """Returns texts as the model reads them; each alone if it refuses one of several."""
        try:
            answer = self._model("tokenize", text=texts)
        except ValueError as error:
            if len(texts) == 1:
                return [error]
            return [entry for text in texts for entry in self._encode([text])]
        rows = zip(answer["ids"], answer["lengths"], answer["unknown"], strict=True)
        return [
            _Encoded(np.append(self._begin, ids[:length]), int(unknown))
            for ids, length, unknown in rows
        ]

    def _check_sound(self, error: Exception) -> None:
        """Raises ModelError if the model scores not even a line break, which is always a token."""
        row = [*self._begin, *self._begin]
        try:
            self._totals([row], [len(row)])
        except _MACHINE_ERRORS:
            raise
        except Exception:
            raise ModelError(f"the model fails: {one_line(error)}") from error

    def _score(self, rows: Sequence[_Encoded]) -> list[Scores | ValueError]:
        lengths = [len(row.ids) for row in rows]
        ids = np.zeros([len(rows), _width(max(lengths))], np.int32)
        for padded, row in zip(ids, rows, strict=True):
            padded[: len(row.ids)] = row.ids
        totals = self._totals(ids, lengths)
        return [
            _scores(float(nats), row) for nats, row in zip(totals, rows, strict=True)
        ]

    def _totals(self, ids: Any, lengths: Sequence[int]) -> np.ndarray:
        """Returns the nats of each row of ids."""
        none = [0] * len(lengths)
        answer = self._model(
            "score_ids_v2", ids=ids, lengths=lengths, alternatives=none
        )
        return answer["total"]


def _batches(lengths: dict[int, int]) -> Iterator[list[int]]:
    """Yields the places of texts in batches, from the shortest to the longest."""
    batch: list[int] = []
    for place in sorted(lengths, key=lambda place: lengths[place]):
        length = lengths[place]
        if batch and (
            len(batch) == _ROWS
            or (len(batch) + 1) * length > _TOKENS
            or length > _LIKE * lengths[batch[0]] + 4
        ):
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


def _width(length: int) -> int:
    """Returns the columns of a batch: a multiple of 8 in each chunk that the model reads.

    TensorFlow keeps a compiled product for each shape that it has met: few shapes, flat memory.
    """
    step = 8 * -(-length // _CHUNK)
    return -(-length // step) * step


def _scores(nats: float, row: _Encoded) -> Scores | ValueError:
    tokens = len(row.ids) - 1
    if not tokens:
        return Scores(0, 0.0, None, None)
    if not np.isfinite(perplexity(nats / tokens)):
        return ValueError(f"its score is not finite: {nats} nats")
    return Scores(
        tokens=tokens,
        nats=nats,
        perplexity=perplexity(nats / tokens),
        unknown_share=row.unknown / tokens,
    )
