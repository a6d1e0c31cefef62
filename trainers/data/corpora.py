"""Corpora by name: one path from text to the training text's vocabulary to ids.

ptb    the Penn Treebank, downloaded, or the three published files in `data_dir`
text   text of the user's own: train.txt, valid.txt and test.txt in `data_dir`
pydoc  Python's own reference text, on every machine
"""

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping

import numpy as np
from absl import logging
from etils import epath

from trainers.data import encoding, penn_treebank, pydoc, text
from trainers.data.vocabulary import EOS, Vocabulary, split_tokens
from trainers.names import unknown

DEFAULT_CACHE_DIR = "~/.cache/keras_trellis"
_TEXT_FILES = {"train": "train.txt", "validation": "valid.txt", "test": "test.txt"}
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
) -> Corpus:
    """Loads a corpus, encoding it on first use.

    Args:
        task: "ptb", "text" or "pydoc".
        data_dir: The folder of the corpus's text files.
        cache_dir: A local folder for downloads and encoded ids, which may be deleted at any time;
            None stands for `DEFAULT_CACHE_DIR`.

    Raises:
        ValueError: An unknown task, or text files that are missing, empty or not UTF-8.
        OSError: The corpus cannot be downloaded, or the cache not be written.
    """
    if task not in SOURCES:
        raise ValueError(unknown("task", task, SOURCES))
    cache = epath.Path(DEFAULT_CACHE_DIR if cache_dir is None else cache_dir).expanduser()
    source = SOURCES[task](data_dir, cache)
    vocabulary, ids = encoding.encoded(source, cache)
    _warn_of_unknown_words(task, vocabulary, ids)
    return Corpus(task, vocabulary, **ids, checksums=source.checksums, labels=source.labels)


def _ptb(data_dir: epath.PathLike | None, cache_dir: epath.Path) -> encoding.Source:
    if data_dir is not None:
        penn_treebank.check_files(data_dir)

    def tokens(split: str) -> Iterator[list[str]]:
        texts = penn_treebank.texts(data_dir, cache_dir / "tensorflow_datasets")
        yield split_tokens(texts[split])

    return encoding.Source("ptb", penn_treebank.FILES, penn_treebank.checksums(), tokens)


def _pydoc(data_dir: epath.PathLike | None, cache_dir: epath.Path) -> encoding.Source:
    del cache_dir
    if data_dir is not None:
        raise ValueError(
            "`data_dir` must be None: task 'pydoc' reads Python's own text (task='text' reads "
            f"yours). Received: data_dir={str(data_dir)!r}"
        )
    texts = pydoc.texts()
    return encoding.Source(
        name="pydoc",
        labels={split: f"the {split} part of pydoc_data.topics" for split in texts},
        checksums={k: hashlib.sha256(text.encode()).hexdigest() for k, text in texts.items()},
        tokens=lambda split: [split_tokens(texts[split])],
        minimum_count=_PYDOC_MINIMUM_COUNT,
    )


def _text(data_dir: epath.PathLike | None, cache_dir: epath.Path) -> encoding.Source:
    del cache_dir
    paths = text.find_files(data_dir, _TEXT_FILES, "task='pydoc', which needs none")
    labels = {split: f"data_dir={str(data_dir)!r}: {path.name}" for split, path in paths.items()}
    return encoding.Source(
        name="text",
        labels=labels,
        checksums={split: text.sha256(path) for split, path in paths.items()},
        tokens=lambda split: text.read_tokens(paths[split], labels[split]),
    )


_WORDS = {"ptb": penn_treebank.words, "pydoc": pydoc.words}


def tokens_of(task: str, text: str) -> list[str]:
    """Returns the tokens of a text of the user's, in words as the task's own text has them."""
    words = _WORDS.get(task, str.split)
    first, *others = (words(line) for line in text.split("\n"))
    return first + [token for line in others for token in (EOS, *line)]


SOURCES = {"ptb": _ptb, "pydoc": _pydoc, "text": _text}


def _warn_of_unknown_words(task: str, vocabulary: Vocabulary, ids: dict[str, np.ndarray]) -> None:
    """Warns if evaluation text has `<unk>` and training text has none.

    That makes its score meaningless.
    """
    appended = vocabulary.unknown_id == vocabulary.size - 1  # Else it is in the training text.
    if not appended or (ids["train"] == vocabulary.unknown_id).any():
        return
    for split in ("validation", "test"):
        count = int((ids[split] == vocabulary.unknown_id).sum())
        if count:
            logging.warning(
                "%s: %d of %d %s tokens are not in the training text and read <unk>, which the "
                "training text never holds, so that no model can learn it. Write <unk> for rare "
                "words in the text files.",
                task,
                count,
                len(ids[split]),
                split,
            )
