"""Text to ids and back, as the graph of an export does it, in Python.

`tokenizer.json` of an export says how. Its entries are:

- `kind`: of what tokens are made: `words`, which white space separates, `characters`, or `pieces`
  of words, see `keras_trellis.formats.pieces`.
- `tokens`: the vocabulary, in the order of the ids; of pieces, their names.
- `end_of_line`: the token that a line break reads, and that precedes every text.
- `unknown`: the token that others read, or null: then they are an error. No text is unknown to
  pieces.
- `standardize`: the operations that make a text ready, in their order, see
  `keras_trellis.formats.operations`; or null if the export makes texts ready by a function that
  only TensorFlow runs.
- `detokenize`: the operations that make a text in print of words with single spaces between them.
"""

from __future__ import annotations

import codecs
import collections
import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from keras_trellis.formats import manifest, schema
from keras_trellis.formats.operations import compose
from keras_trellis.formats.pieces import Pieces, read_names

NAME = "tokenizer.json"
KINDS = ("words", "characters", "pieces")

_LAST_WORD = re.compile(r" *[^ \n]*\Z")


class Encoded(NamedTuple):
    """Texts as a model reads them.

    Attributes:
        ids: int32 `[B, T]`, zero after a text's end.
        lengths: int32 `[B]`.
        words: the text of each id, a list for each text. A character that several pieces share
            belongs to the last of them.
        unknown: int32 `[B]`, how many of a text's words the vocabulary does not have.
    """

    ids: np.ndarray
    lengths: np.ndarray
    words: list[list[str]]
    unknown: np.ndarray


class Tokenizer:
    """The tokens of a language model.

    Args:
        entries: those of a `tokenizer.json`.

    Attributes:
        tokens: the vocabulary as text. A piece that is a part of a character reads U+FFFD.
        eos_id: the id of the end of a line.
        unknown_id: the id of the token that others read; None if there is none.
        separator: what stands between two tokens of a line.

    Raises:
        ValueError: the entries are not those of a tokenizer that this release reads.
    """

    def __init__(self, entries: Mapping[str, Any]) -> None:
        entries = schema.record(entries, "tokenizer", _FIELDS)
        names: list[str] = entries["tokens"]
        line_break, unknown = entries["end_of_line"], entries["unknown"]
        self.eos_id = _place("end_of_line", line_break, names)
        self.unknown_id = None if unknown is None else _place("unknown", unknown, names)
        self._cutter: _ByWords | _ByPieces
        if entries["kind"] == "pieces":
            self._cutter = _ByPieces(names, line_break)
        else:
            by_characters = entries["kind"] == "characters"
            self._cutter = _ByWords(names, line_break, by_characters)
        self.tokens = self._cutter.tokens
        self.separator = self._cutter.separator
        self._has_function = entries["standardize"] is None
        self._standardize = compose(entries["standardize"] or ())
        self._detokenize = compose(entries["detokenize"])
        self._changes = bool(entries["detokenize"])

    @classmethod
    def load(cls, folder: Path) -> Tokenizer:
        """Returns the tokenizer of a version.

        Raises:
            ManifestError: the file is damaged.
        """
        return manifest.parsed(folder / NAME, cls)

    def encode(self, texts: Iterable[str]) -> Encoded:
        """Returns texts as a model reads them.

        Raises:
            ValueError: the texts are none, or have symbols that a vocabulary without `<unk>` lacks,
                or only TensorFlow can make them ready.
        """
        cut = [
            self._cutter.cut(self._ready(_text(index, text)))
            for index, text in enumerate(texts)
        ]
        rows, words = [row for row, _ in cut], [row for _, row in cut]
        unknown = [row.count(-1) for row in rows]
        if self.unknown_id is None and any(unknown):
            raise ValueError(
                "`texts` must be made of symbols of the vocabulary, which has no <unk>. "
                f"Received: {_first_unknown(words, rows)!r}"
            )
        lengths = np.array(list(map(len, rows)), np.int32)
        ids = np.zeros([len(rows), max(lengths, default=0)], np.int32)
        for index, row in enumerate(rows):
            ids[index, : len(row)] = row
        if self.unknown_id is not None:
            ids[ids < 0] = self.unknown_id
        return Encoded(ids, lengths, words, np.array(unknown, np.int32))

    def decode(self, before: int, ids: Iterable[int]) -> str:
        """Returns the text that ids add after the token `before`; negative ones add nothing."""
        text = []
        for index in ids:
            text.append(self.added(before, index))
            before = index
        return b"".join(text).decode(errors="replace")

    def added(self, before: int, index: int) -> bytes:
        """Returns what one id adds after the token `before`, in UTF-8.

        Words have a space before each that does not begin a line. A piece may be a part of a
        character.
        """
        if index < 0:
            return b""
        return b"\n" if index == self.eos_id else self._cutter.added(before, index)

    def piece(self, before: int, index: int) -> str:
        r"""Returns what one id adds after the token `before`, as text.

        A part of a character reads as its bytes, `bytes:\xe2\x82`, as in OpenAI's answers.
        """
        added = self.added(before, index)
        try:
            return added.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in added)

    def detokenize(self, before: int, ids: Iterable[int]) -> str:
        """Returns what `decode` does, in print: without spaces that stand between words alone."""
        return self.in_print(self.decode(before, ids))

    def in_print(self, text: str) -> str:
        """Returns a text of tokens, with single spaces between words, as in print."""
        return self._detokenize(text)

    def settled(self, text: str) -> str:
        """Returns the beginning of a text in print that more tokens do not change.

        A word is settled as soon as it is there. Characters may go on with the last word, which
        decides on the space before it.
        """
        if self.separator or not self._changes:
            return text
        return _LAST_WORD.sub("", text)

    def printed(self, pieces: Sequence[str]) -> list[str]:
        """Returns what each word adds to a text in print; together they are `in_print` of it.

        Characters and pieces of words add what they are.

        Args:
            pieces: what each token adds to the text of tokens, from the beginning of a line on.
        """
        if not (self.separator and self._changes):
            return list(pieces)
        text = self.in_print("".join(pieces))
        symbols = [piece.strip(" ") for piece in pieces]
        printed = []
        begin = 0
        for symbol, following in itertools.zip_longest(symbols, symbols[1:]):
            end = _end_in_print(text, begin, symbol, following)
            printed.append(text[begin:end])
            begin = end
        return printed

    def _ready(self, text: str) -> str:
        if self._has_function:
            raise ValueError(
                "this export makes texts ready by a function that only TensorFlow runs: give ids, "
                "or export the model with a keras_trellis.export.Standardizer"
            )
        return self._standardize(text)


