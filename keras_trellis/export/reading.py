"""How an exported language model reads ids: functions that several signatures share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from keras_trellis.engine.depth_loop import with_shape_of
from keras_trellis.export.weights import Weights
from keras_trellis.models import passes

_CHUNK = 128  # tokens read at once, which bounds the memory of a long text


class Reader:
    """Reads ids from a cache on; nothing is checked.

    Each function is in the graph once, whichever signatures call it.

    Args:
        model: the model, as `inference_model` returns it.
        weights: the model's weights, as they are exported.

    Attributes:
        step: (ids `[B]`, cache) to (log-probabilities `[B, V]` of the next token, cache).
        read: (ids `[B, T]`, lengths `[B]`, cache) to (the features of each row's last id `[B, E]`,
            the cache after it).
        read_and_score: the same arguments, to the same after the nll of the ids `[B, T]`: 0 for the
            first of a row, and after a row's end.
    """

    def __init__(self, model: Any, weights: Weights) -> None:
        self._model = model
        row = tf.TensorSpec([None], tf.int32)
        rows = tf.TensorSpec([None, None], tf.int32)
        mask = tf.TensorSpec([None, None], tf.bool)
        cache = tf.nest.map_structure(_of_any_batch, model.get_initial_cache(1))
        self.step = _shared(weights, functools.partial(passes.step, model), [row, cache])
        self._chunk = _shared(weights, functools.partial(passes.stream, model), [rows, cache, mask])
        self.read = _shared(weights, self._read, [rows, row, cache])
        self.read_and_score = _shared(weights, self._read_and_score, [rows, row, cache])

    def empty_cache(self, ids: tf.Tensor) -> Any:
        """Returns the cache of no text for each row of ids `[B, ...]`."""
        return self._model.get_initial_cache(tf.shape(ids)[0])

    def log_probs(self, features: tf.Tensor) -> tf.Tensor:
        """Returns log-probabilities `[B, V]` for features `[B, E]`."""
        return passes.log_probs(self._model, features)

    def _read(self, ids: tf.Tensor, lengths: tf.Tensor, cache: Any) -> tuple[tf.Tensor, Any]:
        features, cache, _ = self._read_chunks(ids, lengths, cache, score=False)
        return features, cache

    def _read_and_score(
        self, ids: tf.Tensor, lengths: tf.Tensor, cache: Any
    ) -> tuple[tf.Tensor, tf.Tensor, Any]:
        features, cache, nll = self._read_chunks(ids, lengths, cache, score=True)
        time = tf.shape(ids)[1]
        nll = tf.transpose(nll.concat())[:, : tf.maximum(time - 1, 0)]
        return tf.pad(nll, [[0, 0], [tf.minimum(time, 1), 0]]), features, cache

    def _read_chunks(
        self, ids: tf.Tensor, lengths: tf.Tensor, cache: Any, *, score: bool
    ) -> tuple[tf.Tensor, Any, tf.TensorArray]:
        """Returns the last features, the cache, and the nll of the next ids, chunk by chunk."""
        time = tf.shape(ids)[1]
        size = tf.clip_by_value(time, 1, _CHUNK)
        chunks = tf.maximum(-(-time // size), 1)
        padded = tf.pad(ids, [[0, 0], [0, chunks * size + 1 - time]])

        def advance(index: Any, cache: Any, _: tf.Tensor, nll: tf.TensorArray) -> Any:
            places = index * size + tf.range(size)
            chunk = tf.gather(padded, places, axis=1)
            outputs, after = self._chunk(chunk, cache, places < lengths[:, None])
            # A loop's variables must keep their static shapes.
            after = tf.nest.map_structure(with_shape_of, after, cache)
            if score:
                targets = tf.gather(padded, places + 1, axis=1)
                each = self._nll(outputs, targets, places + 1 < lengths[:, None])
                nll = nll.write(index, tf.transpose(each))
            return index + 1, after, outputs[:, -1], nll

        features = tf.zeros([tf.shape(ids)[0], self._model.trellis.output_units])
        nll = tf.TensorArray(tf.float32, chunks if score else 0, element_shape=[None, None])
        _, cache, features, nll = tf.while_loop(
            lambda index, *_: index < chunks, advance, (0, cache, features, nll)
        )
        return features, cache, nll

    def _nll(self, outputs: tf.Tensor, targets: tf.Tensor, scored: tf.Tensor) -> tf.Tensor:
        """Returns the nll of targets, 0 where they are not scored."""
        model, targets = self._model, tf.where(scored, targets, 0)
        nll = model.head.plain_nll(outputs, targets, model.embedding.embeddings)
        return tf.where(scored, nll, 0)


def valid(ids: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """Returns which of ids `[B, T]` are before their row's end."""
    return tf.sequence_mask(lengths, tf.shape(ids)[1])


def _shared(
    weights: Weights, function: Callable, specs: Sequence[Any]
) -> tf.types.experimental.PolymorphicFunction:
    """Returns a function of the model as one that is traced once."""

    def call(*arguments: Any) -> Any:
        return weights.call(function, *arguments)

    return tf.function(call, input_signature=specs, autograph=False)


def _of_any_batch(value: tf.Tensor) -> tf.TensorSpec:
    return tf.TensorSpec([None, *value.shape[1:]], value.dtype)
