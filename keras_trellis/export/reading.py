"""How an exported language model reads ids: functions that several signatures share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from keras_trellis.backend.tensorflow import with_static_shape
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
        log_probs: features `[B, E]` to log-probabilities `[B, V]`.
        step: (ids `[B]`, cache) to (log-probabilities `[B, V]` of the next token, cache).
        read: (ids `[B, T]`, lengths `[B]`, cache) to (the features of each row's last id `[B, E]`,
            the cache after it).
        read_and_score: the same arguments, to the same after the nll of the ids `[B, T]`: 0 for the
            first of a row, and after a row's end.
    """

    def __init__(self, model: Any, weights: Weights) -> None:
        self._model = model
        self.log_probs = functools.partial(passes.log_probs, model)
        row = tf.TensorSpec([None], tf.int32)
        rows = tf.TensorSpec([None, None], tf.int32)
        mask = tf.TensorSpec([None, None], tf.bool)
        cache = tf.nest.map_structure(_any_batch, model.get_initial_cache(1))

        def shared(
            specs: list[Any], function: Callable, *first: Any, **named: Any
        ) -> Any:
            call = functools.partial(weights.call, function, *first, **named)
            return tf.function(call, input_signature=specs, autograph=False)

        self.step = shared([row, cache], passes.step, model)
        self._chunk = shared([rows, cache, mask], passes.stream, model)
        self.read = shared([rows, row, cache], self._read, scores=False)
        self.read_and_score = shared([rows, row, cache], self._read, scores=True)

    def empty_cache(self, ids: tf.Tensor) -> Any:
        """Returns the cache of no text for each row of ids `[B, ...]`."""
        return self._model.get_initial_cache(tf.shape(ids)[0])

    def _read(
        self, ids: tf.Tensor, lengths: tf.Tensor, cache: Any, *, scores: bool
    ) -> tuple:
        """Reads chunk after chunk; see `read`, and `read_and_score` if it scores."""
        time = tf.shape(ids)[1]
        count = tf.maximum(-(-time // _CHUNK), 1)
        size = tf.maximum(-(-time // count), 1)  # alike, so that the last is no padding
        padded = tf.pad(ids, [[0, 0], [0, count * size + 1 - time]])
        ends = lengths[:, None]

        def unfinished(index: Any, *_: Any) -> tf.Tensor:
            return index < count

        def advance(index: Any, cache: Any, _: tf.Tensor, nll: tf.TensorArray) -> Any:
            places = index * size + tf.range(size)
            chunk = tf.gather(padded, places, axis=1)
            outputs, after = self._chunk(chunk, cache, places < ends)
            # A loop's variables must keep their static shapes.
            after = tf.nest.map_structure(with_static_shape, after, cache)
            if scores:
                places += 1
                targets = tf.gather(padded, places, axis=1)
                chunk_nll = self._nll(outputs, targets, places < ends)
                nll = nll.write(index, tf.transpose(chunk_nll))
            return index + 1, after, outputs[:, -1], nll

        rows = tf.shape(ids)[0]
        features = tf.zeros([rows, self._model.trellis.output_units])
        chunks = tf.TensorArray(
            tf.float32, count if scores else 0, element_shape=[None, None]
        )
        loop = (0, cache, features, chunks)
        _, cache, features, chunks = tf.while_loop(unfinished, advance, loop)
        if not scores:
            return features, cache
        nll = tf.transpose(chunks.concat())
        nll = tf.pad(nll, [[0, 0], [1, 0]])[:, :time]
        return nll, features, cache

    def _nll(
        self, outputs: tf.Tensor, targets: tf.Tensor, scored: tf.Tensor
    ) -> tf.Tensor:
        """Returns the nll of targets, 0 where they are not scored."""
        targets = tf.where(scored, targets, 0)
        table = self._model.embedding.embeddings
        nll = self._model.head.plain_nll(outputs, targets, table)
        return tf.where(scored, nll, 0)


def valid(ids: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """Returns which of ids `[B, T]` are before their row's end."""
    return tf.sequence_mask(lengths, tf.shape(ids)[1])


def _any_batch(value: tf.Tensor) -> tf.TensorSpec:
    return tf.TensorSpec([None, *value.shape[1:]], value.dtype)
