"""Text to ids and back, as the graph of an export does it, in Python.

`tokenizer.json` of an export says how. Its entry `kind` says of what tokens are made, and so which
other entries there are. For `words` and `characters` they are:

- `tokens`: the vocabulary, in the order of the ids.
- `end_of_line`: the token that a line break reads, and that precedes every text.
- `unknown`: the token that others read, or null: then they are an error.
- `standardize`: the operations that make a text ready, in their order, or null if the export makes
  texts ready by a function that only TensorFlow runs. An operation is `["lower"]`, `["latin1"]`
  (each byte of the text in UTF-8 becomes the character of that number) or `["replace", pattern,
  replacement]`; patterns are regular expressions that Python and RE2 read alike.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

NAME = "tokenizer.json"
KINDS = ("words", "characters")


class Encoded(NamedTuple):
    """Texts as a model reads them.

    Attributes:
        ids: int32 `[B, T]`, zero after a text's end.
        lengths: int32 `[B]`.
        words: the text of each id, a list for each text.
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
        tokens: the vocabulary.
        eos_id: the id of the end of a line.
        unknown_id: the id of the token that others read; None if there is none.
        separator: what stands between two tokens of a line.

    Raises:
        ValueError: the entries are not those of a tokenizer that this release reads.
    """

    def __init__(self, entries: Mapping[str, Any]) -> None:
        if entries.get("kind") not in KINDS:
            raise ValueError(
                f"`kind` of {NAME} must be one of {', '.join(KINDS)}. "
                f"Received: {entries.get('kind')!r}"
            )
        self.tokens: list[str] = list(entries["tokens"])
        self._ids = {token: index for index, token in enumerate(self.tokens)}
        self._eos = entries["end_of_line"]
        self.eos_id = self._ids[self._eos]
        unknown = entries["unknown"]
        self.unknown_id = None if unknown is None else self._ids[unknown]
        self._by_characters = entries["kind"] == "characters"
        self.separator = "" if self._by_characters else " "
        self._operations = entries["standardize"]
        self._ready = list(map(_operation, self._operations or ()))

    @classmethod
    def load(cls, folder: Path) -> Tokenizer:
        """Returns the tokenizer of a version."""
        return cls(json.loads((folder / NAME).read_text(encoding="utf-8")))

    def encode(self, texts: Iterable[str]) -> Encoded:
        """Returns texts as a model reads them.

        Raises:
            ValueError: the texts are none, or have symbols that a vocabulary without `<unk>` lacks,
                or only TensorFlow can make them ready.
        """
        words = [self._split(_text(index, text)) for index, text in enumerate(texts)]
        rows = [[self._ids.get(word, -1) for word in row] for row in words]
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
            text.append(self.piece(before, index))
            before = index
        return "".join(text)

    def piece(self, before: int, index: int) -> str:
        """Returns what one id adds after the token `before`.

        Words have a space before each that does not begin a line.
        """
        if index < 0:
            return ""
        if index == self.eos_id:
            return "\n"
        token = self.tokens[index]
        return token if before == self.eos_id else f"{self.separator}{token}"

    def _split(self, text: str) -> list[str]:
        if self._operations is None:
            raise ValueError(
                "this export makes texts ready by a function that only TensorFlow runs: give ids, "
                "or export the model with a keras_trellis.export.Standardizer"
            )
        for ready in self._ready:
            text = ready(text)
        if self._by_characters:
            return [self._eos if symbol == "\n" else symbol for symbol in text]
        return text.replace("\n", f" {self._eos} ").split()


def describe(
    tokens: Sequence[str],
    *,
    kind: str,
    end_of_line: str,
    unknown: str | None,
    standardize: Sequence[Sequence[str]] | None,
) -> str:
    """Returns the text of a `tokenizer.json`; see the module for its entries."""
    entries = {
        "kind": kind,
        "end_of_line": end_of_line,
        "unknown": unknown,
        "standardize": standardize,
        "tokens": list(tokens),
    }
    return json.dumps(entries, ensure_ascii=False, indent=1) + "\n"


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


def _operation(entry: Sequence[str]) -> Callable[[str], str]:
    """Returns the function of an operation of `standardize`."""
    match entry:
        case ["lower"]:
            return str.lower
        case ["latin1"]:
            return lambda text: text.encode().decode("latin-1")
        case ["replace", pattern, replacement]:
            compiled = re.compile(pattern)
            return lambda text: compiled.sub(replacement, text)
    raise ValueError(
        f"`standardize` of {NAME} must have lower, latin1 and replace. Received: {entry!r}"
    )
