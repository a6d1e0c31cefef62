"""What a model card tells of a task's data: what it is, whose it is, how a text is made like it."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from keras_trellis.export.cards import NOT_STATED

__all__ = ["of_data", "unknown_words"]


class _Data(NamedTuple):
    """What is known of a task's data.

    Attributes:
        name: What it is.
        licence: What its publisher says; nothing here is advice on the law.
        made_ready: What a text goes through that is asked about, `trainers.tasks.standardize`.
    """

    name: str
    licence: str = NOT_STATED
    made_ready: str | None = None


_LOWER = "lower case, numbers as `N`"
_PENN_TREEBANK = "the Penn Treebank, Wall Street Journal of 1989, as Mikolov preprocessed it"
_OF_LDC = (
    f"{NOT_STATED} with the preprocessed files; the Penn Treebank itself is licensed by the "
    "Linguistic Data Consortium (LDC99T42)"
)
_WIKIPEDIA = "Creative Commons Attribution-ShareAlike, which is Wikipedia's"
_DATA = {
    "ptb": _Data(_PENN_TREEBANK, _OF_LDC, _LOWER),
    "ptb_mos": _Data(_PENN_TREEBANK, _OF_LDC, _LOWER),
    "ptb_char": _Data(f"{_PENN_TREEBANK}, by characters", _OF_LDC, f"{_LOWER}, single spaces"),
    "wikitext2": _Data("WikiText-2, good and featured articles of Wikipedia", _WIKIPEDIA),
    "wikitext103": _Data("WikiText-103, good and featured articles of Wikipedia", _WIKIPEDIA),
    "pydoc": _Data(
        "`pydoc_data.topics`, Python's own reference text",
        "Python Software Foundation License, as Python's documentation",
        f"{_LOWER}, punctuation split off",
    ),
    "text": _Data("text files of the user's own"),
    "seq_mnist": _Data("MNIST, handwritten digits, pixel by pixel"),
    "permuted_mnist": _Data("MNIST, handwritten digits, pixel by pixel in an order drawn once"),
    "seq_cifar10": _Data("CIFAR-10, small photographs, pixel by pixel"),
}


def of_data(task: str, checksums: Mapping[str, str]) -> dict[str, str]:
    """Returns what a model card tells of the data of a run.

    Args:
        task: The task's name, one whose models are served.
        checksums: The SHA-256 of each split; empty where the run did not keep them.
    """
    data = _DATA[task]
    sums = ", ".join(f"{split} {sha256}" for split, sha256 in checksums.items())
    facts = {
        "Trained on": data.name,
        "Licence of the data": data.licence,
        "SHA-256 of the data": sums or NOT_STATED,
    }
    return facts | ({"Text is made ready": data.made_ready} if data.made_ready else {})


def unknown_words(kept: Mapping[str, Any]) -> dict[str, str]:
    """Returns what a model card tells of the test text's unknown words.

    Args:
        kept: What the run kept of its text; see `language_runs.keep_corpus`.
    """
    if "unknown" not in kept:
        return {"Unknown words in the test text": "not measured"}
    count, tokens = (kept[name]["test"] for name in ("unknown", "tokens"))
    share = f"{100 * count / tokens:.2f} % ({count:,} of {tokens:,} tokens)"
    return {"Unknown words in the test text": share}
