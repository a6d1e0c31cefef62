"""What `trainers.lm` does: train a run, evaluate it, sample from it."""

import contextlib
import json
import math
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import ml_collections
import numpy as np
import tensorflow as tf
from etils import epath

from trainers import adaptation, evaluation, files, language_modeling, memory
from trainers import config as configs
from trainers.data import corpora
from trainers.data.vocabulary import EOS, UNKNOWN, Vocabulary
from trainers.measures import measure_of
from trainers.training import checkpoints, loop, optimizers, schedules
from trainers.training.workdir import Workdir, WorkdirError, open_workdir, read_config

# What a resumed run may change; none of it changes a step.
MAY_CHANGE = tuple(
    f"training.{field}" for field in ("epochs", "log_every_steps", "checkpoint_every_steps")
)
NEED_GPU = ("paper", "released")  # and what is called after them
VOCABULARY, CORPUS, IMPORTED = "vocabulary.txt", "corpus.json", "imported.json"


def train(
    config: ml_collections.ConfigDict,
    path: epath.Path,
    data_dir: str | None = None,
    distribute: str | None = None,
) -> None:
    """Trains a run to its end or an interruption; goes on where an earlier call stopped.

    At the end the best model by validation loss is scored under both protocols, and the test set
    is read, once. SIGTERM and Ctrl-C end it after the step or the second of steps, or the part of
    loading, building and scoring, that is under way.

    Args:
        config: The run's config.
        path: The run's folder.
        data_dir: The folder of the corpus's text files.
        distribute: "none", "mirrored"; None: "mirrored" where there is a GPU.

    Raises:
        ValueError, OSError, WorkdirError: The config, the corpus or the folder cannot be used.
        loop.NonFiniteLossError: The loss is NaN or infinite.
    """
    with loop.StopSignals() as signals:
        try:
            _train(config, path, data_dir, distribute, signals)
        except loop.StoppedError as stopped:
            print(stopped, flush=True)


def _train(
    config: ml_collections.ConfigDict,
    path: epath.Path,
    data_dir: str | None,
    distribute: str | None,
    signals: loop.StopSignals,
) -> None:
    if (path / IMPORTED).exists():
        raise WorkdirError(
            f"{path} holds imported weights, which training would replace; choose another --workdir"
        )
    loop.make_deterministic(config.seed)
    gpus = tf.config.list_physical_devices("GPU")
    strategy = loop.get_strategy(distribute or ("mirrored" if gpus else "none"))
    corpus = load_corpus(config, data_dir)
    signals.check()
    # Before the folder is opened: what cannot be trained leaves none.
    for split in ("validation", "test"):
        name = f"the {split} text ({corpus.labels[split]})"
        tokens = len(getattr(corpus, split))
        evaluation.check_text(name, tokens, config.data, config.evaluation)
    with strategy.scope():
        model = language_modeling.build(config, corpus.vocabulary.size)
        optimizer = optimizer_of(config)
    task = language_modeling.LanguageModeling(model, config, corpus.train, corpus.validation)
    schedule = schedules.Schedule(**config.schedule.to_dict())
    with open_workdir(path, config.to_dict(), may_change=MAY_CHANGE) as folder:
        keep_corpus(path, corpus)
        if _tell_finished(folder, config):
            return
        _introduce(config, model, corpus, path, has_gpu=bool(gpus))
        signals.check()
        result = loop.train(
            task,
            optimizer,
            schedule,
            folder,
            clip_norm=config.optimizer.clip_norm,
            strategy=strategy,
            signals=signals,
            **config.training.to_dict(),
        )
        if result.finished:
            with _best_weights(path, task, optimizer, result) as name:
                _finish(folder, task, corpus, result, name, signals)


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
    config = load_config(path)
    corpus = load_corpus(config, data_dir)
    _check_corpus(path, corpus)
    model = language_modeling.build(config, corpus.vocabulary.size)
    checkpoints.load_best(path, model)
    evaluator = evaluation.Evaluator(model, config.data, config.evaluation)
    adaptive = None
    if dynamic or cache:
        chunk = config.evaluation.exact_chunk
        adaptive = adaptation.AdaptiveEvaluator(
            model, corpus.train, chunk, dynamic=dynamic, cache=cache
        )
    for split in ("validation", "test"):
        ids = getattr(corpus, split)
        scores = {protocol: evaluator.score(protocol, ids) for protocol in protocols}
        if adaptive:
            scores["adapted"] = adaptive.exact(ids)
        print(evaluation.describe(split, scores, measure_of(config.task)), flush=True)


