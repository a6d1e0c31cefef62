"""The texts of tasks as they stand in print: where spaces go once words are put side by side.

Each function takes words that single spaces separate, in lines, and returns them with the spaces of
print. It changes no other character, but for WikiText's marks of signs within words. Where only a
reader would know whether a space belongs there, it stays.
"""

import re
from collections.abc import Iterator

_ENDINGS = r"(?<=\S) ('(?:s|t|re|ve|ll|d|m)?|n't)(?!\S)"
_CLOSING = frozenset(", . ; : :: ! ? % ) ] } )) ]] ))) }} …".split())
_OPENING = frozenset("( [ { (( [[ @ ~ ** $".split())
_QUOTES = frozenset(("'", '"'))
_DOUBLE = frozenset('"')
_EMPHASIS = "*"


def penn_treebank(text: str) -> str:
    """Attaches the endings that the corpus splits off, and the signs beside numbers."""
    text = re.sub(_ENDINGS, r"\1", text)
    text = re.sub(r"(?<!\S)(\S*[$#]) (?=N)", r"\1", text)
    return re.sub(r"(?<=N) %(?!\S)", "%", text)


def wikitext(text: str) -> str:
    """Attaches punctuation and endings; `@-@`, `@,@` and `@.@` become the signs in them."""
    text = re.sub(r" @([-,.])@ ", r"\1", text)
    text = re.sub(_ENDINGS, r"\1", text)
    return _in_lines(text, is_code=False)


def pydoc(text: str) -> str:
    """Attaches punctuation; between quotes, dots and brackets stand as in a program."""
    return _in_lines(re.sub(r"(?<!\S):: =(?!\S)", "::=", text), is_code=True)


def _in_lines(text: str, *, is_code: bool) -> str:
    lines = (_with_spaces(line.split(" "), is_code) for line in text.split("\n"))
    return "\n".join("".join(line) for line in lines)


def _with_spaces(words: list[str], is_code: bool) -> Iterator[str]:
    """Yields the words of a line, and a space before each that is not attached to the last."""
    paired = _QUOTES | {_EMPHASIS} if is_code else _DOUBLE
    is_open: set[str] = set()
    before, attaches = "", True
    for index, word in enumerate(words):
        is_bullet = word == _EMPHASIS and index == 0
        is_pair = word in paired and not is_bullet
        closes = is_pair and word in is_open
        if is_pair:
            is_open ^= {word}
        is_attached = attaches or closes or word in _CLOSING
        if is_code:
            is_quoted = bool(is_open & _QUOTES)
            is_attached |= word == "/" or _is_program_part(before, word, is_quoted)
        if not is_attached:
            yield " "
        yield word
        opens = is_pair and not closes
        attaches = opens or word in _OPENING or (is_code and word == "/")
        before = word


def _is_program_part(before: str, word: str, is_quoted: bool) -> bool:
    """Returns whether a word belongs to the one before, as in `f(`, `x[` and `object.__init__`."""
    if word in ("(", "["):
        is_name = re.fullmatch(r"\w+|[)\]]+", before) is not None
        return is_name and (is_quoted or "_" in before)
    return before == "." and (is_quoted or word.startswith("_"))
