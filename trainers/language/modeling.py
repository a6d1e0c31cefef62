"""Language modelling as a task of the training loop."""

from collections.abc import Mapping
from typing import Any

import keras
import ml_collections
import numpy as np
import tensorflow as tf

from keras_trellis import TrellisLM
from keras_trellis.heads import AdaptiveSoftmax, Head, MixtureOfSoftmaxes
from trainers.data import streams
from trainers.language import evaluation
from trainers.language.baselines import LSTMLanguageModel
from trainers.tasks.measures import of_tokens
from trainers.training.initial_values import initializers

MODELS = {"trellis": TrellisLM, "lstm": LSTMLanguageModel}
HEADS = {"mixture": MixtureOfSoftmaxes, "adaptive": AdaptiveSoftmax}


class LanguageModeling:
    """The loop's `Task` for a language model on contiguous streams.

    The validation loss, which chooses the best model and drives the plateau rule, is that of the
    protocol `trellisnet`: the rule's published constants belong to it, and it takes every kind of
    model in large batches.

    Args:
        model: A language model, built.
        config: The run's config.
        train: Training ids [N].
        validation: Validation ids [N'].

    Raises:
        ValueError: The texts are too short for the config's windows, or its fields do not go
            together.
    """

    def __init__(
        self,
        model: keras.Model,
        config: ml_collections.ConfigDict,
        train: np.ndarray,
        validation: np.ndarray,
    ) -> None:
        self.model = model
        self.evaluator = evaluation.Evaluator(model, config.data, config.evaluation)
        self._config = config
        self._measure = of_tokens(config.task)
        self.unit = self._measure.counted
        self._streams = streams.contiguous_streams(train, config.data.batch_size)
        self._windows = streams.Windows(
            self._streams.shape[1], config.data.window, config.data.horizon
        )
        self._validation = validation

    @property
    def steps_per_epoch(self) -> int:
        """Windows in a pass over the training streams."""
        return self._windows.count

    def dataset(self, first_step: int) -> tf.data.Dataset:
        """Returns the batches (ids, targets), each [B, T], from a global step to the run's end."""
        return streams.windows_dataset(
            self._streams,
            self._windows,
            epochs=self._config.training.epochs,
            first_step=first_step,
        )

    def initial_state(self) -> Any:
        """Returns what an epoch begins with: zero states [B, units], or () without history."""
        if self._config.data.history == "zero":
            return ()
        return self.model.get_initial_state(self._config.data.batch_size)

    def loss(self, batch: tuple, state: Any) -> tuple[tf.Tensor, tf.Tensor, Any, dict]:
        """Returns the loss summed over the scored targets, their number, the state, its terms.

        Args:
            batch: (ids, targets), this replica's rows of them.
            state: This replica's rows of the carried state, or ().
        """
        ids, targets = batch
        horizon = self._config.data.horizon
        terms, carried = self.model.loss_terms(
            ids, targets, initial_state=state or None, training=True, discard=horizon
        )
        total = tf.add_n(list(terms))
        scored = tf.cast(tf.size(targets[:, horizon:]), total.dtype)
        sums = {name: term * scored for name, term in terms._asdict().items()}
        carried = tf.nest.pack_sequence_as(state, tf.nest.flatten(carried)) if state else ()
        return total * scored, scored, carried, sums

    def evaluate(self) -> dict[str, float]:
        """Returns the validation loss of the model's present weights, in nats a token."""
        return {"loss": self.evaluator.trellisnet(self._validation).mean}

    def display(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Returns the task's measure and loss; in training, the prediction's beside the whole."""
        nats = metrics.get("prediction", metrics["loss"])
        return {self._measure.name: self._measure.of(nats), "loss": metrics["loss"]}


def build(config: ml_collections.ConfigDict, vocabulary_size: int) -> keras.Model:
    """Returns the model of a config, built.

    Raises:
        ValueError: The vocabulary lacks words that the config names.
    """
    check_vocabulary(config.model, vocabulary_size)
    arguments = config.model.to_dict()
    kind = arguments.pop("kind")
    arguments |= initializers(arguments.pop("initial_deviation", 0.0))
    if "head" in arguments:
        arguments["head"] = _head(arguments["head"], config.seed)
    return MODELS[kind](vocabulary_size, seed=config.seed, **arguments)


def _head(arguments: Mapping[str, Any], seed: int) -> Head:
    """Returns the head of a config; without one, a model's softmax is tied."""
    arguments = dict(arguments)
    kind = arguments.pop("kind")
    if kind == "mixture":  # the other has no dropout of its own
        arguments["seed"] = seed
    return HEADS[kind](**arguments)


def check_vocabulary(model: ml_collections.ConfigDict, size: int) -> None:
    """Raises ValueError where the group `model` names words that a vocabulary does not have."""
    cutoffs = model.get("head", {}).get("cutoffs", (0,))
    if cutoffs[-1] >= size:
        raise ValueError(
            f"`config.model.head.cutoffs` must be below the vocabulary's size, {size}. "
            f"Received: config.model.head.cutoffs={cutoffs}"
        )
    untrained = model.get("untrained_input_id", 0)
    if not -size <= untrained < size:
        raise ValueError(
            f"`config.model.untrained_input_id` must be from {-size} to {size - 1}, by the "
            f"vocabulary's size, {size}. Received: config.model.untrained_input_id={untrained}"
        )


def check_training_text(name: str, tokens: int, data: ml_collections.ConfigDict) -> None:
    """Raises ValueError where a text is too short for the windows of the group `data`.

    Args:
        name: What to call the text.
        tokens: Its length.
        data: The config's group `data`.
    """
    stream, least = tokens // data.batch_size, data.window + 1  # the last token is a target alone
    if stream >= least:
        return
    remedies = []
    if tokens >= least:
        remedies.append(f"--config.data.batch_size={tokens // least}")
    if stream - 1 > data.horizon:
        remedies.append(f"--config.data.window={stream - 1}")
    use = f"use {' or '.join(remedies)}, or give" if remedies else "give"
    raise ValueError(
        f"{name} holds {tokens} tokens, {stream} in each of config.data.batch_size="
        f"{data.batch_size} streams; expected at least {least} in each, for "
        f"config.data.window={data.window}: {use} more text"
    )