def _end_in_print(text: str, begin: int, symbol: str, following: str | None) -> int:
    """Returns where a token ends in a text in print.

    Args:
        text: the text.
        begin: where the token before it ends.
        symbol: the token without spaces.
        following: the next one; None: it is the last.
    """
    if following is None:
        return len(text)
    first = begin
    while text.startswith(" ", first):
        first += 1
    place = text.find(symbol, first, first + len(symbol) + 1)  # a sign may be before it
    if place >= 0:
        return place + len(symbol)
    # In print it is another one, which ends where the next token begins.
    place = text.find(following, first, first + len(symbol) + len(following) + 1)
    return begin if place < 0 else begin + len(text[begin:place].rstrip(" "))


class _ByWords:
    """Words or characters; see `Tokenizer` for the attributes."""

    def __init__(self, tokens: list[str], line_break: str, by_characters: bool) -> None:
        self.tokens = tokens
        self._ids = {token: index for index, token in enumerate(tokens)}
        self._line_break = line_break
        self._by_characters = by_characters
        self.separator = "" if by_characters else " "

    def cut(self, text: str) -> tuple[list[int], list[str]]:
        """Returns the ids of a text, -1 for unknown words, and the text of each."""
        if self._by_characters:
            end = self._line_break
            words = [end if symbol == "\n" else symbol for symbol in text]
        else:
            words = text.replace("\n", f" {self._line_break} ").split()
        return [self._ids.get(word, -1) for word in words], words

    def added(self, before: int, index: int) -> bytes:
        """Returns what a token but the end of a line adds after another, in UTF-8."""
        begins = before == self._ids[self._line_break]
        return f"{'' if begins else self.separator}{self.tokens[index]}".encode()


class _ByPieces:
    """Pieces of words, with the methods of `_ByWords`."""

    separator = ""

    def __init__(self, names: list[str], line_break: str) -> None:
        self._pieces = read_names(names, line_break)
        self._cutter = Pieces(self._pieces)
        self.tokens = [piece.decode(errors="replace") for piece in self._pieces]
        self._end = names.index(line_break)
        self.tokens[self._end] = line_break

    def cut(self, text: str) -> tuple[list[int], list[str]]:
        ids = self._cutter.cut(text.encode())
        decoder = codecs.getincrementaldecoder("utf-8")()
        words = [decoder.decode(self._pieces[index]) for index in ids]
        for place, index in enumerate(ids):
            if index == self._end:
                words[place] = self.tokens[index]
        return ids, words

    def added(self, before: int, index: int) -> bytes:
        return self._pieces[index]


def describe(
    tokens: Sequence[str],
    *,
    kind: str,
    end: str,
    unknown: str | None,
    standardize: Sequence[Sequence[str]] | None,
    detokenize: Sequence[Sequence[str]],
) -> str:
    """Returns the text of a `tokenizer.json`; see the module for its entries."""
    entries = {
        "kind": kind,
        "end_of_line": end,
        "unknown": unknown,
        "standardize": standardize,
        "detokenize": detokenize,
        "tokens": list(tokens),
    }
    return json.dumps(entries, ensure_ascii=False, indent=1) + "\n"


def _kind(value: Any, name: str) -> str:
    if value not in KINDS:
        raise ValueError(
            f"`{name}` must be one of {', '.join(KINDS)}. Received: {schema.shown(value)}"
        )
    kind: str = value
    return kind


def _tokens(value: Any, name: str) -> list[str]:
    tokens: list[str] = schema.items(schema.text)(value, name)
    for token, count in collections.Counter(tokens).items():
        if count > 1:
            raise ValueError(
                f"`{name}` must be different texts. Received: {token!r} twice"
            )
    return tokens


_OPERATIONS = schema.items(schema.items(schema.text))
_FIELDS: Mapping[str, schema.Check] = {
    "kind": _kind,
    "end_of_line": schema.text,
    "unknown": schema.optional(schema.text),
    "standardize": schema.optional(_OPERATIONS),
    "detokenize": _OPERATIONS,
    "tokens": _tokens,
}


def _place(name: str, token: str, tokens: Sequence[str]) -> int:
    if token not in tokens:
        raise ValueError(
            f"`tokenizer.{name}` must be one of the tokens. Received: {schema.shown(token)}"
        )
    return tokens.index(token)


def _text(index: int, text: Any) -> str:
    if not isinstance(text, str):
        raise ValueError(f"`texts` must be strings. Received: texts[{index}]={text!r}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"`texts` must be Unicode text. Received: {error}") from None
    return text


def _first_unknown(words: list[list[str]], rows: list[list[int]]) -> str:
    row = next(index for index, ids in enumerate(rows) if -1 in ids)
    return words[row][rows[row].index(-1)]
