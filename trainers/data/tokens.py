"""Text to tokens, in the TensorFlow graph: one definition for training and for exported models.

A *standardizer* makes any text like a task's own; `keras_trellis.export.tokenizer` then cuts it.
The regular expressions are RE2's. They have no back-references, so a run of punctuation takes one
expression for each sign. They have no look-around, so white space is doubled between neighbours.
A run of one sign is one token if the sign is in Latin-1 or in the block General Punctuation, or is
U+FEFF or U+FFFD. Each other sign is one token.
"""

from collections.abc import Callable

import tensorflow as tf

from keras_trellis.export.tokenizer import BLANKS

Tokens = Callable[[tf.Tensor], tf.RaggedTensor]
"""Texts `[B]`, in UTF-8, to their tokens."""

_QUOTES = {"[‘’]": "'", "[“”]": '"'}
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


def text_tokens(tokens: Tokens, text: str) -> list[str]:
    """Returns the tokens of one text."""
    words = tokens(tf.constant([text])).flat_values
    return [word.decode() for word in words.numpy().tolist()]


def penn_treebank(text: tf.Tensor) -> tf.Tensor:
    """Writes words in lower case and numbers as `N`, and leaves the rest as it is.

    The corpus has no punctuation, and it writes "do n't" and "company 's" as two words each.
    """
    text = _apart(text)
    text = _lower(tf.strings.regex_replace(text, r"(\s)N(\s)", r"\1 0 \2"))
    return tf.strings.regex_replace(text, r"(\s)[+-]?\p{Nd}[\p{Nd}.,]*(\s)", r"\1N\2")


def penn_treebank_characters(text: tf.Tensor) -> tf.Tensor:
    """Like `penn_treebank`, with one space between words and none at the ends of lines."""
    text = tf.strings.regex_replace(penn_treebank(text), r"[^\S\n]+", " ")
    text = tf.strings.regex_replace(text, " ?\n ?", "\n")
    return tf.strings.regex_replace(text, "^ | $", "")


def pydoc(text: tf.Tensor) -> tf.Tensor:
    """Writes words in lower case and numbers as `N`, and puts spaces around punctuation."""
    for quotes, plain in _QUOTES.items():
        text = tf.strings.regex_replace(text, quotes, plain)
    text = _apart(tf.strings.regex_replace(_lower(text), f"({_PYDOC_TOKEN})", r" \1 "))
    return tf.strings.regex_replace(text, rf"(\s){_NUMBER}(\s)", r"\1N\2")


def latin1(text: tf.Tensor) -> tf.Tensor:
    """Turns each byte into the character of Latin-1 that has its number."""
    return tf.strings.unicode_transcode(text, "ISO-8859-1", "UTF-8")


def _apart(text: tf.Tensor) -> tf.Tensor:
    """Turns white space into spaces and line breaks, enough that no two words share one."""
    text = tf.strings.regex_replace(text, rf"[{BLANKS}]", "  ")
    text = tf.strings.regex_replace(text, r"\n", " \n ")
    return tf.strings.join([" ", text, " "])


def _lower(text: tf.Tensor) -> tf.Tensor:
    # `tf.strings.lower` stops at a text's first NUL, and no attribute of an operation, such as a
    # separator, can hold one.
    parts = tf.strings.split(text, "\0")
    lower = tf.strings.lower(parts.flat_values, encoding="utf-8")
    parts = parts.with_flat_values(tf.strings.join([tf.constant("\0"), lower]))
    return tf.strings.substr(tf.strings.reduce_join(parts, axis=-1), 1, tf.int32.max)
