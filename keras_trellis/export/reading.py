"""How an exported language model reads ids: functions that several signatures share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from keras_trellis.backend.tensorflow import with_static_shape
from keras_trellis.core.convolution import swapped
from keras_trellis.export.tokenizer import Encoded, Tokenizer
from keras_trellis.export.weights import Weights
from keras_trellis.models import passes

_CHUNK = 128  # tokens read at once, which bounds the memory of a long text
_ROWS = 128  # distributions over the vocabulary at once


class Comparisons(NamedTuple):
    """How probable ids are, and what was more probable.

    Attributes:
        nll: `[B, T]`, in nats, 0 where nothing was scored: for the first id of a row, and after a
            row's end.
        ranks: `[B, T]`, 1 for the most probable token; 0 where nothing was scored.
        likeliest: `[B, T, K]`, the most probable ids in the place of each, the first first.
        log_probs: `[B, T, K]`, of these.
    """

    nll: tf.Tensor
    ranks: tf.Tensor
    likeliest: tf.Tensor
    log_probs: tf.Tensor


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
        read_and_score: the same arguments, to the same after the nll of the ids `[B, T]`: 0 for the
            first of a row, and after a row's end.
    """

    def __init__(self, model: Any, weights: Weights) -> None:
        self._model = model
        self.log_probs = functools.partial(passes.log_probs, model)
        row = tf.TensorSpec([None], tf.int32)
        rows = tf.TensorSpec([None, None], tf.int32)
        number = tf.TensorSpec([], tf.int32)
        mask = tf.TensorSpec([None, None], tf.bool)
        cache = tf.nest.map_structure(_any_batch, model.get_initial_cache(1))

        def shared(
            specs: list[Any], function: Callable, *first: Any, **named: Any
        ) -> Any:
            call = functools.partial(weights.call, function, *first, **named)
            return tf.function(call, input_signature=specs, autograph=False)

        self.step = shared([row, cache], passes.step, model)
        self.chunk = shared([rows, cache, mask], passes.stream, model)
        self.read = shared([rows, row, cache], self._read)
        self.read_and_score = shared([rows, row, cache], self._read_and_score)
        self._compared = shared([rows, row, cache, number], self._read_and_compare)

    def empty_cache(self, ids: tf.Tensor) -> Any:
        """Returns the cache of no text for each row of ids `[B, ...]`."""
        return self._model.get_initial_cache(tf.shape(ids)[0])

    def read_and_compare(
        self, ids: tf.Tensor, lengths: tf.Tensor, cache: Any, count: tf.Tensor
    ) -> Comparisons:
        """Reads ids as `read`, and compares each with the `count` most probable tokens."""
        return Comparisons(*self._compared(ids, lengths, cache, count))

    def read_text(
        self, tokenizer: Tokenizer, text: tf.Tensor
    ) -> tuple[Encoded, tf.Tensor, tf.Tensor]:
        """Returns encoded texts, the nll of their tokens, and the features after the last ones."""
        encoded = tokenizer.encode(text)
        begun = tokenizer.begun(encoded)
        empty = self.empty_cache(begun)
        nll, features, _ = self.read_and_score(begun, encoded.lengths + 1, empty)
        return encoded, nll[:, 1:], features

    def _read(self, ids: tf.Tensor, lengths: tf.Tensor, cache: Any) -> tuple:
        _, features, cache = self._by_chunks(ids, lengths, cache, (), None)
        return features, cache

    def _read_and_score(self, ids: tf.Tensor, lengths: tf.Tensor, cache: Any) -> tuple:
        def judge(*chunk: tf.Tensor) -> list[tf.Tensor]:
            return [self._nll(*chunk)]

        (nll,), features, cache = self._by_chunks(
            ids, lengths, cache, [_per_token(tf.float32)], judge
        )
        return nll, features, cache

    def _read_and_compare(
        self, ids: tf.Tensor, lengths: tf.Tensor, cache: Any, count: tf.Tensor
    ) -> tuple:
        judge = functools.partial(self._compare, count)
        specs = [_per_token(tf.float32), _per_token(tf.int32)]
        specs += [_per_token(dtype, None) for dtype in (tf.int32, tf.float32)]
        results, _, _ = self._by_chunks(ids, lengths, cache, specs, judge)
        return tuple(results)

    def _by_chunks(
        self,
        ids: tf.Tensor,
        lengths: tf.Tensor,
        cache: Any,
        specs: Sequence[tf.TensorSpec],
        judge: Any,
    ) -> tuple:
        """Reads chunk after chunk.

        Args:
            ids: `[B, T]`.
            lengths: `[B]`.
            cache: what came before.
            specs: of what `judge` returns.
            judge: from the features of a chunk `[B, n, E]`, the next ids `[B, n]`, and which of
                these are scored, to tensors `[B, n, ...]`.

        Returns:
            the tensors of all chunks `[B, T, ...]`, whose first place belongs to the first id, with
            zeros; the features of each row's last id; the cache after it.
        """
        time = tf.shape(ids)[1]
        count = tf.maximum(-(-time // _CHUNK), 1)
        size = tf.maximum(-(-time // count), 1)  # alike, so that the last is no padding
        padded = tf.pad(ids, [[0, 0], [0, count * size + 1 - time]])
        ends = lengths[:, None]

        def unfinished(index: Any, *_: Any) -> tf.Tensor:
            return index < count

        def advance(index: Any, cache: Any, _: tf.Tensor, written: list) -> Any:
            places = index * size + tf.range(size)
            chunk = tf.gather(padded, places, axis=1)
            outputs, after = self.chunk(chunk, cache, places < ends)
            # A loop's variables must keep their static shapes.
            after = tf.nest.map_structure(with_static_shape, after, cache)
            if judge is not None:
                places += 1
                targets = tf.gather(padded, places, axis=1)
                judged = judge(outputs, targets, places < ends)
                pairs = zip(written, judged, strict=True)
                written = [array.write(index, swapped(each)) for array, each in pairs]
            return index + 1, after, outputs[:, -1], written

        rows = tf.shape(ids)[0]
        features = tf.zeros([rows, self._model.trellis.output_units])
        arrays = [
            tf.TensorArray(
                spec.dtype, count, infer_shape=False, element_shape=spec.shape
            )
            for spec in specs
        ]
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
        """Compares the next ids of a chunk with the most probable ones; see `Comparisons`."""
        shape = tf.shape(targets)
        size = tf.size(targets)
        blocks = tf.maximum(-(-size // _ROWS), 1)  # of no rows, too
        missing = blocks * _ROWS - size
        features = tf.reshape(outputs, [-1, outputs.shape[-1]])
        features = tf.pad(features, [[0, missing], [0, 0]])
        targets = tf.pad(tf.reshape(targets, [-1]), [[0, missing]])
        # One block at a time, which bounds the memory of a large vocabulary.
        results = tf.map_fn(
            functools.partial(self._compare_rows, count),
            (
                tf.reshape(features, [-1, _ROWS, features.shape[-1]]),
                tf.reshape(targets, [-1, _ROWS]),
            ),
            fn_output_signature=(
                tf.TensorSpec([_ROWS], tf.float32),
                tf.TensorSpec([_ROWS], tf.int32),
                tf.TensorSpec([_ROWS, None], tf.int32),
                tf.TensorSpec([_ROWS, None], tf.float32),
            ),
            parallel_iterations=1,
        )
        compared = []
        for result in results:
            further = tf.shape(result)[2:]
            flat = tf.reshape(result, tf.concat([[-1], further], axis=0))[:size]
            value = tf.reshape(flat, tf.concat([shape, further], axis=0))
            ones = tf.ones_like(further)
            where = tf.reshape(scored, tf.concat([shape, ones], axis=0))
            nothing = tf.zeros([], value.dtype)
            value = tf.where(where, value, nothing)
            compared.append(tf.ensure_shape(value, [None, None, *result.shape[2:]]))
        return compared

    def _compare_rows(
        self, count: tf.Tensor, rows: tuple[tf.Tensor, tf.Tensor]
    ) -> tuple[tf.Tensor, ...]:
        features, targets = rows
        log_probs = self.log_probs(features)
        own = tf.gather(log_probs, targets[:, None], batch_dims=1)
        ranks = 1 + tf.reduce_sum(tf.cast(log_probs > own, tf.int32), axis=1)
        best, likeliest = tf.math.top_k(log_probs, count)
        return -own[:, 0], ranks, likeliest, best

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


def total(nll: tf.Tensor) -> tf.Tensor:
    """Returns the sum over a text, which may be long, `[B]`."""
    sums = tf.reduce_sum(tf.cast(nll, tf.float64), axis=1)
    return tf.cast(sums, tf.float32)


def _per_token(dtype: tf.DType, *sizes: int | None) -> tf.TensorSpec:
    return tf.TensorSpec([None, None, *sizes], dtype)


def _any_batch(value: tf.Tensor) -> tf.TensorSpec:
    return tf.TensorSpec([None, *value.shape[1:]], value.dtype)
