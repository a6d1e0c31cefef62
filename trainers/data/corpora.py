"""Corpora by name: one path from text to the training text's vocabulary to ids.

ptb          the Penn Treebank, downloaded, or the three published files in `data_dir`
ptb_mos      the same
ptb_char     the same, character by character
wikitext2    WikiText-2, downloaded, or its three files in `data_dir`
wikitext103  WikiText-103, likewise
text         text of the user's own: train.txt, valid.txt and test.txt in `data_dir`
pydoc        Python's own reference text, on every machine
"""

import dataclasses
import functools
import hashlib
import io
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from absl import logging
from etils import epath

from trainers.data import downloads, encoding, penn_treebank, pydoc, text, wikitext
from trainers.data.vocabulary import EOS, ORDERS, Vocabulary, split_characters
from trainers.tasks.names import unknown

_TEXT_FILES = {"train": "train.txt", "validation": "valid.txt", "test": "test.txt"}
# How a line of the Penn Treebank becomes characters, each line break one symbol: Mikolov's form has
# no space at either end; the paper counts 396,412 validation symbols, a space a line more; the
# authors' script reads the published file as it is, a space at both ends.
_FORMS = {"mikolov": "{}\n", "paper": " {}\n", "released": " {} \n"}
# Of 62,000 words 3.5 % read <unk>, enough of them to learn what <unk> stands for.
_PYDOC_MINIMUM_COUNT = 3


@dataclasses.dataclass(frozen=True)
class Corpus:
    """An encoded corpus.

    Attributes:
        name: The task's name.
        vocabulary: The vocabulary of the training text.
        train: Token ids [N], int32, read-only and memory-mapped; a line ends in `<eos>`.
        validation: Like `train`.
        test: Like `train`.
        checksums: The SHA-256 of each split's text.
        labels: For each split what to call its text in errors.
    """

    name: str
    vocabulary: Vocabulary
    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray
    checksums: Mapping[str, str]
    labels: Mapping[str, str]


def load(
    task: str,
    data_dir: epath.PathLike | None = None,
    cache_dir: epath.PathLike | None = None,
    **options: Any,
) -> Corpus:
    """Loads a corpus, encoding it on first use.

    Args:
        task: One of `SOURCES`.
        data_dir: The folder of the corpus's text files.
        cache_dir: A local folder for downloads and encoded ids, which may be deleted at any time;
            None stands for `downloads.DEFAULT_CACHE_DIR`.
        **options: Of "ptb_char": `form`, "mikolov", "paper" or "released", and `unknown`, whether
            there is an `<unk>`. Of "wikitext2" and "wikitext103": `order` of the vocabulary.

    Raises:
        ValueError: An unknown task, an option that is not valid, or text files that are missing,
            empty, not UTF-8, or of other symbols than the training text.
        OSError: The corpus cannot be downloaded, or the cache not be written.
    """
    if task not in SOURCES:
        raise ValueError(unknown("task", task, SOURCES))
    cache = downloads.cache_folder(cache_dir)
    source = SOURCES[task](data_dir, cache, **options)
    vocabulary, ids = encoding.encoded(source, cache)
    if task in wikitext.EDITIONS:
        lengths = {split: len(array) for split, array in ids.items()}
        wikitext.warn_of_other_text(task, lengths, vocabulary.size)
    _warn_of_unknown_words(task, vocabulary, ids)
    return Corpus(task, vocabulary, **ids, checksums=source.checksums, labels=source.labels)


def _ptb(data_dir: epath.PathLike | None, cache_dir: epath.Path) -> encoding.Source:
    return _penn_treebank("ptb", data_dir, cache_dir, lambda text: text)


def _ptb_char(
    data_dir: epath.PathLike | None,
    cache_dir: epath.Path,
    form: str = "mikolov",
    unknown: bool = False,
) -> encoding.Source:
    _check_option("form", form, tuple(_FORMS))

    def characters(text: str) -> str:
        return "".join(_FORMS[form].format(line.strip(" ")) for line in text.splitlines())

    return _penn_treebank(
        "ptb_char",
        data_dir,
        cache_dir,
        characters,
        split=split_characters,
        settings={"unknown": unknown},
        form=form,
    )


