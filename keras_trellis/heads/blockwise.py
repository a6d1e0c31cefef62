"""The nll of a softmax by tiles: memory that grows neither with the rows nor with the words."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from keras_trellis.engine.tracing import with_gradient
from keras_trellis.heads.head import at_least_float32, dense_logits, log_add_exp
from keras_trellis.models import inputs

__all__ = ["BLOCK", "WORDS", "add_blockwise_nll", "blockwise_nll"]

BLOCK = 2**23
"""How many logits there are at a time at most; 32 MiB in float32."""

WORDS = 3 * 2**13
"""How many words there are at a time at most."""


def blockwise_nll(
    features: tf.Tensor, targets: tf.Tensor, words: tf.Tensor, bias: tf.Tensor
) -> tf.Tensor:
    """Returns `-log softmax(features words^T + bias)[targets]`, `[N]` in at least float32.

    A target outside [0, V) is a NaN. For memory see `add_blockwise_nll`.

    Args:
        features: `[N, E]`.
        targets: int32 `[N]`, in [0, V).
        words: `[V, E]`, V known.
        bias: `[V]`.

    Raises:
        ValueError: there are not as many targets as features.
    """
    rows = inputs.sizes(features)[:1]
    expected = "[N], one for each of `features`"
    targets = tf.reshape(inputs.with_known_shape("targets", targets, rows, expected), rows)
    zeros = tf.zeros_like(at_least_float32(features[:, 0]))
    ranges = (0, words.shape[0]), (0, tf.shape(features)[0])
    return add_blockwise_nll(features, zeros, words, bias, targets, *ranges)[1]


def add_blockwise_nll(
    features: tf.Tensor,
    total: tf.Tensor,
    words: tf.Tensor,
    bias: tf.Tensor,
    targets: tf.Tensor,
    of_words: tuple[int, int],
    of_rows: tuple[Any, Any],
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """Adds to `total [N]` the nll of some rows by a softmax over some of the words.

    As `blockwise_nll`, for words and rows from the first to before the last of a pair. Other words
    and rows cost nothing; the targets of other rows may be anything.

    Returns features, total, words and bias, to be handed on to the next softmax over the same
    table. The backward pass then adds one's gradients to the next one's, in place: there is one
    gradient of the table's size, and beside it never more than `BLOCK` logits and the gradient of
    `WORDS` words. It computes the logits again, a third more work than to keep them, and their
    softmax by the normalizers of the forward pass (as in Wijmans et al., 2024, "Cut your losses in
    large-vocabulary language models").
    """
    size = of_words[1] - of_words[0]
    # Equal parts, since under XLA all blocks have one size.
    limit = math.ceil(size / math.ceil(size / WORDS))
    columns = _Range(*of_words, limit, tf.constant(words.shape[0]))
    rows = _Range(*of_rows, BLOCK // limit, tf.shape(features)[0])

    @with_gradient
    def add(features: tf.Tensor, total: tf.Tensor, words: tf.Tensor, bias: tf.Tensor) -> Any:
        inputs = (features, words, bias)

        def forward(row: _Block, sums: tuple) -> tuple:
            normalizer, logit = _normalize(inputs, row, columns, targets)
            return row.add_to(sums[0], normalizer - logit), row.add_to(sums[1], normalizer)

        added, normalizers = rows.fold(forward, (total, tf.zeros_like(total)))

        def gradient(
            of_features: tf.Tensor, of_total: tf.Tensor, of_words: tf.Tensor, of_bias: tf.Tensor
        ) -> tuple:
            def backward(row: _Block, sums: tuple) -> tuple:
                def add_tile(column: _Block, sums: tuple) -> tuple:
                    tile = _tile(inputs, row, column)
                    hits = _hits(targets, row, column, words)
                    found = _tile_gradient(tile, hits, row.of(normalizers), row.of(of_total))
                    blocks = (row, column, column)
                    pairs = zip(blocks, sums, found, strict=True)
                    return tuple(block.add_to(whole, part) for block, whole, part in pairs)

                return columns.fold(add_tile, sums)

            of_inputs = rows.fold(backward, (of_features, of_words, of_bias))
            return of_inputs[0], of_total, *of_inputs[1:]

        return (tf.identity(features), added, tf.identity(words), tf.identity(bias)), gradient

    return add(features, total, words, bias)


def _normalize(inputs: tuple, row: _Block, columns: _Range, targets: tf.Tensor) -> tuple:
    """The logarithm of a block's sum of exponentials, and the targets' logits; both `[rows]`."""

    def widen(column: _Block, sums: tuple) -> tuple:
        logits = dense_logits(*_tile(inputs, row, column))
        hits = _hits(targets, row, column, inputs[1])
        picked = tf.reduce_sum(tf.where(hits, logits, tf.zeros((), logits.dtype)), axis=-1)
        return log_add_exp(tf.reduce_logsumexp(logits, axis=-1), sums[0]), sums[1] + picked

    labels = row.of(targets)
    known = (columns.start <= labels) & (labels < columns.stop)
    zeros = tf.zeros_like(labels, at_least_float32(inputs[0]).dtype)
    return columns.fold(widen, (zeros - math.inf, tf.where(known, zeros, zeros + math.nan)))


def _tile_gradient(tile: tuple, hits: tf.Tensor, normalizer: tf.Tensor, of_nll: tf.Tensor) -> Any:
    """The gradients of `sum(of_nll * nll)` with respect to a tile's features, words and bias."""
    with tf.GradientTape() as tape:
        tape.watch(tile)
        logits = dense_logits(*tile)
    of_logits = tf.exp(logits - normalizer[:, None]) - tf.cast(hits, logits.dtype)
    return tape.gradient(logits, tile, of_logits * of_nll[:, None])


def _tile(inputs: tuple, row: _Block, column: _Block) -> tuple:
    """The block's features, and the words and biases that they meet."""
    features, words, bias = inputs
    return row.of(features), column.of(words), column.of(bias)


def _hits(targets: tf.Tensor, row: _Block, column: _Block, words: tf.Tensor) -> tf.Tensor:
    """Which of a tile's logits are the targets'; booleans `[rows, columns]`."""
    return row.of(targets)[:, None] == column.of(tf.range(words.shape[0]))


class _Block(NamedTuple):
    """Consecutive rows, or words, of `[N, ...]`.

    They are cut out twice: `most` rows from `begin`, a number that XLA knows, so that no more are
    computed there; of these the `size` rows from `offset`.
    """

    begin: tf.Tensor
    most: tf.Tensor
    offset: tf.Tensor
    size: tf.Tensor

    def of(self, values: tf.Tensor) -> tf.Tensor:
        """The block's rows of `[N, ...]`."""
        return _cut(_cut(values, self.begin, self.most), self.offset, self.size)

    def add_to(self, values: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        """`[N, ...]` with the block's rows added in their places."""
        places = self.of(tf.range(tf.shape(values)[0]))
        return tf.tensor_scatter_nd_add(values, places[:, None], rows)


def _cut(values: tf.Tensor, begin: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    others = tf.shape(values)[1:]
    begins = tf.concat([[begin], tf.zeros_like(others)], axis=0)
    return tf.slice(values, begins, tf.concat([[size], others], axis=0))


class _Range(NamedTuple):
    """Of `[size, ...]` what is from `start` to `stop`, to be taken in blocks of at most `limit`."""

    start: Any
    stop: Any
    limit: int
    size: tf.Tensor

    def fold(self, body: Callable[[_Block, tuple], tuple], sums: tuple) -> tuple:
        """Returns what is left of `sums` after all blocks."""

        def step(first: tf.Tensor, sums: tuple) -> tuple:
            block = self._block(first)
            return first + block.size, body(block, sums)

        loop = (tf.convert_to_tensor(self.start), sums)
        # One block at a time, whatever does not depend on the one before.
        return tf.while_loop(lambda first, _: first < self.stop, step, loop, parallel_iterations=1)[
            1
        ]

    def _block(self, first: tf.Tensor) -> _Block:
        most = tf.minimum(self.size, self.limit)
        begin = tf.minimum(first, self.size - most)
        return _Block(begin, most, first - begin, tf.minimum(self.limit, self.stop - first))
