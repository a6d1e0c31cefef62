"""Operations that make a text ready, in TensorFlow's graph and as values that Python runs alike."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from keras_trellis.serving.operations import compose

_LAST = 0x10FFFF
_SURROGATES = slice(0xD800, 0xE000)
_CLASSES = {"s": r"\t\n\f\r ", "d": "0-9", "w": "0-9A-Za-z_"}
_ESCAPES = (
    "tnfrvax0123456789"  # letters and digits after a backslash that Python reads alike
)
_PART = re.compile(
    r"\\p\{(?P<category>\w+)\}|\\x\{(?P<number>[0-9a-f]+)\}|\\(?P<escaped>.)|(?P<plain>.)",
    re.DOTALL,
)


class Standardizer:
    r"""Makes texts `[B]` ready by operations, one after the other, in a graph.

    An export with a `Standardizer` makes texts ready in `keras_trellis.serving.runtime` too.

        lower = Standardizer(["lower"], ["replace", r"\p{Nd}+", "N"])

    Args:
        *operations: each `["lower"]`; `["latin1"]`, by which each byte becomes the character of
            Latin-1 that has its number; or `["replace", pattern, replacement]`, for all matches of
            a pattern of RE2.

    Raises:
        ValueError: an operation is none of these, or has a pattern that Python has no form of.

    Examples:
        >>> from keras_trellis.export import Standardizer
        >>> standardize = Standardizer(["lower"], ["replace", "[0-9]+", "N"])
        >>> standardize(["Chapter 12"]).numpy().tolist()
        [b'chapter N']
    """

    def __init__(self, *operations: Sequence[str]) -> None:
        for operation in operations:
            _check(operation)
        self._operations = operations

    def __call__(self, text: tf.Tensor) -> tf.Tensor:
        """Returns the texts `[B]`, made ready."""
        for name, *arguments in self._operations:
            text = _FUNCTIONS[name](text, *arguments)
        return text

    def apply(self, text: str) -> str:
        """Returns a text made ready, without TensorFlow."""
        return self._function(text)

    @functools.cached_property
    def _function(self) -> Callable[[str], str]:
        return compose(self.portable())

    def portable(self) -> list[list[str]]:
        """Returns the operations with patterns of Python, as `tokenizer.json` has them."""
        operations = []
        for name, *arguments in self._operations:
            if name == "replace":
                arguments[0] = _python_pattern(arguments[0], _category)
            operations.append([name, *arguments])
        return operations


def _check(operation: Sequence[str]) -> None:
    name, *arguments = operation
    if name not in _FUNCTIONS or len(arguments) != (2 if name == "replace" else 0):
        raise ValueError(
            "`operations` must be lists like ['lower'], ['latin1'] and ['replace', pattern, "
            f"replacement]. Received: {operation!r}"
        )
    if name == "replace":
        _python_pattern(arguments[0], category=str)


def _lower(text: tf.Tensor) -> tf.Tensor:
    # `tf.strings.lower` stops at a text's first NUL, and no attribute of an operation, such as a
    # separator, can hold one.
    parts = tf.strings.split(text, "\0")
    lower = tf.strings.lower(parts.flat_values, encoding="utf-8")
    parts = parts.with_flat_values(tf.strings.join([tf.constant("\0"), lower]))
    return tf.strings.substr(tf.strings.reduce_join(parts, axis=-1), 1, tf.int32.max)


def _latin1(text: tf.Tensor) -> tf.Tensor:
    return tf.strings.unicode_transcode(text, "ISO-8859-1", "UTF-8")


_FUNCTIONS = {
    "lower": _lower,
    "latin1": _latin1,
    "replace": tf.strings.regex_replace,
}


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


@functools.cache
def _category(name: str) -> str:
    """Returns the characters of a category of Unicode, as RE2 knows it, for a class."""
    every = np.ones(_LAST + 1, bool)
    every[_SURROGATES] = False
    text = "".join(map(chr, np.flatnonzero(every))).encode()
    others = tf.strings.regex_replace(text, rf"\p{{{name}}}+", "").numpy().decode()
    inside = np.append(every, False)
    inside[list(map(ord, others))] = False
    edges = np.flatnonzero(np.diff(inside, prepend=False)).reshape(-1, 2)
    return "".join(f"\\U{first:08x}-\\U{end - 1:08x}" for first, end in edges)
