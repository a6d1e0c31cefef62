"""The experiment of `trainers.lm`: evaluate, sample from and export its runs."""

import sys
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from etils import epath
from ml_collections import ConfigDict

from keras_trellis import TrellisLM
from keras_trellis.export import (
    Standardizer,
    export_language_model,
    inference_model,
)
from keras_trellis.heads import MixtureOfSoftmaxes
from trainers.data import files, terminal
from trainers.data.pieces import PieceVocabulary
from trainers.data.vocabulary import EOS, UNKNOWN, Vocabulary
from trainers.language import (
    adaptation,
    compared,
    evaluation,
    modeling,
    models,
    protocols,
    texts,
    unigram,
)
from trainers.sequences import layer
from trainers.tasks import corpora, provenance, registry
from trainers.tasks.task import LanguageTask
from trainers.training import checkpoints, memory, runs
from trainers.training.experiment import SPLITS, Check, Experiment, Scores
from trainers.training.workdir import WorkdirError

ByProtocol = dict[str, evaluation.Score]


class LanguageExperiment(Experiment):
    """The experiment of a language model on a corpus.

    Args:
        config: the run's config.
        data_dir: the folder of the corpus's text files.
        path: the run's folder, whose vocabulary of pieces is used if there is one; None: none is.

    Raises:
        ValueError, OSError, ImportError: the corpus cannot be used.
    """

    def __init__(
        self,
        config: ConfigDict,
        data_dir: str | None,
        path: epath.Path | None = None,
    ) -> None:
        super().__init__(config)
        self._corpus = texts.load_corpus(config, data_dir, path)
        self._task = registry.configured(config)
        self._measure = self._task.measure
        self._compared = compared.Compared(self._task, self._corpus)
        self._words = self._corpus.vocabulary.size
        name = f"the training text ({self._corpus.labels['train']})"
        protocols.check_training_text(name, len(self._corpus.train), config.data)
        for split in SPLITS:
            name = f"the {split} text ({self._corpus.labels[split]})"
            tokens = len(getattr(self._corpus, split))
            protocols.check_text(name, tokens, config.data, config.evaluation)

    def need(self, config: ConfigDict) -> memory.Need:
        """Returns the memory that training on this text takes."""
        return models.need(config, self._words)

    def parameters(self, config: ConfigDict) -> int:
        """Returns the number of parameters of a config's model on this text."""
        return models.parameters(config, self._words)

    def checksums(self) -> dict[str, str]:
        """Returns the SHA-256 of each split's text."""
        return dict(self._corpus.checksums)

    def check_replicas(self, replicas: int) -> None:
        """Raises ValueError if the replicas cannot share the batches."""
        size = self._config.data.batch_size
        if size % replicas:
            raise ValueError(
                f"`config.data.batch_size` must be divisible by the {replicas} devices, or "
                f"--distribute=none. Received: config.data.batch_size={size}"
            )

    def build(self) -> keras.Model:
        """Returns the model, built."""
        return models.build(self._config, self._words)

    def task(self, model: keras.Model) -> modeling.LanguageModeling:
        """Returns what the loop trains."""
        return modeling.LanguageModeling(
            model, self._config, self._corpus.train, self._corpus.validation
        )

    def keep(self, path: epath.Path) -> None:
        """Records the run's text in its folder."""
        texts.keep_corpus(path, self._corpus)

    def introduction(self, model: keras.Model) -> str:
        """Returns a line on the text."""
        return (
            f"{len(self._corpus.train):,} training {self._measure.counted}, "
            f"{self._words:,} {self._measure.types}"
        )

    def score_split(self, task: Any, split: str, check: Check) -> ByProtocol:
        """Returns the scores of a split under both protocols."""
        evaluator = task.evaluator.with_metrics(self._task.metrics)
        scores = {}
        for protocol in protocols.PROTOCOLS:
            check()
            scores[protocol] = evaluator.score(protocol, getattr(self._corpus, split))
        return self._compared.complete(split, scores)

    def describe(self, split: str, score: ByProtocol) -> str:
        """Returns one line: the scores of a split under each protocol."""
        return evaluation.describe(split, score, self._measure)

    def numbers(self, split: str, score: ByProtocol) -> dict[str, dict[str, Any]]:
        """Returns the numbers of each protocol."""
        return {protocol: self._numbers(value) for protocol, value in score.items()}

    def complete(self, scores: Scores, task: Any, check: Check) -> Scores:
        """Puts the exact score on test data beside others."""
        if not (exact := scores.values.get("test", {}).get("exact")):
            return scores
        beside = self._beside(exact["tokens"], exact[self._measure.name])
        return scores._replace(beside=beside)

    def advice(self) -> list[str]:
        """Returns advice on the config, for a machine without a GPU."""
        return layer.advice(self._config)

    def _numbers(self, score: evaluation.Score) -> dict[str, Any]:
        return {
            "nll": score.nll,
            "tokens": score.tokens,
            self._measure.name: self._measure.from_nats(score.mean),
            **{metric.name: value for metric, value in score.metrics.items()},
        }

    def _beside(self, tokens: int, value: float) -> tuple[str, ...]:
        """Returns a table of the score on test data beside others on the same text."""
        measure, corpus = self._measure, self._corpus
        rows = [(measure.text(value), "this run")]
        for entry in self._task.measured:
            if entry.matches(corpus.checksums, tokens):
                score = f"{measure.text(entry.value)} ± {measure.text(entry.deviation)}"
                rows.append(
                    (score, f"--preset={entry.preset}, mean of {entry.seeds} seeds")
                )
        nats = unigram.nats(corpus.train, corpus.test[1:], self._words)
        rows.append((measure.text(measure.from_nats(nats)), unigram.TITLE))
        width = max(len(number) for number, _ in rows)
        lines = (f"  {number:<{width}}  {name}" for number, name in rows)
        protocol = "exact (each token given all before it that the model sees)"
        return (f"test {measure.name}, {protocol}:", *lines)


