"""Exports a run's best language model."""

from collections.abc import Mapping
from typing import Any

from etils import epath

from keras_trellis.export import (
    Standardizer,
    export_language_model,
    inference_model,
)
from keras_trellis.heads import MixtureOfSoftmaxes
from trainers.language import corpora, evaluation, protocols
from trainers.language.experiment import load_trained
from trainers.tasks import registry, run_folders


def export(path: epath.Path, options: run_folders.ExportOptions) -> str:
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
    task, record = registry.configured(config), corpora.saved_corpus(path)
    facts = run_folders.facts(path, config)
    facts |= task.data_facts(record.get("sha256", {}))
    facts |= unknown_words(record)
    if options.precision != "float32":
        corpus = corpora.load_corpus(config, options.data_dir, path)
        corpora.check_corpus(path, corpus)
        measured = []
        for candidate in (model, inference_model(model, options.precision)):
            evaluator = evaluation.Evaluator(candidate, config.data, config.evaluation)
            nats = evaluator.exact(corpus.validation).mean
            measured.append(task.measure.text(task.measure.from_nats(nats)))
        name = f"validation {task.measure.name}"
        facts |= run_folders.change(name, options.precision, *measured)
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


def unknown_words(record: Mapping[str, Any]) -> dict[str, str]:
    """Returns the model card's fact about the test text's unknown words.

    Args:
        record: what the run kept of its text; see `corpora.keep_corpus`.
    """
    if "unknown" not in record:
        return {"Unknown words in the test text": "not measured"}
    count, tokens = (record[name]["test"] for name in ("unknown", "tokens"))
    share = f"{100 * count / tokens:.2f} % ({count:,} of {tokens:,} tokens)"
    return {"Unknown words in the test text": share}


def _in_graph(standardizer: Any) -> Standardizer | None:
    """Returns a task's standardizer as an export has it."""
    return standardizer and Standardizer(*standardizer.operations)
