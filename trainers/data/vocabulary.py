"""Tokens to ids and back; a vocabulary of words or characters, a text file of one token a line."""

import os
from collections.abc import Iterable, Mapping
from typing import TypeVar

import numpy as np
from etils import epath

from trainers.data.files import bad_byte, read_bytes, write_text

UNKNOWN = "<unk>"
EOS = "<eos>"
ORDERS = ("appearance", "frequency")
_Loaded = TypeVar("_Loaded", bound="Vocabulary")


class UnknownTokenError(ValueError):
    """A token that a vocabulary without `<unk>` does not have.

    Attributes:
        token: the token.
    """

    def __init__(self, token: str):
        super().__init__(
            f"`tokens` must be of the vocabulary, which has no {UNKNOWN}. Received: {token!r}"
        )
        self.token = token


class Vocabulary:
    """An immutable list of distinct tokens, `<eos>` among them.

    A token's id is its index in the list. If a space is among the tokens, they are characters.

    Attributes:
        tokens: all tokens, in the order of their ids.
        unknown_id: the id of `<unk>`, which replaces every token that is not in the vocabulary.
            None: the vocabulary has no `<unk>`, and such tokens are an error.
        eos_id: the id of `<eos>`, the end of a line.
    """

    def __init__(self, tokens: Iterable[str]):
        self.tokens = tuple(tokens)
        self._ids = {token: index for index, token in enumerate(self.tokens)}
        self._check()
        self.unknown_id = self._ids.get(UNKNOWN)
        self.eos_id = self._ids[EOS]
        self._has_characters = " " in self._ids

    def _check(self) -> None:
        seen = set()
        for index, token in enumerate(self.tokens):
            if not token or "\n" in token:
                raise ValueError(
                    "each token must be a non-empty word of one line. "
                    f"Received: {token!r} as token {index} of {len(self.tokens)}"
                )
            if token in seen:
                raise ValueError(
                    "each token must stand there once. "
                    f"Received: {token!r} a second time, as token {index} of {len(self.tokens)}"
                )
            seen.add(token)
        if EOS not in seen:
            raise ValueError(
                f"{EOS!r} must be a token. Received: {len(seen)} tokens without it"
            )

    @classmethod
    def from_counts(
        cls,
        counts: Mapping[str, int],
        *,
        minimum_count: int = 1,
        order: str = "appearance",
        unknown: bool = True,
    ) -> "Vocabulary":
        """Builds the vocabulary of a training text.

        If the text has `<unk>`, as Penn Treebank and WikiText have, it keeps its place. Else it is
        appended as the last token.

        Args:
            counts: the number of each token in the text, in order of first appearance.
            minimum_count: rarer tokens are left out, so that they read `<unk>`.
            order: one of `ORDERS`; tokens of one frequency keep the order of appearance.
            unknown: whether to append `<unk>`.

        Raises:
            ValueError: `order` is none of `ORDERS`.
        """
        if order not in ORDERS:
            raise ValueError(
                f"`order` must be one of {ORDERS}. Received: order={order!r}"
            )
        retained = [
            t
            for t, count in counts.items()
            if count >= minimum_count or t in (UNKNOWN, EOS)
        ]
        if order == "frequency":
            # The sort keeps the order of what is equal.
            retained.sort(key=counts.__getitem__, reverse=True)
        added = (EOS, UNKNOWN) if unknown else (EOS,)
        return cls(retained + [token for token in added if token not in counts])

    @property
    def size(self) -> int:
        """The number of tokens."""
        return len(self.tokens)

    def encode(self, tokens: Iterable[str]) -> np.ndarray:
        """Returns the int32 ids of tokens; one that is not in the vocabulary reads `<unk>`.

        Raises:
            UnknownTokenError: a token is not in the vocabulary, and the vocabulary has no `<unk>`.
        """
        if isinstance(tokens, str):
            raise ValueError(
                "`tokens` must be a sequence of tokens, not a text. "
                f"Received: tokens={tokens[:40]!r}"
            )
        tokens = list(tokens)
        ids = [self._ids.get(token, self.unknown_id) for token in tokens]
        if self.unknown_id is None and None in ids:
            raise UnknownTokenError(tokens[ids.index(None)])
        return np.asarray(ids, dtype=np.int32)

    def decode(self, ids: Iterable[int]) -> str:
        """Joins words with spaces, and characters without; `<eos>` becomes a line break.

        Raises:
            ValueError: an id lies outside the vocabulary.
        """
        words = [
            "\n" if index == self.eos_id else self.tokens[index]
            for index in self.checked(ids)
        ]
        if self._has_characters:
            return "".join(words)
        return " ".join(words).replace(" \n", "\n").replace("\n ", "\n")

    def checked(self, ids: Iterable[int]) -> list[int]:
        """Returns ids; raises ValueError if one lies outside the vocabulary."""
        checked = []
        for index in map(int, ids):
            if not 0 <= index < self.size:
                raise ValueError(
                    f"`ids` must be from 0 to {self.size - 1}. Received: {index} among them"
                )
            checked.append(index)
        return checked

    def save(self, path: epath.PathLike) -> None:
        """Writes the tokens to a UTF-8 text file, one on each line, atomically."""
        text = "".join(f"{token}\n" for token in self.tokens)
        write_text(path, text)

    @classmethod
    def load(cls: type[_Loaded], path: epath.PathLike) -> _Loaded:
        """Reads what `save` wrote.

        Raises:
            ValueError: the file is not UTF-8, or not a vocabulary.
        """
        content = read_bytes(path)
        try:
            return cls(_lines(content.decode()))
        except ValueError as error:
            reason = str(error)
            if isinstance(error, UnicodeDecodeError):
                reason = bad_byte(content, error.start)
            raise ValueError(
                f"{os.fspath(path)} is damaged: it has not one token a line, in UTF-8 ({reason})"
            ) from error


def _lines(text: str) -> list[str]:
    """Returns the lines of a vocabulary's file, each of which ends in a line break."""
    if text.startswith("\ufeff"):
        raise ValueError(
            "it begins with a byte-order mark, which an editor has written"
        )
    if f"{EOS}\r\n" in text:
        raise ValueError(
            "its lines end in carriage returns, which an editor has written"
        )
    if not text.endswith("\n"):
        raise ValueError("its last line is cut off" if text else "it is empty")
    return text.removesuffix("\n").split("\n")