def generate(path: epath.Path, prompt: str, max_length: int, **sampling: Any) -> str:
    """Returns a prompt and its continuation by a run's best model.

    Args:
        path: The run's folder.
        prompt: The text to begin with, made ready as the task's text is; unknown words are told.
            Where it is empty, the end of a line.
        max_length: Length of the text in tokens, the prompt's included.
        **sampling: `temperature`, `top_k`, `top_p` and `seed` of `TrellisLM.generate`.

    Raises:
        ValueError, WorkdirError: An argument is out of range, or the folder cannot be used.
    """
    config = load_config(path)
    if config.model.kind != "trellis":
        raise ValueError(
            f"`config.model.kind` must be 'trellis' to generate. Received: "
            f"config.model.kind={config.model.kind!r}, in {path}"
        )
    if not (path / VOCABULARY).exists():
        raise WorkdirError(f"{path} has no trained weights yet: {VOCABULARY} is missing")
    vocabulary = Vocabulary.load(path / VOCABULARY)
    tokens = corpora.tokens_of(config.task, prompt)
    _tell_unknown(tokens, vocabulary)
    model = language_modeling.build(config, vocabulary.size)
    checkpoints.load_best(path, model)
    ids = vocabulary.encode(tokens or [EOS])
    text = model.generate(ids[None], max_length, **sampling)
    return vocabulary.decode(np.asarray(text)[0]).strip()


def _tell_unknown(tokens: Sequence[str], vocabulary: Vocabulary) -> None:
    known = {*vocabulary.tokens}
    unknown = [token for token in dict.fromkeys(tokens) if token not in known]
    if unknown and vocabulary.unknown_id is None:
        raise ValueError(
            f"`prompt` must hold symbols of the training text alone. Received: {' '.join(unknown)}"
        )
    if unknown:
        print(f"unknown words, read as {UNKNOWN}: {', '.join(unknown)}", file=sys.stderr)


def load_corpus(config: ml_collections.ConfigDict, data_dir: str | None) -> corpora.Corpus:
    """Returns the text of a run, as its config has it.

    Raises:
        ValueError, OSError: It cannot be used.
    """
    return corpora.load(config.task, data_dir, **config.get("corpus", {}))


def load_config(path: epath.Path) -> ml_collections.ConfigDict:
    """Returns the config of the run in a folder."""
    return configs.from_dict(read_config(path))


def optimizer_of(config: ml_collections.ConfigDict) -> optimizers.Optimizer:
    """Returns the optimizer of a config.

    Raises:
        ValueError: Its name is unknown, a value is out of range, or it cannot average.
    """
    settings = config.optimizer
    if config.schedule.average and settings.name != "sgd":
        raise ValueError(
            "`config.schedule.average` must be False unless `config.optimizer.name` is 'sgd'. "
            f"Received: config.schedule.average=True, config.optimizer.name={settings.name!r}"
        )
    arguments = {"learning_rate": settings.learning_rate, "weight_decay": settings.weight_decay}
    if settings.name == "sgd":
        return optimizers.SGD(**arguments, averages=config.schedule.average)
    if settings.name == "adam":
        return optimizers.Adam(**arguments)
    raise ValueError(
        "`config.optimizer.name` must be 'sgd' or 'adam'. "
        f"Received: config.optimizer.name={settings.name!r}"
    )


def _tell_finished(folder: Workdir, config: ml_collections.ConfigDict) -> bool:
    """Prints the result of a run that has reached its last epoch; returns whether it has."""
    result = folder.result()
    if result is None or result["epochs"] < config.training.epochs:
        return False
    print(f"{folder.path} holds a finished run; more --config.training.epochs would go on")
    print(result["summary"])
    return True


