"""Python's own reference text, `pydoc_data.topics` of the standard library, as a small corpus.

It is on every machine and needs no download. It differs a little between Python versions, and so
does every number measured on it: compare such numbers under one version only.

The text becomes like other corpora of language modelling: lower case, numbers as `N`, punctuation
split off, one paragraph on each line. The topics quote each other at length, so only the first copy
of a paragraph is kept. A topic goes to one split as a whole, and no test paragraph is in the
training text.
"""

import hashlib
import re

import tensorflow as tf

from trainers.data import tokens

_UNDERLINE = re.compile(r"^\s*([^\w\s])\1{3,}\s*$", re.MULTILINE)
_BLANK_LINES = re.compile(r"\n\s*\n")
_HELD_OUT = 0.1


def texts() -> dict[str, str]:
    """Returns the text of "train", "validation" and "test"; the last two are a tenth at most.

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
    return _split(_prepared(topics))


def _prepared(topics: dict[str, str]) -> dict[str, str]:
    """Returns each topic's paragraphs that no earlier topic has, one on each line."""
    seen: set[str] = set()
    prepared = {}
    for name, text in sorted(topics.items()):
        paragraphs = dict.fromkeys(_lines(_BLANK_LINES.split(_UNDERLINE.sub("", text))))
        prepared[name] = "".join(
            f"{line}\n" for line in paragraphs if line and line not in seen
        )
        seen.update(paragraphs)
    return prepared


def _lines(paragraphs: list[str]) -> list[str]:
    """Returns paragraphs as lines of the corpus's words."""
    words = tf.strings.split(tokens.pydoc(tf.constant(paragraphs)))
    lines = tf.strings.reduce_join(words, axis=-1, separator=" ")
    return [line.decode() for line in lines.numpy().tolist()]


def _split(prepared: dict[str, str]) -> dict[str, str]:
    """Deals topics, in the order of their hashes, to the first split with room."""
    total = sum(map(len, prepared.values()))
    room = {
        "validation": _HELD_OUT * total,
        "test": _HELD_OUT * total,
        "train": float(total),
    }
    chosen: dict[str, list[str]] = {split: [] for split in room}
    for name in sorted(
        prepared, key=lambda name: hashlib.sha256(name.encode()).digest()
    ):
        split = next(split for split in room if len(prepared[name]) <= room[split])
        room[split] -= len(prepared[name])
        chosen[split].append(prepared[name])
    return {split: "".join(pieces) for split, pieces in chosen.items()}
