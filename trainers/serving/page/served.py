"""An exported language model in this process, and what the page asks of it."""

import functools
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from keras_trellis.export import versions
from keras_trellis.serving import tokenizer
from trainers.serving.exported import ExportedModel
from trainers.serving.writing import Asked, Sampling, generate, score, unknown

# The page opens with one of these, each like the training text of a task, with a surprise in it.
_EXAMPLES = (
    "the company said it expects to report a loss for the third quarter\n"
    "the violin player sold his shares in a piano factory",
    "the with statement is used to wrap the execution of a block with methods defined by a piano",
    "The ship was built in the 19th century , and was named after the king of the piano .",
)
_LINE_BREAK = "<eos>"
_MOST_UNKNOWN = 0.25  # the share of an example's tokens
_WRITTEN = Sampling(max_length=24, temperature=1.0, top_k=40, top_p=1.0, seed=0)
# Of a card's table, whose cells have \| for a bar.
_ROW = re.compile(r"^\| (.+?) \| (.*) \|$", re.MULTILINE)
_CARD = os.path.join("assets.extra", "model_card.md")

_NEEDED = frozenset({"tokenize", "score", "prefill", "generate"})


class ServedModel(ExportedModel):
    """The newest version of an exported language model.

    Args:
        path: the model's folder.

    Attributes:
        name: the folder's name, and the version.
        card: the first table of its model card, by name.

    Raises:
        ValueError: the folder has no language model.
    """

    def __init__(self, path: str) -> None:
        version = versions.newest(path)
        self.name = (
            f"{os.path.basename(path.rstrip('/'))}, version {os.path.basename(version)}"
        )
        self.card = _card(os.path.join(version, _CARD))
        self._version = Path(version)
        super().__init__(version, _NEEDED)
        if "words" not in self.outputs("score"):
            raise ValueError(
                f"{version} is of a version that tells no unknown words: export again"
            )

    @functools.cached_property
    def in_print(self) -> Callable[[str], str]:
        """What writes words with single spaces between them as in print."""
        if not (self._version / tokenizer.NAME).exists():  # of an earlier version
            return str
        return tokenizer.Tokenizer.load(self._version).in_print


def scored(model: ServedModel, text: str) -> dict[str, Any]:
    """Returns the fields of `Scores`, and `blanks`, what stands before each token of a line.

    Raises:
        ValueError: the model cannot read the text, or its numbers are not finite.
    """
    scores = score(model, text)
    if not np.isfinite(scores.nll).all():
        raise ValueError(
            "the model's probabilities are not finite: its weights are damaged"
        )
    # A space is a token of characters, and a piece; between words it is none.
    if model("tokenize", text=[" "])["lengths"][0]:
        blanks = [""] * len(scores.words)
    else:
        blanks = _blanks(scores.words, model.in_print)
    return {**scores._asdict(), "blanks": blanks}


def _blanks(words: list[str], in_print: Callable[[str], str]) -> list[str]:
    """Returns what stands before each word in print: a space or nothing."""
    lines: list[list[str]] = [[]]
    for word in words:
        lines[-1].append(word)
        if word == _LINE_BREAK:
            lines.append([])
    return [blank for line in lines for blank in _line_blanks(line, in_print)]


def _line_blanks(line: list[str], in_print: Callable[[str], str]) -> list[str]:
    given = [word for word in line if word != _LINE_BREAK]
    text = in_print(" ".join(given))
    blanks, shown = [], ""
    for word in given:
        blanks.append(" " if text.startswith(f" {word}", len(shown)) else "")
        shown += blanks[-1] + word
    if shown != text:  # in print some words are others
        blanks = ["", *[" "] * (len(given) - 1)]
    return blanks + [""] * (len(line) - len(given))


def example(model: Asked) -> str:
    """Returns a text to show a model with: one whose words it knows, or else one that it writes."""
    shares = {text: _unknown(model, text) for text in _EXAMPLES}
    text = min(shares, key=shares.__getitem__)
    if shares[text] <= _MOST_UNKNOWN:
        return text
    return "".join(generate(model, "", _WRITTEN)).strip()


def _unknown(model: Asked, text: str) -> float:
    """Returns the share of a text's tokens that the vocabulary does not have."""
    try:
        counts = unknown(model, text)
    except ValueError:  # it has no `<unk>`
        return 1.0
    return counts.tokens / max(counts.of, 1)


def _card(path: str) -> dict[str, str]:
    """Returns the rows of a model card's first table; none if there is no card."""
    try:
        text = tf.io.gfile.GFile(path).read()
    except (OSError, tf.errors.OpError):
        return {}
    table = text[text.find("\n|") :].partition("\n\n")[0]
    rows = ([cell.replace("\\|", "|") for cell in row] for row in _ROW.findall(table))
    return dict(rows)
