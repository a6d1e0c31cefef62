"""What a text has beside the words that a vocabulary reads: capitals, blanks, and unknown words.

A model of words gives each word that it reads a probability. That is less than the text: `<unk>`
stands for a word that has to be spelled, `N` for digits, and a word in lower case for several
forms. `Remainder` gives the rest a probability, by what the training text has of it, so that both
together are a probability of the text itself, and compare with those of other vocabularies.
"""

import collections
import itertools
import math
import re
from collections.abc import Callable, Container, Hashable, Iterable, Sequence
from typing import NamedTuple

from trainers.data.vocabulary import EOS, UNKNOWN

_PART = re.compile(r"([^\S\n]*)(\n|\S+)")


class Part(NamedTuple):
    """A part of a text that a word stands for.

    Attributes:
        blank: the white space before it.
        text: the part without that.
        word: the word, or `<eos>` for a line break.
    """

    blank: str
    text: str
    word: str


Parts = Callable[[str], list[Part]]
"""Cuts a text that ends in a line break into parts, which are all of it."""


def split(text: str) -> list[Part]:
    """Returns the words of a text that is taken as it is."""
    return [
        Part(blank, found, EOS if found == "\n" else found)
        for blank, found in _PART.findall(text)
    ]


class Counts:
    """Probabilities of symbols after contexts, from the counts of a text.

    Of contexts c_0, c_1, ..., the later the narrower,

        P_k(s) = (n(c_k, s) + t(c_k) P_{k-1}(s)) / (n(c_k) + t(c_k)),

    where n counts symbols after a context, and t how many different ones there are; P_{-1} is
    given. Source: Witten and Bell (1991), method C, interpolated as by Chen and Goodman (1999),
    section 2.5.
    """

    def __init__(self) -> None:
        self._pairs: collections.Counter[Hashable] = collections.Counter()
        self._totals: collections.Counter[Hashable] = collections.Counter()
        self._types: collections.Counter[Hashable] = collections.Counter()

    def add(self, symbol: Hashable, contexts: Iterable[Hashable]) -> None:
        """Counts a symbol."""
        for context in contexts:
            self._pairs[context, symbol] += 1
            self._totals[context] += 1
            self._types[context] += self._pairs[context, symbol] == 1

    def log_probability(
        self, symbol: Hashable, contexts: Iterable[Hashable], given: float
    ) -> float:
        """Returns log P(s); `given` is log P_{-1}(s), of any size."""
        value = given
        for context in contexts:
            if not (total := self._totals[context]):
                break  # narrower ones are unknown too
            types, count = self._types[context], self._pairs[context, symbol]
            value += math.log(types)
            if count:
                value = math.log(count + math.exp(value))
            value -= math.log(total + types)
        return value


class Remainder:
    """The probability of a text's parts, given the words that a vocabulary reads of them.

    A blank depends on the word after it and the one before. A part is the word itself, or the word
    with a first capital, or in capitals, or else it is spelled: as one that this word has stood for
    in the training text, or by characters, each given three before it.

    Args:
        training: the parts of the training text.
        vocabulary: the words that are read; others read `<unk>`.
    """

    def __init__(self, training: Sequence[Part], vocabulary: Container[str]) -> None:
        self._vocabulary = vocabulary
        self._blanks, self._forms = Counts(), Counts()
        self._spelled, self._characters = Counts(), Counts()
        for text in {*(part.text for part in training), *(p.blank for p in training)}:
            for symbol, contexts in _characters(text):
                self._characters.add(symbol, contexts)
        for before, part in itertools.pairwise([_BEGIN, *training]):
            word, contexts = self._contexts(before, part)
            self._blanks.add(part.blank, contexts)
            form = _form(word, part.text)
            self._forms.add(form, contexts)
            if form == _SPELLED:
                self._spelled.add(part.text, [word])

    def nats(self, parts: Sequence[Part]) -> float:
        """Returns the negative log-probability of parts that begin a text."""
        pairs = itertools.pairwise([_BEGIN, *parts])
        return -sum(self._log_probability(before, part) for before, part in pairs)

    def _log_probability(self, before: Part, part: Part) -> float:
        word, contexts = self._contexts(before, part)
        spelled = self._spell(part.blank)
        value = self._blanks.log_probability(part.blank, contexts, spelled)
        form = _form(word, part.text)
        value += self._forms.log_probability(form, contexts, -math.log(_FORMS))
        if form == _SPELLED:
            spelled = self._spell(part.text)
            value += self._spelled.log_probability(part.text, [word], spelled)
        return value

    def _contexts(self, before: Part, part: Part) -> tuple[str, list[Hashable]]:
        """Returns the word that is read, and the contexts of its blank and its form."""
        last, word = self._read(before), self._read(part)
        return word, [(), (word,), (last, word)]

    def _read(self, part: Part) -> str:
        return part.word if part.word in self._vocabulary else UNKNOWN

    def _spell(self, text: str) -> float:
        given = -math.log(_ALPHABET)
        return sum(
            self._characters.log_probability(symbol, contexts, given)
            for symbol, contexts in _characters(text)
        )


_BEGIN = Part("", "\n", EOS)
_SAME, _CAPITAL, _CAPITALS, _SPELLED = range(4)
_FORMS = 4
_ALPHABET = 0x100 + 1  # bytes, and the end
_END = -1


def _form(word: str, text: str) -> int:
    """Returns how a part is made of its word."""
    if text == word or word == EOS:
        return _SAME
    if word != UNKNOWN:
        if text == word[:1].upper() + word[1:]:
            return _CAPITAL
        if text == word.upper():
            return _CAPITALS
    return _SPELLED


def _characters(text: str) -> Iterable[tuple[int, list[Hashable]]]:
    """Yields the bytes of a text, and its end, with up to three bytes before each."""
    symbols = [*text.encode(), _END]
    for place, symbol in enumerate(symbols):
        before = [tuple(symbols[max(place - n, 0) : place]) for n in range(4)]
        yield symbol, list(dict.fromkeys(before))
