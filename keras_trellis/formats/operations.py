"""Operations on texts that `tokenizer.json` lists, in Python.

An operation is `["lower"]`, `["latin1"]` (each byte of the text in UTF-8 becomes the character of
that number) or `["replace", pattern, replacement]`; patterns are regular expressions that Python
and RE2 read alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence


def compose(operations: Sequence[Sequence[str]]) -> Callable[[str], str]:
    """Returns the function that carries out operations, one after the other.

    Raises:
        ValueError: an operation is none of those that this release knows.
    """
    functions = list(map(_function, operations))

    def carry_out(text: str) -> str:
        for function in functions:
            text = function(text)
        return text

    return carry_out


def _function(operation: Sequence[str]) -> Callable[[str], str]:
    match operation:
        case ["lower"]:
            return str.lower
        case ["latin1"]:
            return lambda text: text.encode().decode("latin-1")
        case ["replace", pattern, replacement]:
            try:
                compiled = re.compile(pattern)
            except re.error as error:
                raise ValueError(
                    f"a pattern must be a regular expression. Received: {pattern!r}: {error}"
                ) from None
            return lambda text: compiled.sub(replacement, text)
    raise ValueError(
        "operations on texts must be lower, latin1 and replace. "
        f"Received: {operation!r}"
    )