def evaluate(
    path: epath.Path,
    data_dir: str | None,
    protocols: Sequence[str],
    dynamic: adaptation.DynamicEvaluation | None = None,
    cache: adaptation.ContinuousCache | None = None,
) -> None:
    """Prints the scores of a run's best model on validation and test data.

    Args:
        path: the run's folder.
        data_dir: the folder of the corpus's text files.
        protocols: some of `protocols.PROTOCOLS`.
        dynamic: dynamic evaluation, for one more score, "adapted"; None: without.
        cache: a continuous cache, for the same score; None: without.

    Raises:
        ValueError, OSError, WorkdirError: the corpus or the folder cannot be used.
    """
    config = runs.load_config(path)
    corpus = _run_corpus(path, config, data_dir)
    model = _best_model(path, config, corpus.vocabulary.size)
    task = registry.configured(config)
    evaluator = evaluation.Evaluator(
        model, config.data, config.evaluation, task.metrics
    )
    chunk = config.evaluation.exact_chunk
    numbers = compared.Compared(task, corpus)
    adaptive = adaptation.AdaptiveEvaluator(model, corpus.train, chunk, dynamic, cache)
    for split in SPLITS:
        ids = getattr(corpus, split)
        scores = {protocol: evaluator.score(protocol, ids) for protocol in protocols}
        if dynamic or cache:
            scores["adapted"] = adaptive.exact(ids)
        scores = numbers.complete(split, scores)
        print(evaluation.describe(split, scores, task.measure), flush=True)


def generate(path: epath.Path, prompt: str, max_length: int, **sampling: Any) -> str:
    """Returns a prompt and its continuation by a run's best model, which never writes `<unk>`.

    The text has the spaces of print, and ends with a whole word.

    Args:
        path: the run's folder.
        prompt: the text to begin with; it is standardized like the task's text. The function prints
            its unknown words. An empty prompt means the end of a line.
        max_length: length of the text in tokens, the prompt's included.
        **sampling: `temperature`, `top_k`, `top_p` and `seed` of `TrellisLM.generate`.

    Raises:
        ValueError, WorkdirError: an argument is out of range, or the folder cannot be used.
    """
    model, vocabulary, config = load_trained(path)
    task = registry.configured(config)
    ids = _read(task, vocabulary, prompt)
    forbidden = None if vocabulary.unknown_id is None else [vocabulary.unknown_id]
    text = model.generate(ids[None], max_length, forbidden_ids=forbidden, **sampling)
    return _printed(task, vocabulary, np.asarray(text)[0], len(ids))


