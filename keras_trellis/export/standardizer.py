"""Operations that make a text ready, in TensorFlow's graph."""

from __future__ import annotations

import functools

import numpy as np
import tensorflow as tf

from keras_trellis.formats import standardizer

_LAST = 0x10FFFF
_SURROGATES = slice(0xD800, 0xE000)


class Standardizer(standardizer.Standardizer):
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

    def __call__(self, text: tf.Tensor) -> tf.Tensor:
        """Returns the texts `[B]`, made ready."""
        for name, *arguments in self.operations:
            text = _FUNCTIONS[name](text, *arguments)
        return text

    @staticmethod
    def category(name: str) -> str:
        """Returns the characters of a category of Unicode, as RE2 knows it, for a class.

        The export's graph and its `tokenizer.json` then agree, whatever Python's Unicode is.
        """
        return _category(name)


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


@functools.cache
def _category(name: str) -> str:
    """Returns the characters of a category of Unicode, as RE2 knows it, for a class."""
    every = np.ones(_LAST + 1, bool)
    every[_SURROGATES] = False
    text = "".join(map(chr, np.flatnonzero(every))).encode()
    others = tf.strings.regex_replace(text, rf"\p{{{name}}}+", "").numpy().decode()
    inside = every.copy()
    inside[list(map(ord, others))] = False
    return standardizer.ranges(np.flatnonzero(inside).tolist())
