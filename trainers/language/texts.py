"""The text of a run, and what the run's folder keeps of it."""

from typing import Any, TypeVar

from etils import epath
from ml_collections import ConfigDict

from trainers.data import files
from trainers.data.pieces import PieceVocabulary
from trainers.data.text import sha256
from trainers.data.vocabulary import Vocabulary
from trainers.language import corpora
from trainers.tasks import registry
from trainers.training.experiment import SPLITS
from trainers.training.workdir import RESTORE, WorkdirError, read_record

VOCABULARY, CORPUS = "vocabulary.txt", "corpus.json"
_CHECKSUM = "vocabulary_sha256"
_Kind = TypeVar("_Kind", bound=Vocabulary)


def load_corpus(
    config: ConfigDict, data_dir: str | None, path: epath.Path | None = None
) -> corpora.Corpus:
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
    return corpora.load(task, data_dir, vocabulary=pieces, **config.get("corpus", {}))


def keep_corpus(path: epath.Path, corpus: corpora.Corpus) -> None:
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
            "unknown": {
                split: corpora.count(ids, unknown) for split, ids in texts.items()
            },
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


def check_corpus(path: epath.Path, corpus: corpora.Corpus) -> None:
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