def _read(task: LanguageTask, vocabulary: Vocabulary, prompt: str) -> np.ndarray:
    """Returns the ids of a prompt; an empty one is the end of a line. Prints unknown words."""
    if isinstance(vocabulary, PieceVocabulary):
        return vocabulary.read(prompt or "\n")
    tokens = task.list_tokens(prompt)
    if unknown := {*tokens}.difference(vocabulary.tokens):
        words = terminal.line(", ".join(sorted(unknown)))
        print(f"unknown words, read as {UNKNOWN}: {words}", file=sys.stderr)
    return vocabulary.encode(tokens or [EOS])


def _printed(
    task: LanguageTask, vocabulary: Vocabulary, ids: np.ndarray, given: int
) -> str:
    """Returns tokens as a text in print, of whole words; the first `given` are a prompt."""
    text = vocabulary.decode(ids)
    if task.characters or task.pieces is not None:
        least = len(vocabulary.decode(ids[:given]))
        end = max(text.rfind(blank, least) for blank in " \n")
        text = text[:end] if end >= 0 else text  # its length has cut the last word
    return task.in_print(text.strip())


def load_trained(path: epath.Path) -> tuple[TrellisLM, Vocabulary, ConfigDict]:
    """Returns a run's best model, its vocabulary and its config.

    Args:
        path: the run's folder.

    Raises:
        ValueError, WorkdirError: the run has no weights, or they do not fit in memory.
    """
    config = runs.load_config(path)
    if not files.exists(path / texts.VOCABULARY):
        raise WorkdirError(
            f"{path} has no trained weights yet: {texts.VOCABULARY} is missing"
        )
    has_pieces = registry.configured(config).pieces is not None
    vocabulary = texts.saved_vocabulary(
        path, PieceVocabulary if has_pieces else Vocabulary
    )
    return _best_model(path, config, vocabulary.size), vocabulary, config


def _best_model(path: epath.Path, config: ConfigDict, words: int) -> TrellisLM:
    memory.check_weights(models.parameters(config, words))
    model = models.build(config, words)
    checkpoints.load_best(path, model)
    return model


def export(path: epath.Path, options: runs.ExportOptions) -> str:
    """Writes a run's best model as a new version of a served model; returns its folder.

    Args:
        path: the run's folder.
        options: where to, and how.

    Raises:
        ValueError, OSError, WorkdirError: the run, the folder or the corpus cannot be used.
    """
    model, vocabulary, config = load_trained(path)
    if isinstance(model.head, MixtureOfSoftmaxes):
        # Probabilities that are served sum to 1, whatever training added to them.
        model.head.epsilon = protocols.EPSILON["exact"]
    task, record = registry.configured(config), texts.saved_corpus(path)
    facts = runs.facts(path, config)
    facts |= provenance.data_facts(task, record.get("sha256", {}))
    facts |= provenance.unknown_words(record)
    if options.precision != "float32":
        corpus = _run_corpus(path, config, options.data_dir)
        measured = []
        for candidate in (model, inference_model(model, options.precision)):
            evaluator = evaluation.Evaluator(candidate, config.data, config.evaluation)
            nats = evaluator.exact(corpus.validation).mean
            measured.append(task.measure.text(task.measure.from_nats(nats)))
        name = f"validation {task.measure.name}"
        facts |= runs.change(name, options.precision, *measured)
    return export_language_model(
        model,
        vocabulary.tokens,
        options.output,
        pieces=task.pieces is not None,
        standardize=_in_graph(task.standardize),
        detokenize=_in_graph(task.printed),
        precision=options.precision,
        runtime=options.runtime,
        facts=facts,
    )


def _in_graph(standardizer: Any) -> Standardizer | None:
    """Returns a task's standardizer as an export has it."""
    return standardizer and Standardizer(*standardizer.operations)


def _run_corpus(
    path: epath.Path, config: ConfigDict, data_dir: str | None
) -> corpora.Corpus:
    corpus = texts.load_corpus(config, data_dir, path)
    texts.check_corpus(path, corpus)
    return corpus
