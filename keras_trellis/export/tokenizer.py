"""Text to ids and back, in the graph."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf

from keras_trellis.export.checks import checked
from keras_trellis.export.standardizer import Standardizer
from keras_trellis.formats import tokenizer
from keras_trellis.formats.pieces import read_names
from keras_trellis.formats.standardizer import ASCII_BLANKS, BLANKS

EOS, UNKNOWN = "<eos>", "<unk>"

Standardize: TypeAlias = Callable[[tf.Tensor], tf.Tensor]
"""Maps strings `[B]` to strings `[B]` in a graph: it makes text like that which a model knows."""

# `tf.strings.split` splits at ASCII's white space, of which these are the rest.
_OTHER_BLANKS = f"[{BLANKS.removeprefix(ASCII_BLANKS)}]"


class Encoded(NamedTuple):
    """Texts as a model reads them.

    Attributes:
        ids: `[B, T]` int32, zero after a text's end.
        lengths: `[B]` int32.
        words: `[B, T]`, the text of each id, in UTF-8; empty after a text's end. A character that
            several pieces share belongs to the last of them.
        unknown: `[B]` int32, the number of a text's words that the vocabulary does not have.
    """

    ids: tf.Tensor
    lengths: tf.Tensor
    words: tf.Tensor
    unknown: tf.Tensor


class Tokenizer(tf.Module):
    """A vocabulary in a graph.

    A line break reads `<eos>`.

    Args:
        tokens: the vocabulary, in the order of the ids; see `check_vocabulary`.
        standardize: applied to text first.
        detokenize: makes a text in print of words with single spaces between them.

    Attributes:
        kind: what the tokens are, as in `keras_trellis.formats.tokenizer`.
        eos_id: the id of `<eos>`.
        unknown_id: the id of `<unk>`; None if there is none.
    """

    kind: str

    def __init__(
        self,
        tokens: Sequence[str],
        standardize: Standardize | None = None,
        detokenize: Standardizer | None = None,
    ) -> None:
        super().__init__()
        self._listed = "\n".join(tokens)  # no list: TensorFlow would track it
        self._standardize = standardize or tf.identity
        self._detokenize = detokenize or Standardizer()
        self.eos_id = tokens.index(EOS)
        self.unknown_id = tokens.index(UNKNOWN) if UNKNOWN in tokens else None

    @abc.abstractmethod
    def rule(self) -> str:
        """Returns how text is cut, in words for a model card."""

    @abc.abstractmethod
    def tokens(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns the token of each id, as text in UTF-8; an empty string for other numbers."""

    @abc.abstractmethod
    def decode(self, before: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        """Returns what ids add to a text after the token `before`.

        Args:
            before: `[B]`.
            ids: `[B, T]`; negative ones add nothing.

        Returns:
            `[B]`, UTF-8 for all ids of a text; pieces may begin and end within a character.
        """

    @abc.abstractmethod
    def _cut(self, text: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
        """Returns the ids of texts, -1 for unknown words, and the text of each id."""

    def encode(self, text: tf.Tensor) -> Encoded:
        """Returns texts as a model reads them.

        Args:
            text: `[B]`, UTF-8; other bytes read U+FFFD, as in Python's "replace".
        """
        # First, so that every word of the answer is UTF-8: clients decode it.
        ids, words = self._cut(self._standardize(readable(text)))
        missing = ids.flat_values < 0
        if self.unknown_id is None:
            expected = f"made of symbols of the vocabulary, which has no {UNKNOWN}"
            known = checked(
                "text", ids.flat_values, ~missing, expected, shows_value=False
            )
        else:
            known = tf.where(missing, self.unknown_id, ids.flat_values)
        unknown = ids.with_flat_values(tf.cast(missing, tf.int32))
        return Encoded(
            ids=ids.with_flat_values(known).to_tensor(),
            lengths=tf.cast(ids.row_lengths(), tf.int32),
            words=words.to_tensor(),
            unknown=tf.reduce_sum(unknown, axis=1),
        )

    def begun(self, encoded: Encoded) -> tf.Tensor:
        """Returns the ids of texts after a line break, `[B, 1 + T]`."""
        return tf.pad(encoded.ids, [[0, 0], [1, 0]], constant_values=self.eos_id)

    def detokenize(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns the text of ids after a line break, in print: `[B, T]` to `[B]`, in UTF-8."""
        begin = tf.fill(tf.shape(ids)[:1], self.eos_id)
        return self._detokenize(readable(self.decode(begin, ids)))

    def settled(self, text: tf.Tensor) -> tf.Tensor:
        """Returns the beginnings of what `detokenize` returned that more ids do not change.

        A word is settled as soon as it is there. Smaller tokens may go on with the last one, which
        decides on the space before it; or with a character, which is U+FFFD so far.
        """
        if self.kind == "words":
            return text
        changes = bool(self._detokenize.portable())
        unsettled = " *[^ \n]*$" if changes else r"\x{fffd}*$"
        return tf.strings.regex_replace(text, unsettled, "")

    def describe(self) -> str:
        """Returns the text of a `tokenizer.json`; see `keras_trellis.formats.tokenizer`."""
        portable: list[list[str]] | None = []
        if isinstance(self._standardize, Standardizer):
            portable = self._standardize.portable()
        elif self._standardize is not tf.identity:
            portable = None
        return tokenizer.describe(
            self._listed.split("\n"),
            kind=self.kind,
            end=EOS,
            unknown=None if self.unknown_id is None else UNKNOWN,
            standardize=portable,
            detokenize=self._detokenize.portable(),
        )


class WordTokenizer(Tokenizer):
    """Words, which white space separates; or characters, if a space is among the tokens.

    A word outside the vocabulary reads `<unk>`; without `<unk>` it is an error.

    Args:
        tokens: see `Tokenizer`.
        folder: where to write the asset; it must exist until the module is saved.
        standardize: see `Tokenizer`.
        detokenize: see `Tokenizer`.
    """

    def __init__(
        self,
        tokens: Sequence[str],
        folder: Path,
        standardize: Standardize | None = None,
        detokenize: Standardizer | None = None,
    ) -> None:
        super().__init__(tokens, standardize, detokenize)
        path = folder / "vocabulary.txt"
        path.write_bytes("".join(f"{token}\n" for token in tokens).encode())
        line = tf.string, tf.lookup.TextFileIndex.WHOLE_LINE
        number = tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER
        numbers = tf.lookup.TextFileInitializer(str(path), *line, *number)
        lines = tf.lookup.TextFileInitializer(str(path), *number, *line)
        self._ids = tf.lookup.StaticHashTable(numbers, -1)
        self._tokens = tf.lookup.StaticHashTable(lines, "")
        self.kind = "characters" if " " in tokens else "words"

    def rule(self) -> str:
        """Returns how text is cut, in words for a model card."""
        places = " at white space" if self.kind == "words" else ""
        others = f"read `{UNKNOWN}`" if self.unknown_id is not None else "are an error"
        return (
            f"in {self.kind}{places}; a line break reads `{EOS}`, which stands before each text "
            f"too; {self.kind} outside the vocabulary {others}"
        )

    def tokens(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns the token of each id; an empty string for other numbers."""
        return self._tokens.lookup(tf.cast(ids, tf.int64))

    def decode(self, before: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        """Returns what ids add to a text: words with a space before each that begins no line."""
        tokens = tf.where(ids == self.eos_id, "\n", self.tokens(ids))
        if self.kind == "words":
            previous = tf.concat([before[:, None], ids[:, :-1]], axis=1)
            begins = (previous == self.eos_id) | (ids == self.eos_id) | (ids < 0)
            tokens = tf.strings.join([tf.where(begins, "", " "), tokens])
        return tf.strings.reduce_join(tokens, axis=1)

    def _cut(self, text: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
        words = (split_words if self.kind == "words" else split_characters)(text)
        ids = tf.cast(self._ids.lookup(words.flat_values), tf.int32)
        return words.with_flat_values(ids), words


def readable(text: tf.Tensor) -> tf.Tensor:
    """Returns texts in UTF-8: other bytes become U+FFFD, as in Python's "replace"."""
    return tf.strings.unicode_transcode(text, "UTF-8", "UTF-8")


def split_words(text: tf.Tensor) -> tf.RaggedTensor:
    """Splits texts `[B]` at white space; the end of each line, also of a blank one, is `<eos>`."""
    text = tf.strings.regex_replace(text, "\n", f" {EOS} ")
    return tf.strings.split(tf.strings.regex_replace(text, _OTHER_BLANKS, " "))


def split_characters(text: tf.Tensor) -> tf.RaggedTensor:
    """Splits texts `[B]` in characters, spaces among them; the end of each line is `<eos>`."""
    characters = tf.strings.unicode_split(text, "UTF-8")
    values = characters.flat_values
    return characters.with_flat_values(tf.where(values == "\n", EOS, values))


def check_vocabulary(tokens: Sequence[str], size: int, pieces: bool) -> list[str]:
    """Returns a vocabulary as a list.

    Raises:
        ValueError: it does not have `size` tokens, or lacks `<eos>`, the end of a line; a token
            occurs twice, is empty, or has a line break, which separates tokens in the asset; or
            they are no names of `pieces`, or lack one of a byte.
    """
    tokens = list(tokens)
    if len(tokens) != size:
        raise ValueError(
            f"`vocabulary` must have the {size} tokens that the model was built for. "
            f"Received: {len(tokens)} tokens"
        )
    for index, token in enumerate(tokens):
        _check_token(index, token)
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
    if pieces:
        read_names(tokens, EOS)
    return tokens


def _check_token(index: int, token: Any) -> None:
    if not isinstance(token, str) or not token or {"\n", "\r"} & {*token}:
        raise ValueError(
            "each token of `vocabulary` must be a non-empty string of one line. "
            f"Received: vocabulary[{index}]={token!r}"
        )
