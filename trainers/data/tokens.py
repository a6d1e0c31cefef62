"""Text to tokens: one definition for training and for exported models.

A *standardizer* makes any text like a task's own, which is then cut into words or characters.
The regular expressions are RE2's. They have no back-references, so a run of punctuation takes one
expression for each sign. They have no look-around, so white space is doubled between neighbours.
A run of one sign is one token if the sign is in Latin-1 or in the block General Punctuation, or is
U+FEFF or U+FFFD. Each other sign is one token.
"""

import functools
import re
from collections.abc import Callable

from keras_trellis.formats.standardizer import BLANKS, Standardizer
from trainers.data.plain import Part
from trainers.data.vocabulary import EOS

Tokens = Callable[[str], list[str]]
"""A text to its tokens."""

_SIGNS = map(chr, [*range(0x100), *range(0x2010, 0x205F), 0xFEFF, 0xFFFD])
_RUNS = "|".join(
    rf"\x{{{ord(sign):x}}}+"
    for sign in _SIGNS
    if not (sign.isalnum() or sign.isspace() or sign == "_")
)
# Python's [^\W\d] and \w.
_LETTER, _WORD = r"[\p{L}\p{Nl}\p{No}_]", r"[\p{L}\p{N}_]"
_NUMBER = rf"\p{{Nd}}+(?:\.\p{{Nd}}+)*{_WORD}*"
_PYDOC_TOKEN = (
    rf"{_LETTER}{_WORD}*(?:['-][a-z]+)*|{_NUMBER}|{_RUNS}|[^\s\p{{L}}\p{{N}}_]"
)
_QUOTES = str.maketrans("‘’“”", "''\"\"")
# White space as spaces and line breaks, enough that no two words share one.
_APART = (
    ("replace", rf"[{BLANKS}]", "  "),
    ("replace", r"\n", " \n "),
    ("replace", "^", " "),
    ("replace", "$", " "),
)
_PENN_TREEBANK = (
    *_APART,
    ("replace", r"(\s)N(\s)", r"\1 0 \2"),
    ("lower",),
    ("replace", r"(\s)[+-]?\p{Nd}[\p{Nd}.,]*(\s)", r"\1N\2"),
)

penn_treebank = Standardizer(*_PENN_TREEBANK)
"""Writes words in lower case and numbers as `N`, and leaves the rest as it is.

The corpus has no punctuation, and it writes "do n't" and "company 's" as two words each.
"""

penn_treebank_characters = Standardizer(
    *_PENN_TREEBANK,
    ("replace", r"[\t\f\r ]+", " "),
    ("replace", " ?\n ?", "\n"),
    ("replace", "^ | $", ""),
)
"""Like `penn_treebank`, with one space between words and none at the ends of lines."""

pydoc = Standardizer(
    ("replace", "[‘’]", "'"),
    ("replace", "[“”]", '"'),
    ("lower",),
    ("replace", f"({_PYDOC_TOKEN})", r" \1 "),
    *_APART,
    ("replace", rf"(\s){_NUMBER}(\s)", r"\1N\2"),
)
"""Writes words in lower case and numbers as `N`, and puts spaces around punctuation."""

latin1 = Standardizer(("latin1",))
"""Turns each byte into the character of Latin-1 that has its number."""


def split_words(text: str) -> list[str]:
    """Splits a text at white space; the end of each line, also of a blank one, is `<eos>`."""
    return text.replace("\n", f" {EOS} ").split()


def split_characters(text: str) -> list[str]:
    """Splits a text in characters, spaces among them; the end of each line is `<eos>`."""
    return [EOS if character == "\n" else character for character in text]


def pydoc_parts(text: str) -> list[Part]:
    """Returns the parts of a text that the words of `pydoc` stand for."""
    # A character whose lower case is two has another place there, and stays.
    ready = "".join(
        lower if len(lower := character.lower()) == 1 else character
        for character in text.translate(_QUOTES)
    )
    parts, begin = [], 0
    for match in _python_tokens()[0].finditer(ready):
        word = match[0]
        if word == "\n":
            word = EOS
        elif _python_tokens()[1].fullmatch(word):
            word = "N"
        blank = text[begin : match.start()]
        part = text[match.start() : match.end()]
        parts.append(Part(blank, part, word))
        begin = match.end()
    return parts


@functools.cache
def _python_tokens() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Returns the expressions of a word or a line break, and of a number, in Python."""
    patterns = Standardizer(
        ("replace", rf"{_PYDOC_TOKEN}|\n", ""), ("replace", _NUMBER, "")
    ).portable()
    word, number = (re.compile(pattern) for _, pattern, _ in patterns)
    return word, number
