"""Text to ids and back, in the graph, with the vocabulary as an asset."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import tensorflow as tf

from keras_trellis.export.checks import checked

__all__ = ["EOS", "UNKNOWN", "Standardize", "Tokenizer", "check_vocabulary"]

EOS, UNKNOWN = "<eos>", "<unk>"

Standardize = Callable[[tf.Tensor], tf.Tensor]
"""Strings `[B]` to strings `[B]`, in a graph: what makes text like that which a model knows."""

# What Python's `str.split` splits at, so that a server splits as training did: RE2's \s is ASCII.
_SPACES = (
    r"[\s\x0b\x1c-\x1f\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}"
    r"\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]+"
)


class Tokenizer(tf.Module):
    """A vocabulary in a graph.

    Text is words, which white space separates, or characters where a space is among the tokens. A
    line break reads `<eos>`. What the vocabulary does not have reads `<unk>`, and is an error where
    it has none.

    Args:
        tokens: the vocabulary, in the order of the ids; see `check_vocabulary`.
        folder: where to write the asset, which has to be there until the module is saved.
        standardize: what text goes through first.
    """

    def __init__(
        self, tokens: Sequence[str], folder: Path, standardize: Standardize | None = None
    ) -> None:
        super().__init__()
        path = folder / "vocabulary.txt"
        path.write_bytes("".join(f"{token}\n" for token in tokens).encode())
        line, number = tf.lookup.TextFileIndex.WHOLE_LINE, tf.lookup.TextFileIndex.LINE_NUMBER
        unknown = tokens.index(UNKNOWN) if UNKNOWN in tokens else -1
        self._ids = tf.lookup.StaticHashTable(
            tf.lookup.TextFileInitializer(str(path), tf.string, line, tf.int64, number), unknown
        )
        self._tokens = tf.lookup.StaticHashTable(
            tf.lookup.TextFileInitializer(str(path), tf.int64, number, tf.string, line), ""
        )
        self._standardize = standardize or tf.identity
        self._of_characters = " " in tokens
        self.eos_id = tokens.index(EOS)

    def encode(self, text: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the ids of texts.

        Args:
            text: `[B]`, UTF-8.

        Returns:
            ids `[B, T]` int32, zero after a text's end, and lengths `[B]` int32.
        """
        text = self._standardize(text)
        if self._of_characters:
            tokens = tf.strings.unicode_split(text, "UTF-8")
            tokens = tokens.with_flat_values(
                tf.where(tokens.flat_values == "\n", EOS, tokens.flat_values)
            )
        else:
            text = tf.strings.regex_replace(text, "\n", f" {EOS} ")
            tokens = tf.strings.split(tf.strings.regex_replace(text, _SPACES, " "))
        ids = self._ids.lookup(tokens.flat_values)
        expected = f"made of symbols of the vocabulary, which has no {UNKNOWN}"
        known = checked("text", tokens.flat_values, ids >= 0, expected, told=False)
        with tf.control_dependencies([known]):
            ids = tokens.with_flat_values(tf.cast(ids, tf.int32))
        return ids.to_tensor(), tf.cast(tokens.row_lengths(), tf.int32)

    def tokens(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns the token of each id; an empty string for what is none."""
        return self._tokens.lookup(tf.cast(ids, tf.int64))

    def decode(self, before: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        """Returns what ids add to a text that ends in the token `before`.

        Args:
            before: `[B]`.
            ids: `[B, T]`, of which negative ones are nothing.

        Returns:
            `[B]`: words with a space before each that does not begin a line.
        """
        tokens = tf.where(ids == self.eos_id, "\n", self.tokens(ids))
        if not self._of_characters:
            previous = tf.concat([before[:, None], ids[:, :-1]], axis=1)
            begins = (previous == self.eos_id) | (ids == self.eos_id) | (ids < 0)
            tokens = tf.strings.join([tf.where(begins, "", " "), tokens])
        return tf.strings.reduce_join(tokens, axis=1)


def check_vocabulary(tokens: Sequence[str], size: int) -> list[str]:
    """Returns a vocabulary as a list.

    Raises:
        ValueError: it has not `size` tokens; or not `<eos>`, the end of a line; a token stands
            there twice, is empty, or has a line break, which the asset has between tokens.
    """
    tokens = list(tokens)
    if len(tokens) != size:
        raise ValueError(
            f"`vocabulary` must have the {size} tokens that the model was built for. "
            f"Received: {len(tokens)} tokens"
        )
    for index, token in enumerate(tokens):
        if not isinstance(token, str) or not token or {"\n", "\r"} & {*token}:
            raise ValueError(
                "each token of `vocabulary` must be a non-empty string of one line. "
                f"Received: vocabulary[{index}]={token!r}"
            )
    if len({*tokens}) < len(tokens):
        twice = next(token for token in tokens if tokens.count(token) > 1)
        raise ValueError(
            f"each token of `vocabulary` must stand there once. Received: {twice!r} more than once"
        )
    if EOS not in tokens:
        raise ValueError(
            f"`vocabulary` must have {EOS!r}, the end of a line, which is what stands before a "
            f"text too. Received: {len(tokens)} tokens without it"
        )
    return tokens
