"""Loads the text of a task as ids of the training text's vocabulary; what a run keeps of it."""

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
from absl import logging
from etils import epath
from ml_collections import ConfigDict

from trainers.data import encoding, files
from trainers.data.encoding import Source
from trainers.data.names import unknown
from trainers.data.pieces import PieceVocabulary
from trainers.data.text import sha256
from trainers.data.vocabulary import Vocabulary
from trainers.language.tasks.task import LanguageTask
from trainers.tasks import registry, schema
from trainers.training.experiment import SPLITS
from trainers.training.workdir import RESTORE, WorkdirError, read_record

VOCABULARY, CORPUS = "vocabulary.txt", "corpus.json"
_CHECKSUM = "vocabulary_sha256"
_Kind = TypeVar("_Kind", bound=Vocabulary)


@dataclasses.dataclass(frozen=True)
class Corpus:
    """An encoded corpus.

    Attributes:
        vocabulary: the vocabulary of the training text.
        train: token ids `[N]`, int32, read-only and memory-mapped; a line ends in `<eos>`.
        validation: like `train`.
        test: like `train`.
        source: where the text is from.
    """

    vocabulary: Vocabulary
    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray
    source: Source

    @property
    def checksums(self) -> Mapping[str, str]:
        """The SHA-256 of each split's text."""
        return self.source.checksums

    @property
    def labels(self) -> Mapping[str, str]:
        """What errors call the text of each split."""
        return self.source.labels


def load(
    name: str | LanguageTask,
    data_dir: epath.PathLike | None = None,
    cache_dir: epath.PathLike | None = None,
    *,
    vocabulary: PieceVocabulary | None = None,
    **options: Any,
) -> Corpus:
    """Loads a corpus, encoding it on first use.

    Args:
        name: a task of language, or its name.
        data_dir: the folder of the corpus's text files.
        cache_dir: a local folder for downloads and encoded ids, which may be deleted at any time;
            None: `files.DEFAULT_CACHE_DIR`.
        vocabulary: the pieces of words, where they are known already.
        **options: the values of the config's group `corpus`.

    Raises:
        ImportError: the package that learns pieces is not installed.
        ValueError: the task is unknown, an option is not valid, or a text file is missing, empty,
            not UTF-8, or has symbols that the training text lacks.
        OSError: the corpus cannot be downloaded, or the cache cannot be written.
    """
    task: Any = name
    if not isinstance(name, LanguageTask):
        texts = registry.trained_by(LanguageTask.program)
        if name not in texts:
            raise ValueError(unknown("task", name, texts))
        task = registry.get(name)
    schema.check_values(
        {f"corpus.{option}": value for option, value in options.items()}, task.fields
    )
    cache = files.cache_folder(cache_dir)
    source = task.source(task, data_dir, cache, **options)
    source = dataclasses.replace(source, pieces=task.pieces, vocabulary=vocabulary)
    words, ids = encoding.encoded(source, cache)
    _warn_about_other_text(task, words, ids)
    _warn_about_unknown_words(task.name, words, ids)
    return Corpus(words, **ids, source=source)


def count(ids: np.ndarray, token: int | None) -> int:
    """Counts a token in ids; needs a byte of memory for each of them."""
    return 0 if token is None else int(np.count_nonzero(ids == token))


def _warn_about_other_text(
    task: LanguageTask, vocabulary: Vocabulary, ids: Mapping[str, np.ndarray]
) -> None:
    """Warns if a text has other numbers of tokens and words than the published one."""
    lengths = {split: len(array) for split, array in ids.items()}
    published = (task.lengths, task.vocabulary_size)
    if task.lengths and (lengths, vocabulary.size) != published:
        logging.warning(
            "%s: this is not the published text, so that its numbers stand beside no others: it "
            "has %s tokens and %d words; published are %s and %d",
            task.name,
            _numbers(lengths),
            vocabulary.size,
            _numbers(task.lengths),
            task.vocabulary_size,
        )


def _numbers(lengths: Mapping[str, int]) -> str:
    return " / ".join(f"{length:,}" for length in lengths.values())


