"""Text to tokens, in the TensorFlow graph: one definition for training and for exported models.

A *standardizer* makes any text like a task's own; `split_words` or `split_characters` then cut it.
The regular expressions are RE2's. They cannot refer back to a match, so a run of punctuation takes
one expression for each sign. They cannot look around a match, so white space is doubled where two
neighbours share it. Beyond ASCII, a run of a sign is one token for the signs of Latin-1, of the
block General Punctuation, U+FEFF and U+FFFD; each other sign is a token of its own.
"""

from collections.abc import Callable

import tensorflow as tf

from keras_trellis.export.tokenizer import BLANKS, Standardize, split_characters, split_words

__all__ = [
    "Standardize",
    "Tokens",
    "latin1",
    "of_text",
    "penn_treebank",
    "penn_treebank_characters",
    "pydoc",
    "split_characters",
    "split_words",
]

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
_PYDOC_TOKEN = rf"{_LETTER}{_WORD}*(?:['-][a-z]+)*|{_NUMBER}|{_RUNS}|[^\s\p{{L}}\p{{N}}_]"


def of_text(tokens: Tokens, text: str) -> list[str]:
    """Returns the tokens of one text."""
    words = tokens(tf.constant([text])).flat_values
    return [word.decode() for word in words.numpy().tolist()]


def penn_treebank(text: tf.Tensor) -> tf.Tensor:
    """Writes words in lower case and numbers as `N`; the rest is left to the writer.

    The corpus has no punctuation, and "do n't" and "company 's" are two words each.
    """
    text = _apart(text)
    text = _lower(tf.strings.regex_replace(text, r"(\s)N(\s)", r"\1 0 \2"))
    return tf.strings.regex_replace(text, r"(\s)[+-]?\p{Nd}[\p{Nd}.,]*(\s)", r"\1N\2")


def penn_treebank_characters(text: tf.Tensor) -> tf.Tensor:
    """Does the same, and leaves one space between words and none at the ends of lines."""
    text = tf.strings.regex_replace(penn_treebank(text), r"[^\S\n]+", " ")
    text = tf.strings.regex_replace(text, " ?\n ?", "\n")
    return tf.strings.regex_replace(text, "^ | $", "")


def pydoc(text: tf.Tensor) -> tf.Tensor:
    """Writes words in lower case and numbers as `N`, and sets punctuation apart."""
    for quotes, plain in _QUOTES.items():
        text = tf.strings.regex_replace(text, quotes, plain)
    text = _apart(tf.strings.regex_replace(_lower(text), f"({_PYDOC_TOKEN})", r" \1 "))
    return tf.strings.regex_replace(text, rf"(\s){_NUMBER}(\s)", r"\1N\2")


def latin1(text: tf.Tensor) -> tf.Tensor:
    """Turns each byte into the character of Latin-1 that has its number."""
    return tf.strings.unicode_transcode(text, "ISO-8859-1", "UTF-8")


def _apart(text: tf.Tensor) -> tf.Tensor:
    """Turns white space into spaces and line breaks, so many that no two words share any."""
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
