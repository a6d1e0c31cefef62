"""Operations that make a text ready, as values: Python runs them here, and a graph in an export."""

from __future__ import annotations

import functools
import re
import sys
import unicodedata
from collections.abc import Callable, Sequence

from keras_trellis.formats.operations import compose

ASCII_BLANKS = r"\t\f\r \x0b"
BLANKS = (
    rf"{ASCII_BLANKS}\x1c-\x1f\x{{85}}\x{{a0}}\x{{1680}}\x{{2000}}-\x{{200a}}"
    r"\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}"
)
"""The white space of Python's `str.split` but the line break, as in a character class of RE2.

RE2's own class has ASCII alone; a server must split as training did.
"""

_OPERATIONS = {"lower": 0, "latin1": 0, "replace": 2}  # with their numbers of arguments
_SURROGATES = range(0xD800, 0xE000)
_CLASSES = {"s": r"\t\n\f\r ", "d": "0-9", "w": "0-9A-Za-z_"}
_ESCAPES = (
    "tnfrvax0123456789"  # letters and digits after a backslash that Python reads alike
)
_PART = re.compile(
    r"\\p\{(?P<category>\w+)\}|\\x\{(?P<number>[0-9a-f]+)\}|\\(?P<escaped>.)|(?P<plain>.)",
    re.DOTALL,
)


class Standardizer:
    r"""Makes texts ready by operations, one after the other, without TensorFlow.

        lower = Standardizer(["lower"], ["replace", r"\p{Nd}+", "N"])

    Args:
        *operations: each `["lower"]`; `["latin1"]`, by which each byte becomes the character of
            Latin-1 that has its number; or `["replace", pattern, replacement]`, for all matches of
            a pattern of RE2.

    Attributes:
        operations: the same.

    Raises:
        ValueError: an operation is none of these, or has a pattern that Python has no form of.
    """

    def __init__(self, *operations: Sequence[str]) -> None:
        for operation in operations:
            _check(operation)
        self.operations = operations

    def apply(self, text: str) -> str:
        """Returns a text made ready."""
        return self._function(text)

    @functools.cached_property
    def _function(self) -> Callable[[str], str]:
        return compose(self.portable())

    def portable(self) -> list[list[str]]:
        """Returns the operations with patterns of Python, as `tokenizer.json` has them."""
        operations = []
        for name, *arguments in self.operations:
            if name == "replace":
                arguments[0] = _python_pattern(arguments[0], self.category)
            operations.append([name, *arguments])
        return operations

    @staticmethod
    def category(name: str) -> str:
        """Returns the characters of a category of Unicode, as Python knows it, for a class."""
        return _category(name)


def ranges(characters: Sequence[int]) -> str:
    """Returns characters, given by their ascending numbers, as ranges for a class."""
    parts = []
    first = last = -1
    for number in [*characters, -1]:
        if number == last + 1 and last >= 0:
            last = number
            continue
        if last >= 0:
            parts.append(f"\\U{first:08x}-\\U{last:08x}")
        first = last = number
    return "".join(parts)


@functools.cache
def _category(name: str) -> str:
    return ranges(
        [
            number
            for number in range(sys.maxunicode + 1)
            if number not in _SURROGATES
            and unicodedata.category(chr(number)).startswith(name)
        ]
    )


def _check(operation: Sequence[str]) -> None:
    name, *arguments = operation
    if _OPERATIONS.get(name) != len(arguments):
        raise ValueError(
            "`operations` must be lists like ['lower'], ['latin1'] and ['replace', pattern, "
            f"replacement]. Received: {operation!r}"
        )
    if name == "replace":
        _python_pattern(arguments[0], category=str)


def _python_pattern(pattern: str, category: Callable[[str], str]) -> str:
    """Returns a pattern of RE2 as one of Python that matches the same.

    Python has no categories of Unicode, its white space is all of Unicode's, and its `$` matches
    before a last line break too.

    Args:
        pattern: the pattern.
        category: returns the characters of a category of Unicode, for a class.

    Raises:
        ValueError: it has a class that is not written out here.
    """
    parts = []
    in_class = False
    for match in _PART.finditer(pattern):
        part = match[0]
        if match["category"]:
            part = category(match["category"])
            part = part if in_class else f"[{part}]"
        elif match["number"]:
            part = f"\\U{int(match['number'], 16):08x}"
        elif match["escaped"] in _CLASSES:
            part = _CLASSES[match["escaped"]]
            part = part if in_class else f"[{part}]"
        elif match["escaped"]:
            _check_escape(match["escaped"], pattern)
        elif in_class and part == "[":
            part = r"\["
        elif part == "$" and not in_class:
            part = r"\Z"
        elif part in "[]":
            in_class = part == "["
        parts.append(part)
    return "".join(parts)


def _check_escape(character: str, pattern: str) -> None:
    if character.isalnum() and character not in _ESCAPES:
        raise ValueError(
            "`operations` must have patterns with no classes but \\s, \\d, \\w and \\p{NAME} of "
            f"RE2. Received: \\{character} in {pattern!r}"
        )
