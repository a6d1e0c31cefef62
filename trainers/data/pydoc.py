"""Python's own reference text, `pydoc_data.topics` of the standard library, as a small corpus.

It is on every machine and needs no download. It differs a little between Python versions, and so
does every number measured on it: compare such numbers under one version only.

Its words are like those of other corpora of language modelling: lower case, numbers as `N`,
punctuation split off. Pieces of words are cut from the text as it is. A line has one paragraph. The
topics quote each other at length, so only the first copy of a paragraph is kept, whichever form the
text has. A topic goes to one split as a whole, and no test paragraph is in the training text.
"""

import hashlib
import re
from typing import NamedTuple

from trainers.data import tokens

_UNDERLINE = re.compile(r"^\s*([^\w\s])\1{3,}\s*$", re.MULTILINE)
_BLANK_LINES = re.compile(r"\n\s*\n")
_HELD_OUT = 0.1


class Paragraph(NamedTuple):
    """A paragraph of a topic, in one line.

    Attributes:
        words: its words, with single spaces between them.
        plain: the paragraph itself, its white space as single spaces.
    """

    words: str
    plain: str


def texts(*, plain: bool = False) -> dict[str, str]:
    """Returns the text of "train", "validation" and "test"; the last two are a tenth at most.

    Args:
        plain: whether it is the paragraphs themselves, rather than their words.

    Raises:
        OSError: this Python comes without the text.
    """
    try:
        from pydoc_data.topics import topics
    except ImportError as error:
        raise OSError(
            "--task=pydoc reads the module pydoc_data.topics of Python's standard library, and "
            "this Python comes without it; install the whole standard library, or use "
            "--task=text with --data_dir"
        ) from error
    splits = _split(_prepared(topics))
    return {
        split: "".join(
            f"{each.plain if plain else each.words}\n" for each in paragraphs
        )
        for split, paragraphs in splits.items()
    }


def _prepared(topics: dict[str, str]) -> dict[str, list[Paragraph]]:
    """Returns each topic's paragraphs that no earlier topic has."""
    seen: set[str] = set()
    prepared = {}
    for name, text in sorted(topics.items()):
        plain = _BLANK_LINES.split(_UNDERLINE.sub("", text))
        lines = _lines(plain)
        # The first of those that have the same words.
        by_words = dict(zip(reversed(lines), reversed(plain), strict=True))
        prepared[name] = [
            Paragraph(line, " ".join(by_words[line].split()))
            for line in dict.fromkeys(lines)
            if line and line not in seen
        ]
        seen.update(lines)
    return prepared


def _lines(paragraphs: list[str]) -> list[str]:
    """Returns paragraphs as lines of the corpus's words."""
    return [" ".join(tokens.pydoc.apply(text).split()) for text in paragraphs]


def _split(prepared: dict[str, list[Paragraph]]) -> dict[str, list[Paragraph]]:
    """Deals topics, in the order of their hashes, to the first split with room."""
    sizes = {
        name: sum(len(paragraph.words) + 1 for paragraph in paragraphs)
        for name, paragraphs in prepared.items()
    }
    total = sum(sizes.values())
    room = {
        "validation": _HELD_OUT * total,
        "test": _HELD_OUT * total,
        "train": float(total),
    }
    chosen: dict[str, list[Paragraph]] = {split: [] for split in room}
    for name in sorted(
        prepared, key=lambda name: hashlib.sha256(name.encode()).digest()
    ):
        split = next(split for split in room if sizes[name] <= room[split])
        room[split] -= sizes[name]
        chosen[split] += prepared[name]
    return chosen
