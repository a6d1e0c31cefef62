"""Numbers of a text by which models of different tokens compare.

Bits a byte and perplexity a word are those of the text as it is. A model of words reads less than
that: what it does not read is charged by `trainers.data.plain`. A model of pieces reads all of it.
"""

import functools
from collections.abc import Mapping
from typing import NamedTuple

from trainers.data.pieces import PieceVocabulary
from trainers.data.plain import Parts, Remainder
from trainers.kinds.measures import (
    BITS_PER_BYTE,
    WORD_PERPLEXITY,
    Number,
    bits,
    perplexity,
)
from trainers.language.corpora import Corpus
from trainers.language.evaluation import Score
from trainers.language.tasks.task import LanguageTask

_LEARNED = 2**23  # bytes of the training text, by which a remainder is charged


class Extent(NamedTuple):
    """What the scored tokens of a text stand for, all but the first.

    Attributes:
        size: bytes.
        words: words and ends of lines.
        nats: the negative log-probability of what the tokens leave out.
    """

    size: int
    words: int
    nats: float


class Compared:
    """Completes the scores of a corpus's splits by `measures.COMPARED`.

    Args:
        task: the task, with the tokens of its config.
        corpus: the corpus.
    """

    def __init__(self, task: LanguageTask, corpus: Corpus) -> None:
        self._cut = task.text_parts()
        self._corpus = corpus

    def complete(self, split: str, scores: Mapping[str, Score]) -> dict[str, Score]:
        """Returns scores of a split by protocol, with more numbers beside them.

        `trellisnet` leaves some tokens out, so that there are none beside it.
        """
        completed = dict(scores)
        whole = [protocol for protocol in scores if protocol != "trellisnet"]
        if self._cut is not None and whole:
            extent = self._extent(self._cut, split)
            for protocol in whole:
                score = scores[protocol]
                numbers = {**score.metrics, **_numbers(extent, score.nll)}
                completed[protocol] = score._replace(metrics=numbers)
        return completed

    def _extent(self, cut: Parts, split: str) -> Extent:
        text = self._corpus.source.read_plain(split)
        parts, vocabulary = cut(text), self._corpus.vocabulary
        if isinstance(vocabulary, PieceVocabulary):
            first = vocabulary.pieces[getattr(self._corpus, split)[0]]
            return Extent(len(text.encode()) - len(first), len(parts) - 1, 0.0)
        first = parts[0].blank + parts[0].text
        nats = self._remainder.nats(parts) - self._remainder.nats(parts[:1])
        size = len(text.encode()) - len(first.encode())
        return Extent(size, len(parts) - 1, nats)

    @functools.cached_property
    def _remainder(self) -> Remainder:
        assert self._cut is not None
        text = self._corpus.source.read_plain("train", _LEARNED)
        return Remainder(self._cut(text), {*self._corpus.vocabulary.tokens})


def _numbers(extent: Extent, nats: float) -> dict[Number, float]:
    nats += extent.nats
    return {
        BITS_PER_BYTE: bits(nats / extent.size),
        WORD_PERPLEXITY: perplexity(nats / extent.words),
    }
