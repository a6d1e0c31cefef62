"""What makes a text like a task's own, in the graph of an exported model.

What `trainers.data.corpora.tokens_of` does in Python, in the regular expressions that TensorFlow
has (RE2): they cannot refer back to what they matched, so that a run of punctuation is one
expression for each sign, and they cannot look at what stands around a match, so that white space
is doubled where two neighbours share it. Beyond ASCII, a run of a sign is one token, as in Python,
for the signs of Latin-1, of the block General Punctuation, U+FEFF and U+FFFD; else each is one.
"""

from collections.abc import Callable

import tensorflow as tf

from keras_trellis.export.tokenizer import BLANKS

Standardize = Callable[[tf.Tensor], tf.Tensor]

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


def of_task(task: str) -> Standardize | None:
    """Returns what a task's texts go through; None where they are taken as they are."""
    return _OF_TASK.get(task)


def penn_treebank(text: tf.Tensor) -> tf.Tensor:
    """Lower case, and numbers as `N`; see `trainers.data.penn_treebank.words`."""
    text = _apart(text)
    text = _lower(tf.strings.regex_replace(text, r"(\s)N(\s)", r"\1 0 \2"))
    return tf.strings.regex_replace(text, r"(\s)[+-]?\p{Nd}[\p{Nd}.,]*(\s)", r"\1N\2")


def penn_treebank_characters(text: tf.Tensor) -> tf.Tensor:
    """The same, with one space between words and none at the ends of lines."""
    text = tf.strings.regex_replace(penn_treebank(text), r"[^\S\n]+", " ")
    text = tf.strings.regex_replace(text, " ?\n ?", "\n")
    return tf.strings.regex_replace(text, "^ | $", "")


def pydoc(text: tf.Tensor) -> tf.Tensor:
    """Lower case, numbers as `N`, punctuation split off; see `trainers.data.pydoc.words`."""
    for quotes, plain in _QUOTES.items():
        text = tf.strings.regex_replace(text, quotes, plain)
    text = _apart(tf.strings.regex_replace(_lower(text), f"({_PYDOC_TOKEN})", r" \1 "))
    return tf.strings.regex_replace(text, rf"(\s){_NUMBER}(\s)", r"\1N\2")


def _apart(text: tf.Tensor) -> tf.Tensor:
    """Makes all white space spaces and line breaks, so many that each word has its own around."""
    text = tf.strings.regex_replace(text, rf"[{BLANKS}]", "  ")
    text = tf.strings.regex_replace(text, r"\n", " \n ")
    return tf.strings.join([" ", text, " "])


def _lower(text: tf.Tensor) -> tf.Tensor:
    # `tf.strings.lower` reads a text to its first NUL alone, and no attribute of an operation, such
    # as a separator, can hold one.
    parts = tf.strings.split(text, "\0")
    lower = tf.strings.lower(parts.flat_values, encoding="utf-8")
    parts = parts.with_flat_values(tf.strings.join([tf.constant("\0"), lower]))
    return tf.strings.substr(tf.strings.reduce_join(parts, axis=-1), 1, tf.int32.max)


_OF_TASK: dict[str, Standardize] = {
    "ptb": penn_treebank,
    "ptb_mos": penn_treebank,
    "ptb_char": penn_treebank_characters,
    "pydoc": pydoc,
}