def _warn_about_unknown_words(
    name: str, vocabulary: Vocabulary, ids: dict[str, np.ndarray]
) -> None:
    """Warns if evaluation text has `<unk>` and training text has none.

    That makes its score meaningless.
    """
    unknown = vocabulary.unknown_id
    # An unknown word that was not appended is in the training text, or nowhere.
    appended = unknown == vocabulary.size - 1
    if not appended or count(ids["train"], unknown):
        return
    for split in SPLITS:
        if unseen := count(ids[split], unknown):
            logging.warning(
                "%s: %d of %d %s tokens are not in the training text and read <unk>, which the "
                "training text never holds, so that no model can learn it. Write <unk> for rare "
                "words in the text files.",
                name,
                unseen,
                len(ids[split]),
                split,
            )


def load_corpus(
    config: ConfigDict, data_dir: str | None, path: epath.Path | None = None
) -> Corpus:
    """Returns the text of a run.

    Args:
        config: the run's config.
        data_dir: the folder of the corpus's text files.
        path: the run's folder, whose vocabulary of pieces is used if there is one; None: none is.
            Another version of the package that learns pieces may learn others of the same text.

    Raises:
        ValueError, OSError, ImportError: it cannot be used.
    """
    task = registry.configured(config)
    pieces = None
    if path is not None and task.pieces is not None:
        if files.exists(path / VOCABULARY):
            pieces = saved_vocabulary(path, PieceVocabulary)
    return load(task, data_dir, vocabulary=pieces, **config.get("corpus", {}))


def keep_corpus(path: epath.Path, corpus: Corpus) -> None:
    """Records a run's text in its folder, the first time; later checks that it is the same.

    The record has the vocabulary, the checksums, and the numbers of tokens and of `<unk>` in the
    splits that are scored.
    """
    check_corpus(path, corpus)
    if not files.exists(path / VOCABULARY):
        corpus.vocabulary.save(path / VOCABULARY)
    if not files.exists(path / CORPUS):
        texts = {split: getattr(corpus, split) for split in SPLITS}
        unknown = corpus.vocabulary.unknown_id
        record = {
            "sha256": dict(corpus.checksums),
            "tokens": {split: len(ids) for split, ids in texts.items()},
            "unknown": {split: count(ids, unknown) for split, ids in texts.items()},
            _CHECKSUM: sha256(path / VOCABULARY),
        }
        files.write_json(path / CORPUS, record)


def saved_corpus(path: epath.Path) -> dict[str, Any]:
    """Returns the record of `keep_corpus`; raises WorkdirError if it is damaged."""
    record = read_record(path / CORPUS, {"sha256": dict}) or {}
    if "unknown" in record:  # earlier versions did not count them
        read_record(path / CORPUS, {"unknown.test": int, "tokens.test": int})
    return record


def saved_vocabulary(path: epath.Path, kind: type[_Kind]) -> _Kind:
    """Returns a run's vocabulary; raises WorkdirError if it is damaged."""
    file = path / VOCABULARY
    try:
        vocabulary = kind.load(file)
    except ValueError as error:
        raise WorkdirError(f"{error}. {RESTORE}") from error
    if saved_corpus(path).get(_CHECKSUM) not in (None, sha256(file)):
        raise WorkdirError(
            f"{file} is damaged: its checksum is not the run's. {RESTORE}"
        )
    return vocabulary


def check_corpus(path: epath.Path, corpus: Corpus) -> None:
    """Raises WorkdirError if a run was trained on another text."""
    checksums = corpus.checksums
    recorded = saved_corpus(path).get("sha256", checksums)
    differing = [name for name in checksums if recorded.get(name) != checksums[name]]
    # The vocabulary is all that a run of an early version has of its text.
    if not differing and files.exists(path / VOCABULARY):
        kind = type(corpus.vocabulary)
        if saved_vocabulary(path, kind).tokens != corpus.vocabulary.tokens:
            differing = ["train"]
    if differing:
        raise WorkdirError(
            f"{path} belongs to a run on another text ({', '.join(differing)}); "
            "give that run's text by --data_dir, or choose another --workdir"
        )
