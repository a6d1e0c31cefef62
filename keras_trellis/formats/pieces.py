"""Pieces of words: a vocabulary that knows every text, and how it cuts one.

A piece is one byte of UTF-8 or several. A vocabulary has each byte, so that no text is unknown. A
text is cut from its beginning on, each time by the longest piece that its rest begins with. A line
break is a piece of its own, and part of no other.

A vocabulary has names of pieces, which are text: a character stands for a byte, as in the
vocabularies of GPT-2 and of the package `tokenizers` (`ByteLevel`). `<eos>` is the line break.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

LINE_BREAK = ord("\n")

# Bytes that have no character of their own, or a blank one, take those after Latin-1.
_OWN = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = [byte for byte in range(0x100) if byte not in _OWN]
CHARACTERS: dict[int, str] = {byte: chr(byte) for byte in _OWN} | {
    byte: chr(0x100 + index) for index, byte in enumerate(_OTHERS)
}
"""The character that stands for each byte in the name of a piece."""

_BYTES = {character: byte for byte, character in CHARACTERS.items()}


def read_names(names: Sequence[str], line_break: str) -> list[bytes]:
    """Returns the pieces of a vocabulary.

    Args:
        names: their names, each once.
        line_break: the name of the line break.

    Raises:
        ValueError: a name has a character that stands for no byte, or for the line break; or a byte
            has no name.
    """
    pieces = [_read_name(index, text, line_break) for index, text in enumerate(names)]
    known = {*pieces}
    for byte, character in CHARACTERS.items():
        if bytes([byte]) not in known:
            missing = line_break if byte == LINE_BREAK else character
            raise ValueError(
                "`vocabulary` of pieces must have a name for each of the 256 bytes, so that it "
                f"knows every text. Received: {len(names)} names without {missing!r}"
            )
    return pieces


def _read_name(index: int, text: str, line_break: str) -> bytes:
    if text == line_break:
        return bytes([LINE_BREAK])
    piece = bytes(_BYTES.get(character, LINE_BREAK) for character in text)
    if LINE_BREAK in piece:
        raise ValueError(
            "each name of `vocabulary` must be made of the characters that stand for bytes but the "
            f"line break. Received: vocabulary[{index}]={text!r}"
        )
    return piece


class Pieces:
    """What cuts texts.

    Args:
        pieces: the vocabulary, in the order of the ids; each byte is one of them.
    """

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces = pieces
        self._ids = {piece: index for index, piece in enumerate(pieces)}
        self._longest = [1] * 0x100
        for piece in pieces:
            first = piece[0]
            self._longest[first] = max(self._longest[first], len(piece))

    def cut(self, text: bytes) -> list[int]:
        """Returns the ids of a text."""
        ids = []
        start = 0
        while start < len(text):
            stop = min(start + self._longest[text[start]], len(text))
            while text[start:stop] not in self._ids:
                stop -= 1
            ids.append(self._ids[text[start:stop]])
            start = stop
        return ids

    def join(self, ids: Iterable[int]) -> bytes:
        """Returns the text of ids."""
        return b"".join(self._pieces[index] for index in ids)