def _introduce(
    config: ml_collections.ConfigDict,
    model: keras.Model,
    corpus: corpora.Corpus,
    path: epath.Path,
    *,
    has_gpu: bool,
) -> None:
    parameters = language_modeling.parameters(model)
    estimate = memory.training_bytes(config, parameters, corpus.vocabulary.size)
    print(f"{config.task}, preset {config.preset}, in {path}")
    measure = measure_of(config.task)
    print(
        f"{len(corpus.train):,} training {measure.tokens}, "
        f"{corpus.vocabulary.size:,} {measure.types}; "
        f"{parameters:,} parameters; about {estimate / 2**30:.1f} GiB of memory in training",
        flush=True,
    )
    if not has_gpu and config.preset.startswith(NEED_GPU):
        print(
            f"there is no GPU here, and the preset {config.preset} is made for one; "
            "--preset=small is made for a CPU",
            flush=True,
        )


def keep_corpus(path: epath.Path, corpus: corpora.Corpus) -> None:
    """Binds a run to its text: its words and its checksums, written the first time."""
    _check_corpus(path, corpus)
    if not (path / VOCABULARY).exists():
        corpus.vocabulary.save(path / VOCABULARY)
    if not (path / CORPUS).exists():
        files.write_json(path / CORPUS, {"sha256": dict(corpus.checksums)})


def _check_corpus(path: epath.Path, corpus: corpora.Corpus) -> None:
    """Raises WorkdirError where a run's text is not that of the corpus."""
    differing = []
    if (path / CORPUS).exists():
        kept = json.loads((path / CORPUS).read_text())["sha256"]
        differing = [split for split, sha256 in corpus.checksums.items() if kept[split] != sha256]
    if not differing and (path / VOCABULARY).exists():  # all that a run once kept of its text
        if Vocabulary.load(path / VOCABULARY).tokens != corpus.vocabulary.tokens:
            differing = ["train"]
    if differing:
        raise WorkdirError(
            f"{path} belongs to a run on another text: {', '.join(differing)} differs; "
            "give that run's text by --data_dir, or choose another --workdir"
        )


@contextlib.contextmanager
def _best_weights(
    path: epath.Path,
    task: loop.Task,
    optimizer: optimizers.Optimizer,
    result: loop.Result,
) -> Iterator[str]:
    """Sets the model to the best weights or, where they are lost, the last; yields their name."""
    try:
        checkpoints.load_best(path, task.model)
    except WorkdirError as error:
        print(f"{error}; scoring the weights of the last epoch instead", flush=True)
        with optimizer.evaluation_weights(task.model.trainable_variables):
            yield f"last of epoch {result.epochs}"
    else:
        yield f"best of epoch {result.best_epoch}"


def _finish(
    folder: Workdir,
    task: language_modeling.LanguageModeling,
    corpus: corpora.Corpus,
    result: loop.Result,
    name: str,
    signals: loop.StopSignals,
) -> None:
    """Scores the model, reads the test set, and prints and keeps the line on the weights `name`."""
    scores: dict[str, dict[str, evaluation.Score]] = {"validation": {}, "test": {}}
    for split in scores:
        for protocol in evaluation.PROTOCOLS:
            signals.check()
            scores[split][protocol] = task.evaluator.score(protocol, getattr(corpus, split))
    measure = measure_of(corpus.name)
    summary = f"{name}: " + "; ".join(
        evaluation.describe(split, scores[split], measure) for split in scores
    )
    print(summary, flush=True)  # first: it may be that nothing can be written
    kept = {
        "epochs": result.epochs,
        "best_epoch": result.best_epoch,
        "parameters": language_modeling.parameters(task.model),
        "cost": {name: None if math.isnan(v) else v for name, v in result.cost._asdict().items()},
        "summary": summary,
        "scores": {
            split: {
                protocol: {**score._asdict(), measure.name: measure.of(score.mean)}
                for protocol, score in each.items()
            }
            for split, each in scores.items()
        },
    }
    try:
        folder.finish(kept)
    except OSError as error:
        raise OSError(
            f"the result is not kept in {folder.path} ({error}); the same command scores again"
        ) from error