def _penn_treebank(
    name: str,
    data_dir: epath.PathLike | None,
    cache_dir: epath.Path,
    prepare: Callable[[str], str],
    **fields: Any,
) -> encoding.Source:
    if data_dir is not None:
        penn_treebank.check_files(data_dir)

    @functools.cache
    def texts() -> dict[str, str]:
        return penn_treebank.texts(data_dir, cache_dir / "tensorflow_datasets")

    return encoding.Source(
        name,
        penn_treebank.FILES,
        penn_treebank.checksums(),
        lambda split: io.BytesIO(prepare(texts()[split]).encode()),
        **fields,
    )


def _wikitext(
    name: str, data_dir: epath.PathLike | None, cache_dir: epath.Path, order: str = "appearance"
) -> encoding.Source:
    _check_option("order", order, ORDERS)
    paths = wikitext.find(name, data_dir, cache_dir / "downloads")
    return _of_files(name, paths, settings={"order": order})


def _pydoc(data_dir: epath.PathLike | None, cache_dir: epath.Path) -> encoding.Source:
    del cache_dir
    if data_dir is not None:
        raise ValueError(
            "--data_dir has no use for --task=pydoc, which reads Python's own text (--task=text "
            f"reads yours). Received: --data_dir={data_dir}"
        )
    texts = {split: text.encode() for split, text in pydoc.texts().items()}
    return encoding.Source(
        name="pydoc",
        labels={split: f"the {split} part of pydoc_data.topics" for split in texts},
        checksums={split: hashlib.sha256(text).hexdigest() for split, text in texts.items()},
        open=lambda split: io.BytesIO(texts[split]),
        settings={"minimum_count": _PYDOC_MINIMUM_COUNT},
    )


def _text(data_dir: epath.PathLike | None, cache_dir: epath.Path) -> encoding.Source:
    del cache_dir
    paths = text.find_files(data_dir, _TEXT_FILES, "--task=pydoc, which needs none")
    return _of_files("text", paths)


def _of_files(name: str, paths: Mapping[str, epath.Path], **fields: Any) -> encoding.Source:
    """Returns the source that text files are, as they are."""
    for path in paths.values():
        text.check(path)
    return encoding.Source(
        name=name,
        labels={split: os.fspath(path) for split, path in paths.items()},
        checksums={split: text.sha256(path) for split, path in paths.items()},
        open=lambda split: paths[split].open("rb"),
        **fields,
    )


def _check_option(name: str, value: Any, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(
            f"`config.corpus.{name}` must be one of {known}. Received: "
            f"config.corpus.{name}={value!r}"
        )


_WORDS = {
    **dict.fromkeys(("ptb", "ptb_mos", "ptb_char"), penn_treebank.words),
    "pydoc": pydoc.words,
}


def tokens_of(task: str, text: str) -> list[str]:
    """Returns the tokens of a text of the user's, in words as the task's own text has them."""
    words = _WORDS.get(task, str.split)
    lines = [words(line) for line in text.split("\n")]
    if task == "ptb_char":
        return split_characters("\n".join(" ".join(line) for line in lines))
    return lines[0] + [token for line in lines[1:] for token in (EOS, *line)]


def count(ids: np.ndarray, token: int | None) -> int:
    """Returns how often a token stands in ids, which may be more than fit in memory."""
    return sum(int((part == token).sum()) for part in _parts(ids)) if token is not None else 0


SOURCES: dict[str, Callable[..., encoding.Source]] = {
    "ptb": _ptb,
    "ptb_mos": _ptb,
    "ptb_char": _ptb_char,
    **{name: functools.partial(_wikitext, name) for name in wikitext.EDITIONS},
    "pydoc": _pydoc,
    "text": _text,
}


def _warn_of_unknown_words(task: str, vocabulary: Vocabulary, ids: dict[str, np.ndarray]) -> None:
    """Warns if evaluation text has `<unk>` and training text has none.

    That makes its score meaningless.
    """
    unknown = vocabulary.unknown_id
    appended = unknown == vocabulary.size - 1  # Else it is in the training text, or not at all.
    if not appended or any((part == unknown).any() for part in _parts(ids["train"])):
        return
    for split in ("validation", "test"):
        found = count(ids[split], unknown)
        if found:
            logging.warning(
                "%s: %d of %d %s tokens are not in the training text and read <unk>, which the "
                "training text never holds, so that no model can learn it. Write <unk> for rare "
                "words in the text files.",
                task,
                found,
                len(ids[split]),
                split,
            )


def _parts(ids: np.ndarray, size: int = 1 << 20) -> Iterator[np.ndarray]:
    return (ids[start : start + size] for start in range(0, len(ids), size))
