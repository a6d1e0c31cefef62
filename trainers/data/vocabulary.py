"""Words to ids and back; the vocabulary of a word-level corpus, a text file of one token a line."""

import collections
from collections.abc import Iterable, Sequence

import numpy as np
from etils import epath

from trainers.files import write_atomically

UNKNOWN = "<unk>"
EOS = "<eos>"


def split_tokens(text: str) -> list[str]:
    """Splits text at white space; the end of each line reads `<eos>`, also that of a blank one."""
    return text.replace("\n", f" {EOS} ").split()


class Vocabulary:
    """An immutable list of distinct tokens, `<unk>` and `<eos>` among them.

    A token's id is its place in the list.

    Attributes:
        tokens: All tokens, in the order of their ids.
        unknown_id: The id of `<unk>`, which stands for every token that is not in the vocabulary.
        eos_id: The id of `<eos>`, the end of a line.
    """

    def __init__(self, tokens: Iterable[str]):
        self.tokens = tuple(tokens)
        self._ids = {token: index for index, token in enumerate(self.tokens)}
        self._check()
        self.unknown_id = self._ids[UNKNOWN]
        self.eos_id = self._ids[EOS]

    def _check(self) -> None:
        seen = set()
        for index, token in enumerate(self.tokens):
            if not token or "\n" in token:
                raise ValueError(
                    "each of `tokens` must be a non-empty word of one line. "
                    f"Received: tokens[{index}]={token!r}"
                )
            if token in seen:
                raise ValueError(
                    "each of `tokens` must stand there once. "
                    f"Received: tokens[{index}]={token!r} a second time"
                )
            seen.add(token)
        for token in (UNKNOWN, EOS):
            if token not in seen:
                raise ValueError(
                    f"`tokens` must have {token!r}. Received: {len(seen)} tokens without it"
                )

    @classmethod
    def from_chunks(cls, chunks: Iterable[Sequence[str]], minimum_count: int = 1) -> "Vocabulary":
        """Builds the vocabulary of a training text, in order of first appearance.

        `<unk>` keeps its place where the text holds it already, as Penn Treebank and WikiText do,
        and is appended as the last token where it does not.

        Args:
            chunks: The text's tokens, in pieces of any length.
            minimum_count: Tokens seen less often are left out, so that they read `<unk>`.
        """
        counts: collections.Counter[str] = collections.Counter()
        for chunk in chunks:
            counts.update(chunk)
        kept = [t for t, count in counts.items() if count >= minimum_count or t in (UNKNOWN, EOS)]
        return cls(kept + [token for token in (EOS, UNKNOWN) if token not in counts])

    @property
    def size(self) -> int:
        """The number of tokens."""
        return len(self.tokens)

    def encode(self, tokens: Iterable[str]) -> np.ndarray:
        """Returns the int32 ids of tokens; one that is not in the vocabulary reads `<unk>`."""
        if isinstance(tokens, str):
            raise ValueError(
                "`tokens` must be a sequence of tokens (encode_text takes text). "
                f"Received: tokens={tokens[:40]!r}"
            )
        unknown = self.unknown_id
        return np.asarray([self._ids.get(token, unknown) for token in tokens], dtype=np.int32)

    def encode_text(self, text: str) -> np.ndarray:
        """Returns the int32 ids of text split at white space; each line break reads `<eos>`."""
        return self.encode(split_tokens(text))

    def decode(self, ids: Iterable[int]) -> str:
        """Joins the tokens of ids with spaces; `<eos>` becomes a line break.

        Raises:
            ValueError: An id lies outside the vocabulary.
        """
        words = []
        for index in map(int, ids):
            if not 0 <= index < self.size:
                raise ValueError(
                    f"`ids` must be from 0 to {self.size - 1}. Received: {index} among them"
                )
            words.append("\n" if index == self.eos_id else self.tokens[index])
        return " ".join(words).replace(" \n", "\n").replace("\n ", "\n")

    def save(self, path: epath.PathLike) -> None:
        """Writes the tokens to a UTF-8 text file, one a line, whole or not at all."""
        text = "".join(f"{token}\n" for token in self.tokens)
        write_atomically(path, lambda file: file.write(text.encode()))

    @classmethod
    def load(cls, path: epath.PathLike) -> "Vocabulary":
        """Reads what `save` wrote.

        Raises:
            ValueError: The file is not UTF-8, or not a vocabulary.
        """
        try:
            return cls(epath.Path(path).read_bytes().decode().removesuffix("\n").split("\n"))
        except ValueError as error:  # UnicodeDecodeError is one.
            raise ValueError(
                f"`path` must be a vocabulary of one token a line. Received: path={str(path)!r} "
                f"({error})"
            ) from error
