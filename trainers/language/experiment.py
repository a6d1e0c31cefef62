"""What `trainers.lm` does: train a run, evaluate it, sample from it."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import keras
import ml_collections
import numpy as np
from etils import epath

from keras_trellis import TrellisLM
from keras_trellis.export import export_language_model, inference_model
from trainers.data import files
from trainers.data.text import sha256
from trainers.data.vocabulary import EOS, UNKNOWN, Vocabulary
from trainers.language import adaptation, evaluation, modeling, models
from trainers.tasks import corpora, provenance, registry
from trainers.training import checkpoints, memory, runs
from trainers.training.workdir import RESTORE, WorkdirError, read_kept

VOCABULARY, CORPUS = "vocabulary.txt", "corpus.json"
_SPLITS = ("validation", "test")
_CHECKSUM = "vocabulary_sha256"


class LanguageExperiment:
    """The `runs.Experiment` of a language model on a corpus.

    Args:
        config: The run's config.
        data_dir: The folder of the corpus's text files.

    Raises:
        ValueError, OSError: The corpus cannot be used.
    """

    def __init__(self, config: ml_collections.ConfigDict, data_dir: str | None) -> None:
        self._config = config
        self._corpus = load_corpus(config, data_dir)
        self._measure = registry.language(config.task).measure
        name = f"the training text ({self._corpus.labels['train']})"
        modeling.check_training_text(name, len(self._corpus.train), config.data)
        for split in _SPLITS:
            name = f"the {split} text ({self._corpus.labels[split]})"
            tokens = len(getattr(self._corpus, split))
            evaluation.check_text(name, tokens, config.data, config.evaluation)

    def need(self, config: ml_collections.ConfigDict) -> memory.Need:
        """Returns the memory that training by a config takes, on this text."""
        return models.need(config, self._corpus.vocabulary.size)

    def check_replicas(self, replicas: int) -> None:
        """Raises ValueError where that many replicas cannot share the batches."""
        size = self._config.data.batch_size
        if size % replicas:
            raise ValueError(
                f"`config.data.batch_size` must be divisible by the {replicas} devices, or "
                f"--distribute=none. Received: config.data.batch_size={size}"
            )

    def build(self) -> keras.Model:
        """Returns the model, built."""
        return models.build(self._config, self._corpus.vocabulary.size)

    def task(self, model: keras.Model) -> modeling.LanguageModeling:
        """Returns what the loop trains."""
        return modeling.LanguageModeling(
            model, self._config, self._corpus.train, self._corpus.validation
        )

    def keep(self, path: epath.Path) -> None:
        """Binds the folder of a run to its text."""
        keep_corpus(path, self._corpus)

    def introduction(self, model: keras.Model) -> str:
        """Returns a line on the text and the model."""
        words = self._corpus.vocabulary.size
        parameters = runs.parameters(model)
        estimate = self.need(self._config).about
        return (
            f"{len(self._corpus.train):,} training {self._measure.counted}, "
            f"{words:,} {self._measure.types}; {parameters:,} parameters; "
            f"about {estimate / 2**30:.1f} GiB of memory in training"
        )

    def score(self, task: Any, check: Callable[[], None]) -> runs.Scores:
        """Scores both splits under both protocols."""
        scores: dict[str, dict[str, evaluation.Score]] = {split: {} for split in _SPLITS}
        for split, of_split in scores.items():
            for protocol in evaluation.PROTOCOLS:
                check()
                of_split[protocol] = task.evaluator.score(protocol, getattr(self._corpus, split))
        measure = self._measure
        described = (evaluation.describe(*each, measure) for each in scores.items())
        values = {
            split: {
                protocol: {**score._asdict(), measure.name: measure.of(score.mean)}
                for protocol, score in of_split.items()
            }
            for split, of_split in scores.items()
        }
        return runs.Scores("; ".join(described), values)


def train(
    config: ml_collections.ConfigDict,
    path: epath.Path,
    data_dir: str | None = None,
    distribute: str | None = None,
) -> None:
    """Trains a run; `runs.train` says more.

    Args:
        config: The run's config.
        path: The run's folder.
        data_dir: The folder of the corpus's text files.
        distribute: "none", "mirrored"; None: "mirrored" where there is a GPU.

    Raises:
        ValueError, OSError, WorkdirError: The config, the corpus or the folder cannot be used.
        loop.NonFiniteLossError: The loss is NaN or infinite.
    """
    runs.train(lambda: LanguageExperiment(config, data_dir), config, path, distribute)


def evaluate(
    path: epath.Path,
    data_dir: str | None,
    protocols: Sequence[str],
    dynamic: adaptation.DynamicEvaluation | None = None,
    cache: adaptation.ContinuousCache | None = None,
) -> None:
    """Prints what a run's best model measures on validation and test data.

    Args:
        path: The run's folder.
        data_dir: The folder of the corpus's text files.
        protocols: Which of `evaluation.PROTOCOLS`.
        dynamic: Dynamic evaluation, which a further score, "adapted", is with; None: without.
        cache: A continuous cache, likewise.

    Raises:
        ValueError, OSError, WorkdirError: The corpus or the folder cannot be used.
    """
    config = runs.load_config(path)
    corpus = load_corpus(config, data_dir)
    check_corpus(path, corpus)
    memory.check_weights(models.parameters(config, corpus.vocabulary.size))
    model = models.build(config, corpus.vocabulary.size)
    checkpoints.load_best(path, model)
    evaluator = evaluation.Evaluator(model, config.data, config.evaluation)
    adaptive = None
    if dynamic or cache:
        chunk = config.evaluation.exact_chunk
        adaptive = adaptation.AdaptiveEvaluator(
            model, corpus.train, chunk, dynamic=dynamic, cache=cache
        )
    measure = registry.language(config.task).measure
    for split in _SPLITS:
        ids = getattr(corpus, split)
        scores = {protocol: evaluator.score(protocol, ids) for protocol in protocols}
        if adaptive:
            scores["adapted"] = adaptive.exact(ids)
        print(evaluation.describe(split, scores, measure), flush=True)


def generate(path: epath.Path, prompt: str, max_length: int, **sampling: Any) -> str:
    """Returns a prompt and its continuation by a run's best model, which never writes `<unk>`.

    Args:
        path: The run's folder.
        prompt: The text to begin with, made ready as the task's text is; unknown words are told.
            Where it is empty, the end of a line.
        max_length: Length of the text in tokens, the prompt's included.
        **sampling: `temperature`, `top_k`, `top_p` and `seed` of `TrellisLM.generate`.

    Raises:
        ValueError, WorkdirError: An argument is out of range, or the folder cannot be used.
    """
    model, vocabulary, config = load_trained(path)
    tokens = registry.language(config.task).tokens_of(prompt)
    _tell_unknown(tokens, vocabulary)
    ids = vocabulary.encode(tokens or [EOS])
    forbidden = None if vocabulary.unknown_id is None else [vocabulary.unknown_id]
    text = model.generate(ids[None], max_length, forbidden_ids=forbidden, **sampling)
    return vocabulary.decode(np.asarray(text)[0]).strip()


def load_trained(path: epath.Path) -> tuple[TrellisLM, Vocabulary, ml_collections.ConfigDict]:
    """Returns a run's best model, its vocabulary and its config.

    Args:
        path: The run's folder.

    Raises:
        ValueError, WorkdirError: The run has no weights, or they do not fit in memory.
    """
    config = runs.load_config(path)
    if not files.exists(path / VOCABULARY):
        raise WorkdirError(f"{path} has no trained weights yet: {VOCABULARY} is missing")
    vocabulary = _kept_vocabulary(path)
    memory.check_weights(models.parameters(config, vocabulary.size))
    model = models.build(config, vocabulary.size)
    checkpoints.load_best(path, model)
    return model, vocabulary, config


def export(path: epath.Path, output: str, precision: str, data_dir: str | None = None) -> str:
    """Writes a run's best model as a new version of a served model; returns its folder.

    Args:
        path: The run's folder.
        output: The served model's folder.
        precision: How weights are kept, one of `keras_trellis.export.PRECISIONS`. With less than
            float32 the model card tells what that changes on validation text.
        data_dir: The folder of the corpus's text files, which only that needs.

    Raises:
        ValueError, OSError, WorkdirError: The run, the folder or the corpus cannot be used.
    """
    model, vocabulary, config = load_trained(path)
    task = registry.language(config.task)
    with evaluation.epsilon_of("exact", model):
        kept = _kept_corpus(path)
        facts = runs.facts(path, config)
        facts |= provenance.of_data(config.task, kept.get("sha256", {}))
        facts |= provenance.unknown_words(kept)
        if precision != "float32":
            corpus = load_corpus(config, data_dir)
            check_corpus(path, corpus)
            measure = task.measure
            facts |= runs.change(
                f"validation {measure.name}",
                precision,
                *(
                    measure.text(measure.of(_validated(each, config, corpus).mean))
                    for each in (model, inference_model(model, precision))
                ),
            )
        return export_language_model(
            model,
            vocabulary.tokens,
            output,
            standardize=task.standardize,
            precision=precision,
            facts=facts,
        )


def _validated(
    model: TrellisLM, config: ml_collections.ConfigDict, corpus: corpora.Corpus
) -> evaluation.Score:
    return evaluation.Evaluator(model, config.data, config.evaluation).exact(corpus.validation)


def _tell_unknown(tokens: Sequence[str], vocabulary: Vocabulary) -> None:
    known = {*vocabulary.tokens}
    unknown = [token for token in dict.fromkeys(tokens) if token not in known]
    if unknown and vocabulary.unknown_id is None:
        raise ValueError(
            "--prompt must hold symbols of the training text alone. "
            f"Received: {' '.join(unknown)} among them"
        )
    if unknown:
        print(f"unknown words, read as {UNKNOWN}: {', '.join(unknown)}", file=sys.stderr)


def load_corpus(config: ml_collections.ConfigDict, data_dir: str | None) -> corpora.Corpus:
    """Returns the text of a run, as its config has it.

    Raises:
        ValueError, OSError: It cannot be used.
    """
    return corpora.load(config.task, data_dir, **config.get("corpus", {}))


def keep_corpus(path: epath.Path, corpus: corpora.Corpus) -> None:
    """Binds a run to its text, the first time.

    Kept are its words, its checksums, and how many tokens of those that score it read `<unk>`.
    """
    check_corpus(path, corpus)
    if not files.exists(path / VOCABULARY):
        corpus.vocabulary.save(path / VOCABULARY)
    if not files.exists(path / CORPUS):
        texts = {split: getattr(corpus, split) for split in _SPLITS}
        unknown = corpus.vocabulary.unknown_id
        kept = {
            "sha256": dict(corpus.checksums),
            "tokens": {split: len(ids) for split, ids in texts.items()},
            "unknown": {split: corpora.count(ids, unknown) for split, ids in texts.items()},
            _CHECKSUM: sha256(path / VOCABULARY),
        }
        files.write_json(path / CORPUS, kept)


def _kept_corpus(path: epath.Path) -> dict[str, Any]:
    """Returns what `keep_corpus` kept of a run's text; raises WorkdirError where it is damaged."""
    kept = read_kept(path / CORPUS, {"sha256": dict}) or {}
    if "unknown" in kept:  # earlier versions did not count them
        read_kept(path / CORPUS, {"unknown.test": int, "tokens.test": int})
    return kept


def _kept_vocabulary(path: epath.Path) -> Vocabulary:
    """Returns a run's vocabulary; raises WorkdirError where it is not what the run wrote."""
    file = path / VOCABULARY
    try:
        vocabulary = Vocabulary.load(file)
    except ValueError as error:
        raise WorkdirError(f"{error}. {RESTORE}") from error
    if _kept_corpus(path).get(_CHECKSUM) not in (None, sha256(file)):
        raise WorkdirError(f"{file} is damaged: its checksum is not the run's. {RESTORE}")
    return vocabulary


def check_corpus(path: epath.Path, corpus: corpora.Corpus) -> None:
    """Raises WorkdirError where a run's text is not that of the corpus."""
    kept = _kept_corpus(path).get("sha256", corpus.checksums)
    differing = [split for split, each in corpus.checksums.items() if kept.get(split) != each]
    if not differing and files.exists(path / VOCABULARY):  # all that a run once kept of its text
        if _kept_vocabulary(path).tokens != corpus.vocabulary.tokens:
            differing = ["train"]
    if differing:
        raise WorkdirError(
            f"{path} belongs to a run on another text ({', '.join(differing)}); "
            "give that run's text by --data_dir, or choose another --workdir"
        )
