"""Text of unknown origin, made harmless for a terminal."""

import re

# What moves the cursor, starts an escape sequence, turns the direction of writing, ends a line
# without being a line feed, or is no character at all.
_HARMFUL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_HARMLESS = "\n\t"
_LONGEST = 2_000  # characters of a line


def text(value: str) -> str:
    r"""Returns a text with control characters as Python writes them, such as `\x1b`.

    Line feeds and tabulators stay.
    """
    return _HARMFUL.sub(
        lambda match: match[0] if match[0] in _HARMLESS else _escaped(match), value
    )


def line(value: str) -> str:
    """Returns a text in one line, control characters escaped, cut where it is very long."""
    shown = _HARMFUL.sub(_escaped, value[: _LONGEST + 1])
    return shown if len(value) <= _LONGEST else f"{shown[:_LONGEST]} ..."


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()
