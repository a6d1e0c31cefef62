"""The experiment of `trainers.lm`, and the evaluation of its runs."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from etils import epath
from ml_collections import ConfigDict

from keras_trellis import TrellisLM, arguments
from trainers.data import files
from trainers.data.pieces import PieceVocabulary
from trainers.data.vocabulary import Vocabulary
from trainers.language import (
    adaptation,
    compared,
    corpora,
    evaluation,
    modeling,
    models,
    protocols,
    unigram,
)
from trainers.sequences.layer import LayerExperiment
from trainers.tasks import registry, run_folders
from trainers.training import checkpoints, memory
from trainers.training.experiment import SPLITS, Check, Scores
from trainers.training.workdir import WorkdirError

ByProtocol = dict[str, evaluation.Score]


class LanguageExperiment(LayerExperiment):
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
        self._corpus = corpora.load_corpus(config, data_dir, path)
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

    @classmethod
    def published_parameters(cls, config: ConfigDict) -> tuple[int, int] | None:
        """Returns those of a config's model and layer; None for a text of any size."""
        words = registry.configured(config).vocabulary_size
        if words is None:
            return None
        return models.parameters(config, words), models.layer_parameters(config)

    def checksums(self) -> dict[str, str]:
        """Returns the SHA-256 of each split's text."""
        return dict(self._corpus.checksums)

    def check_replicas(self, replicas: int) -> None:
        """Raises ValueError if the replicas cannot share the batches."""
        size = self._config.data.batch_size
        if size % replicas:
            expected = f"divisible by the {replicas} devices, or --distribute=none"
            raise arguments.refusal("config.data.batch_size", size, expected)

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
        corpora.keep_corpus(path, self._corpus)

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

    def evaluate(
        self,
        path: epath.Path,
        protocols: Sequence[str] = protocols.PROTOCOLS,
        dynamic: adaptation.DynamicEvaluation | None = None,
        cache: adaptation.ContinuousCache | None = None,
    ) -> None:
        """Prints the scores of a run's best model on validation and test data.

        Args:
            path: the run's folder.
            protocols: some of `protocols.PROTOCOLS`.
            dynamic: dynamic evaluation, for one more score, "adapted"; None: without.
            cache: a continuous cache, for the same score; None: without.

        Raises:
            ValueError, WorkdirError: the folder cannot be used.
        """
        corpora.check_corpus(path, self._corpus)
        model = _best_model(path, self._config, self._words)
        data, settings = self._config.data, self._config.evaluation
        evaluator = evaluation.Evaluator(model, data, settings, self._task.metrics)
        adaptive = adaptation.AdaptiveEvaluator(
            model, self._corpus.train, settings.exact_chunk, dynamic, cache
        )
        for split in SPLITS:
            ids = getattr(self._corpus, split)
            scores = {name: evaluator.score(name, ids) for name in protocols}
            if dynamic or cache:
                scores["adapted"] = adaptive.exact(ids)
            scores = self._compared.complete(split, scores)
            print(self.describe(split, scores), flush=True)

    def complete(self, scores: Scores, task: Any, check: Check) -> Scores:
        """Puts the exact score on test data beside others."""
        if not (exact := scores.values.get("test", {}).get("exact")):
            return scores
        beside = self._beside(exact["tokens"], exact[self._measure.name])
        return scores._replace(beside=beside)

    def streamed(self, steps: int) -> Callable[[], Any]:
        """Returns a function that writes so many tokens, one after another."""
        model, prompt = self.build(), np.zeros([1, 1], "int32")
        return lambda: np.asarray(
            model.generate(prompt, 1 + steps, temperature=0.0, seed=0)
        )

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


load = LanguageExperiment


def load_trained(path: epath.Path) -> tuple[TrellisLM, Vocabulary, ConfigDict]:
    """Returns a run's best model, its vocabulary and its config.

    Args:
        path: the run's folder.

    Raises:
        ValueError, WorkdirError: the run has no weights, or they do not fit in memory.
    """
    config = run_folders.load_config(path)
    if not files.exists(path / corpora.VOCABULARY):
        raise WorkdirError(
            f"{path} has no trained weights yet: {corpora.VOCABULARY} is missing"
        )
    has_pieces = registry.configured(config).pieces is not None
    vocabulary = corpora.saved_vocabulary(
        path, PieceVocabulary if has_pieces else Vocabulary
    )
    return _best_model(path, config, vocabulary.size), vocabulary, config


def _best_model(path: epath.Path, config: ConfigDict, words: int) -> TrellisLM:
    memory.check_weights(models.parameters(config, words))
    model = models.build(config, words)
    checkpoints.load_best(path, model)
    return model
