"""What a language model has in common with the authors' code: its weights, and its training.

This is the part `authors` of a kind of task:

    SCORED            options of `evaluate`, for scores by the protocol of the authors' scripts
    is_permuted       takes the name of a task; whether its sequences have an order of their own
    make_comparable   takes a config; sets or checks what their code does in another way
    models            returns their model and ours, each to train beside the other
    imported          returns the model of a file that their script saved
"""

import functools
from typing import Any

import numpy as np
import tensorflow as tf
from ml_collections import ConfigDict

from trainers.authors import beside, released
from trainers.authors.released import Arrays
from trainers.language import corpora, modeling
from trainers.language import models as networks
from trainers.tasks import registry

SCORED = {"protocols": ("trellisnet",)}
# The corpora whose vocabulary has the order of the authors' scripts.
_NUMBERED_AS_THEIRS = {"order": ("appearance",), "form": ("released", "paper")}


def is_permuted(task: str) -> bool:
    """Returns False: a text is read in its own order."""
    del task
    return False


def make_comparable(config: ConfigDict) -> None:
    """Has a model follow their code in two details."""
    config.model.untrained_input_id = -1
    config.model.auxiliary_from = "bottom"


class Ours(beside.InTraining):
    """Our language model.

    Args:
        config: from `trainers.verify.comparable`.
        weights: the authors' weights, as `convert.language_model_from_torch` takes them.
        corpus: the text.
    """

    def __init__(self, config: ConfigDict, weights: Arrays, corpus: corpora.Corpus):
        model = networks.build(config, corpus.vocabulary.size)
        parts = corpus.train, corpus.validation
        task = modeling.LanguageModeling(model, config, *parts)
        super().__init__(config, weights, model, task)

    def from_theirs(self, arrays: Arrays) -> Any:
        """Returns a language model with arrays that have the names of their weights."""
        return released.language_model(arrays, self._config)

    def read_by_them(self, batch: Any) -> tuple[np.ndarray, np.ndarray]:
        """Returns ids and targets, each `[B, T]`, as they are."""
        ids, targets = batch
        return ids.numpy(), targets.numpy()

    def _outputs(self, inputs: Any, state: Any) -> dict[str, tf.Tensor]:
        """Returns the scored outputs `[B, T', output_units]`, and the state after the window."""
        trellis: Any = self.model.trellis  # a `TrellisLayer`, by `released.check_kind`
        outputs, hidden, cell = trellis(
            self.model.embedding(inputs),
            initial_state=state or None,
            discard=self._config.data.horizon,
        )
        return {"outputs": outputs, "hidden": hidden, "cell": cell}


def models(clone: str, config: ConfigDict, data_dir: str | None) -> tuple[Any, Ours]:
    """Returns their language model, by a clone of their code, and ours."""
    reference = beside.reference_module(clone, "model")
    corpus = corpora.load_corpus(config, data_dir)
    theirs = reference.Reference(clone, config, corpus.vocabulary.size)
    return theirs, Ours(config, theirs.weights(), corpus)


def imported(weights: released.Weights) -> released.Imported:
    """Returns what a file of weights becomes."""
    _check_numbering(weights.config)
    source, config = released.read(weights, released.language_model)
    corpus = corpora.load_corpus(config, weights.data_dir)
    types = registry.configured(config).measure.types
    words = corpus.vocabulary.size
    if source.vocabulary_size != words:
        raise ValueError(
            f"{weights.file} has vectors of {source.vocabulary_size:,} {types}, and the training "
            f"text ({corpus.labels['train']}) has {words:,}; give the text that the weights were "
            "trained on by --data_dir"
        )
    model = networks.build(config, words)
    released.give_weights(model, source)
    keep = functools.partial(corpora.keep_corpus, corpus=corpus)
    return model, config, keep, f"{words:,} {types}"


def _check_numbering(config: ConfigDict) -> None:
    """Raises ValueError if rows of the weights would go to other words."""
    for name, value in config.get("corpus", {}).items():
        theirs = _NUMBERED_AS_THEIRS.get(name, (value,))
        if value not in theirs:
            raise ValueError(
                f"`config.corpus.{name}` must be {' or '.join(map(repr, theirs))}: the authors' "
                "scripts number the vocabulary in that order. Received: "
                f"config.corpus.{name}={value!r}"
            )
