"""What makes a text like a task's own, in the graph of an exported model.

What `trainers.data.corpora.tokens_of` does in Python, in the regular expressions that TensorFlow
has (RE2): they cannot refer back to what they matched, so that a run of punctuation is one
expression for each sign, and they cannot look at what stands around a match, so that white space
is doubled where two neighbours share it.
"""

from collections.abc import Callable

import tensorflow as tf

Standardize = Callable[[tf.Tensor], tf.Tensor]

_QUOTES = {"[‘’]": "'", "[“”]": '"'}
_SIGNS = "".join(map(chr, range(0x21, 0x7F)))
_RUNS = "|".join(f"\\{sign}+" for sign in _SIGNS if not (sign.isalnum() or sign == "_"))
_LETTER, _WORD = r"[\p{L}_]", r"[\p{L}\p{N}\p{M}_]"
_NUMBER = rf"\p{{Nd}}+(?:\.\p{{Nd}}+)*{_WORD}*"
_PYDOC_TOKEN = rf"{_LETTER}{_WORD}*(?:['-][a-z]+)*|{_NUMBER}|{_RUNS}|[^\s\p{{L}}\p{{N}}\p{{M}}_]"


def of_task(task: str) -> Standardize | None:
    """Returns what a task's texts go through; None where they are taken as they are."""
    return _OF_TASK.get(task)


def penn_treebank(text: tf.Tensor) -> tf.Tensor:
    """Lower case, and numbers as `N`; see `trainers.data.penn_treebank.words`."""
    text = _apart(text)
    text = tf.strings.regex_replace(text, r"(\s)N(\s)", r"\1 0 \2")
    text = tf.strings.lower(text, encoding="utf-8")
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
    text = tf.strings.lower(text, encoding="utf-8")
    text = _apart(tf.strings.regex_replace(text, f"({_PYDOC_TOKEN})", r" \1 "))
    return tf.strings.regex_replace(text, rf"(\s){_NUMBER}(\s)", r"\1N\2")


def _apart(text: tf.Tensor) -> tf.Tensor:
    """Puts spaces around all white space, so that each word has its own on both sides."""
    text = tf.strings.regex_replace(text, r"(\s)", r" \1 ")
    return tf.strings.join([" ", text, " "])


_OF_TASK: dict[str, Standardize] = {
    "ptb": penn_treebank,
    "ptb_mos": penn_treebank,
    "ptb_char": penn_treebank_characters,
    "pydoc": pydoc,
}
