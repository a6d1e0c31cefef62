r"""The texts of tasks as they stand in print: where spaces go once words are put side by side.

Each `Standardizer` takes words that single spaces separate, in lines, and makes of them a text with
the spaces of print. It changes no other character, but for WikiText's marks of signs within words.
Where only a reader would know whether a space belongs there, it stays. What a word gets before it
depends on the words before it alone, so that a text may be written word by word.

A gap between two words has two halves, the first word's and the second's. Rules make tabs of those
halves with which a word is attached; a gap is a space in the end if neither half is a tab. So rules
for two neighbours do not meet, since the expressions are RE2's, which have no look-around.
"""

import re

from keras_trellis.formats.standardizer import Standardizer

_Rule = tuple[str, ...]

_HALVES: tuple[_Rule, ...] = (
    ("replace", " ", "  "),
    ("replace", "\n", " \n "),
    ("replace", "^", " "),
    ("replace", "$", " "),
)
# A bullet's half, which no rule for its sign takes for that of a word.
_BULLETS: _Rule = ("replace", r"(^|\n) \* ", "\\1 *\r")
_GAPS: tuple[_Rule, ...] = (
    ("replace", r"\r", " "),
    ("replace", r"^[\t ]|[\t ]$", ""),
    ("replace", r"[\t ]\n[\t ]", "\n"),
    ("replace", r"\t[\t ]| \t", ""),
    ("replace", "  ", " "),
)


def _closing(words: str) -> _Rule:
    """Returns the rule for words that are attached to those before them."""
    return ("replace", f" ({words}) ", "\t\\1 ")


def _opening(words: str) -> _Rule:
    """Returns the rule for words to which those after them are attached."""
    return ("replace", f" ({words}) ", " \\1\t")


def _joining(first: str, second: str) -> _Rule:
    """Returns the rule for the end of a word and the beginning of the next, which it attaches."""
    return ("replace", f"({first})  ({second})", "\\1\t\t\\2")


def _paired(sign: str) -> tuple[_Rule, ...]:
    """Returns the rules for a sign that opens and closes in turn, as often as it is in a line."""
    pattern = re.escape(sign)
    return (
        ("replace", rf" {pattern} ([^\n]*?) {pattern} ", f" {sign}\t\\1\t{sign} "),
        ("replace", f" {pattern} ", f" {sign}\t"),  # one that nothing closes
    )


def _quoted_program(quote: str) -> tuple[_Rule, ...]:
    """Returns the rules for one bracket and one dot of a program in each pair of quotes."""
    begin = rf" {quote}\t[^{quote}\n]*?[\t ]"
    return (
        _joining(rf"{begin}(?:[0-9A-Za-z_]+|[)\]]+)", r"[(\[]"),
        _joining(rf"{begin}\.", r"[^\t\n ]"),
    )


_ENDINGS = _closing("'(?:s|t|re|ve|ll|d|m)?|n't")
_PUNCTUATION = (
    _closing(r"[,.;:!?%)\]}…]|\)\)|\]\]|\)\)\)|\}\}"),
    _opening(r"[(\[{@~$]|\(\(|\[\[|\*\*"),
)
_QUOTES = ('"', "'")

penn_treebank = Standardizer(
    *_HALVES,
    _ENDINGS,
    _joining("[$#]", "N"),
    ("replace", "N  % ", "N\t\t% "),
    *_GAPS,
)
"""Attaches the endings that the corpus splits off, and the signs beside numbers."""

wikitext = Standardizer(
    *_HALVES,
    ("replace", " @([-,.])@ ", "\t\\1\t"),
    _ENDINGS,
    *_PUNCTUATION,
    _closing("::"),
    *_paired('"'),
    *_GAPS,
)
"""Attaches punctuation and endings; `@-@`, `@,@` and `@.@` become the signs in them."""

pydoc = Standardizer(
    *_HALVES,
    _BULLETS,
    _joining(" ::", "= "),
    *_PUNCTUATION,
    ("replace", " / ", "\t/\t"),
    *(rule for sign in (*_QUOTES, "*") for rule in _paired(sign)),
    _joining(r"[\t ][0-9A-Za-z_]*_[0-9A-Za-z_]*", r"[(\[]"),
    _joining(r"[\t ]\.", "_"),
    # An expression changes one place of each quotation.
    *(rule for quote in _QUOTES for rule in 4 * _quoted_program(quote)),
    *_GAPS,
)
"""Attaches punctuation; between quotes, dots and brackets stand as in a program."""
