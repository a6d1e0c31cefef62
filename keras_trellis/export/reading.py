"""How an exported language model reads ids: functions that several signatures share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from keras_trellis.backend.tensorflow import with_static_shape
from keras_trellis.core.convolution import swapped
from keras_trellis.export.weights import Weights

_CHUNK = 128  # tokens read at once, which bounds the memory of a long text
_ROWS = 128  # distributions over the vocabulary at once
# The nll, the ranks, the likeliest and their log-probabilities.
_COLUMNS = (tf.float32, tf.int32, tf.int32, tf.float32)


class Reader:
    """Reads ids from a cache on; nothing is checked.

    Each function is in the graph once, whichever signatures call it.

    Args:
        model: the model, as `inference_model` returns it.
        weights: the model's weights, as they are exported.

    Attributes:
        log_probs: features `[B, E]` to log-probabilities `[B, V]`.
        step: (ids `[B]`, cache) to (log-probabilities `[B, V]` of the next token, cache).
        chunk: (ids `[B, n]`, cache, mask `[B, n]`) to (features `[B, n, E]`, cache).
        read: (ids `[B, T]`, lengths `[B]`, cache) to (the features of each row's last id `[B, E]`,
            the cache after it).
        compare: (ids `[B, T]`, lengths `[B]`, count) to (how probable the ids are, and the `count`
            most probable ones in the place of each; the features of each row's last id). The first
            are `nll` `[B, T]`, in nats, `ranks` `[B, T]`, 1 for the most probable token,
            `likeliest_ids` and `likeliest_log_probs` `[B, T, count]`, the first first. All are 0
            where nothing was scored: for the first id of a row, and after a row's end.
    """

    def __init__(self, model: Any, weights: Weights) -> None:
        self._model = model
        self.log_probs = model.log_probs
        row = tf.TensorSpec([None], tf.int32)
        rows = tf.TensorSpec([None, None], tf.int32)
        number = tf.TensorSpec([], tf.int32)
        mask = tf.TensorSpec([None, None], tf.bool)
        cache = tf.nest.map_structure(_any_batch, model.get_initial_cache(1))

        def shared(specs: list[Any], function: Callable) -> Any:
            call = functools.partial(weights.call, function)
            return tf.function(call, input_signature=specs, autograph=False)

        self.step = shared([row, cache], model.read_one)
        self.chunk = shared([rows, cache, mask], model.run_chunk)
        self.read = shared([rows, row, cache], self._read)
        self.compare = shared([rows, row, number], self._read_and_compare)

    def empty_cache(self, ids: tf.Tensor) -> Any:
        """Returns the cache of no text for each row of ids `[B, ...]`."""
        return self._model.get_initial_cache(tf.shape(ids)[0])

    def _read(self, ids: tf.Tensor, lengths: tf.Tensor, cache: Any) -> tuple:
        _, features, cache = self._by_chunks(ids, lengths, cache)
        return features, cache

    def _read_and_compare(
        self, ids: tf.Tensor, lengths: tf.Tensor, count: tf.Tensor
    ) -> tuple:
        empty = self.empty_cache(ids)
        columns, features, _ = self._by_chunks(ids, lengths, empty, count)
        nll, ranks, likeliest, log_probs = columns
        compared = {
            "nll": nll[..., 0],
            "ranks": ranks[..., 0],
            "likeliest_ids": likeliest,
            "likeliest_log_probs": log_probs,
        }
        return compared, features

    def _by_chunks(
        self,
        ids: tf.Tensor,
        lengths: tf.Tensor,
        cache: Any,
        count: tf.Tensor | None = None,
    ) -> tuple:
        """Reads chunk after chunk.

        Args:
            ids: `[B, T]`.
            lengths: `[B]`.
            cache: what came before.
            count: with how many tokens to compare each id; None: nothing is compared.

        Returns:
            what `_compare` has of all chunks, `[B, T, ...]`, with zeros for the first id; the
            features of each row's last id; the cache after it.
        """
        time = tf.shape(ids)[1]
        chunks = tf.maximum(-(-time // _CHUNK), 1)
        size = tf.maximum(
            -(-time // chunks), 1
        )  # alike, so that the last is no padding
        padded = tf.pad(ids, [[0, 0], [0, chunks * size + 1 - time]])
        ends = lengths[:, None]

        def unfinished(index: Any, *_: Any) -> tf.Tensor:
            return index < chunks

        def advance(index: Any, cache: Any, _: tf.Tensor, written: list) -> Any:
            places = index * size + tf.range(size)
            chunk = tf.gather(padded, places, axis=1)
            outputs, after = self.chunk(chunk, cache, places < ends)
            # A loop's variables must keep their static shapes.
            after = tf.nest.map_structure(with_static_shape, after, cache)
            if written:
                places += 1
                targets = tf.gather(padded, places, axis=1)
                columns = self._compare(count, outputs, targets, places < ends)
                pairs = zip(written, columns, strict=True)
                written = [array.write(index, swapped(each)) for array, each in pairs]
            return index + 1, after, outputs[:, -1], written

        rows = tf.shape(ids)[0]
        features = tf.zeros([rows, self._model.trellis.output_units])
        arrays = []
        for dtype in () if count is None else _COLUMNS:
            shape = [None, None, None]
            arrays.append(
                tf.TensorArray(dtype, chunks, infer_shape=False, element_shape=shape)
            )
        loop = (0, cache, features, arrays)
        _, cache, features, arrays = tf.while_loop(unfinished, advance, loop)
        results = []
        for array in arrays:
            steps = swapped(array.concat())
            nothing = tf.zeros_like(steps[:, :1])
            results.append(tf.concat([nothing, steps], axis=1)[:, :time])
        return results, features, cache

    def _compare(
        self,
        count: tf.Tensor,
        outputs: tf.Tensor,
        targets: tf.Tensor,
        scored: tf.Tensor,
    ) -> list[tf.Tensor]:
        """Returns the columns of the next ids of a chunk, each `[B, n, ...]`."""
        size = tf.size(targets)
        blocks = tf.maximum(-(-size // _ROWS), 1)  # of no rows, too
        missing = blocks * _ROWS - size
        features = tf.reshape(outputs, [-1, outputs.shape[-1]])
        features = tf.pad(features, [[0, missing], [0, 0]])
        flat_targets = tf.pad(tf.reshape(targets, [-1]), [[0, missing]])
        # One block at a time, which bounds the memory of a large vocabulary.
        results = tf.map_fn(
            functools.partial(self._compare_rows, count),
            (
                tf.reshape(features, [-1, _ROWS, features.shape[-1]]),
                tf.reshape(flat_targets, [-1, _ROWS]),
            ),
            fn_output_signature=tuple(
                tf.TensorSpec([_ROWS, None], dtype) for dtype in _COLUMNS
            ),
            parallel_iterations=1,
        )
        columns = []
        for result in results:
            width = tf.shape(result)[2]
            flat = tf.reshape(result, [blocks * _ROWS, width])[:size]
            value = tf.reshape(flat, [*tf.unstack(tf.shape(targets)), width])
            columns.append(tf.where(scored[..., None], value, tf.zeros_like(value)))
        return columns

    def _compare_rows(
        self, count: tf.Tensor, rows: tuple[tf.Tensor, tf.Tensor]
    ) -> tuple[tf.Tensor, ...]:
        features, targets = rows
        log_probs = self.log_probs(features)
        own = tf.gather(log_probs, targets[:, None], batch_dims=1)
        above = tf.cast(log_probs > own, tf.int32)
        ranks = 1 + tf.reduce_sum(above, axis=1, keepdims=True)
        best, likeliest = tf.math.top_k(log_probs, count)
        return -own, ranks, likeliest, best


def valid(ids: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """Returns which of ids `[B, T]` are before their row's end."""
    return tf.sequence_mask(lengths, tf.shape(ids)[1])


def total(nll: tf.Tensor) -> tf.Tensor:
    """Returns the sum over a text, which may be long, `[B]`."""
    sums = tf.reduce_sum(tf.cast(nll, tf.float64), axis=1)
    return tf.cast(sums, tf.float32)


def _any_batch(value: tf.Tensor) -> tf.TensorSpec:
    return tf.TensorSpec([None, *value.shape[1:]], value.dtype)
