"""The signature of a classifier."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from keras_trellis.export.checks import (
    Tensors,
    checked,
    sequences_and_mask,
)
from keras_trellis.export.saving import Signature
from keras_trellis.formats.checks import MODERATE, moderate
from keras_trellis.models.classifier import TrellisClassifier

_TOP = 5


class ClassifierEndpoints:
    """The signatures of a classifier: functions of batches, which check their input.

    Args:
        model: the model, as `inference_model` returns it.
        labels: the names of the classes.
        inputs: the raw input of `preprocess`; None: sequences, and their lengths.
        preprocess: from the raw input, or from a request's sequences, to sequences `[B, T, p]`.
    """

    def __init__(
        self,
        model: TrellisClassifier,
        labels: Sequence[str],
        inputs: tf.TensorSpec | None,
        preprocess: Callable[[tf.Tensor], tf.Tensor],
    ) -> None:
        self._model = model
        self._labels = labels
        self._inputs = inputs
        self._preprocess = preprocess

    def signatures(self) -> dict[str, Signature]:
        """Returns the signatures by name."""
        specs = self.specs()
        function: Callable = self.classify
        if self._inputs is None:
            function = self.classify_sequences
        example = {name: _zeros(spec) for name, spec in specs.items()}
        if "lengths" in example:
            example["lengths"] += example["sequences"].shape[1]
        signature = Signature(function, specs, example)
        return {"serving_default": signature, "serve": signature}

    def specs(self) -> dict[str, tf.TensorSpec]:
        """Returns the inputs of a request by name."""
        specs = self._sequence_specs() if self._inputs is None else [self._inputs]
        return {spec.name: spec for spec in specs}

    def _sequence_specs(self) -> list[tf.TensorSpec]:
        order = self._model.permutation
        time = len(order) if order else None
        channels = self._model.get_build_config()["input_shape"][-1]
        return [
            tf.TensorSpec([None, time, channels], tf.float32, "sequences"),
            tf.TensorSpec([None], tf.int32, "lengths"),
        ]

    def classify(self, **inputs: tf.Tensor) -> Tensors:
        """Classifies what `preprocess` takes; see `classify_sequences` for the outputs."""
        ((name, value),) = inputs.items()
        sequences = self._preprocess(value)
        sequences = checked(name, sequences, moderate(sequences), MODERATE)
        return self._answer(self._probabilities(sequences))

    def classify_sequences(self, sequences: tf.Tensor, lengths: tf.Tensor) -> Tensors:
        """Classifies sequences.

        Args:
            sequences: `[B, T, p]`.
            lengths: `[B]`, the number of steps of each, at least 1.

        Returns:
            `probabilities` `[B, classes]`; `classes` and `labels` `[B, 5]`, the most probable ones.
        """
        sequences, mask = sequences_and_mask(sequences, lengths)
        return self._answer(self._probabilities(self._preprocess(sequences), mask))

    def unchecked(self, **inputs: tf.Tensor) -> Tensors:
        """Returns the `probabilities` of a request that is in order."""
        if self._inputs is not None:
            (value,) = inputs.values()
            return {"probabilities": self._probabilities(self._preprocess(value))}
        sequences = inputs["sequences"]
        mask = tf.sequence_mask(inputs["lengths"], tf.shape(sequences)[1])
        ready = self._preprocess(sequences)
        return {"probabilities": self._probabilities(ready, mask)}

    def _probabilities(
        self, sequences: tf.Tensor, mask: tf.Tensor | None = None
    ) -> tf.Tensor:
        return tf.nn.softmax(self._model(sequences, mask=mask))

    def _answer(self, probabilities: tf.Tensor) -> Tensors:
        _, classes = tf.math.top_k(probabilities, min(_TOP, len(self._labels)))
        return {
            "probabilities": probabilities,
            "classes": classes,
            "labels": tf.gather(tf.constant(self._labels), classes),
        }


def _zeros(spec: tf.TensorSpec) -> tf.Tensor:
    """Returns zeros of one row, and of size 1 where any size will do."""
    return tf.zeros([size or 1 for size in spec.shape], spec.dtype)
