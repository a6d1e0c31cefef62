"""The nll of a softmax, by tiles: memory grows neither with the rows nor with the words."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from keras_trellis.core.precision import at_least_float32
from keras_trellis.heads.head import dense_logits, log_add_exp

BLOCK = 2**23
"""The most logits in memory at a time: 32 MiB in float32."""

WORDS = 3 * 2**13
"""The most words of a tile."""

Chain = tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]
"""Features `[N, E]`, a nll `[N]`, words `[V, E]` with V known, and biases `[V]`."""


def blockwise_nll(
    features: tf.Tensor,
    targets: tf.Tensor,
    words: tf.Tensor,
    bias: tf.Tensor,
    plain: bool = False,
) -> tf.Tensor:
    """Returns `-log softmax(features words^T + bias)[targets]`, `[N]` in at least float32.

    The nll of a target outside [0, V) is NaN. `add_blockwise_nll` describes the memory.

    Args:
        features: `[N, E]`.
        targets: int32 `[N]`, in [0, V).
        words: `[V, E]`, V known.
        bias: `[V]`.
        plain: see `add_blockwise_nll`.
    """
    zeros = tf.zeros_like(at_least_float32(features[:, 0]))
    word_range = 0, words.shape[0]
    row_range = 0, tf.shape(features)[0]
    chain = features, zeros, words, bias
    _, nll, _, _ = add_blockwise_nll(chain, targets, word_range, row_range, plain)
    return nll


def add_blockwise_nll(
    chain: Chain,
    targets: tf.Tensor,
    word_range: tuple[int, int],
    row_range: tuple[Any, Any],
    plain: bool = False,
) -> Chain:
    """Adds the nll of some rows, by a softmax over some of the words, to that of the chain.

    Other words and rows cost nothing. The targets of other rows may have any value.

    The backward pass computes the logits again, which is a third more work than keeping them. It
    takes their softmax from the normalizers of the forward pass (as in Wijmans et al., 2024, "Cut
    your losses in large-vocabulary language models"). Pass the result of this function to the next
    softmax over the same table: the backward pass then adds up their gradients in place. It holds
    one gradient of the table's size, at most `BLOCK` logits, and the gradient of `WORDS` words.

    Args:
        chain: features, the nll so far, words and biases.
        targets: int32 `[N]`.
        word_range: the first word, and the one after the last.
        row_range: the first row, and the one after the last.
        plain: whether to use TensorFlow's own gradient, which keeps all tiles. A SavedModel needs
            it, since it cannot hold custom gradients.

    Returns:
        the chain with the new nll.
    """
    first, end = word_range
    # Make equal parts: under XLA all blocks have one size.
    parts = math.ceil((end - first) / WORDS)
    limit = math.ceil((end - first) / parts)

    def add(
        features: tf.Tensor, total: tf.Tensor, words: tf.Tensor, bias: tf.Tensor
    ) -> Any:
        rows = _Range(*row_range, BLOCK // limit, tf.shape(features)[0])
        columns = _Range(*word_range, limit, tf.shape(words)[0])
        tiles = _Tiles(features, words, bias, targets, rows, columns)
        total, normalizers = tiles.add_nll(total)

        def gradient(*sums: tf.Tensor) -> tuple:
            return tiles.add_gradients(sums, normalizers)

        added = (tf.identity(features), total, tf.identity(words), tf.identity(bias))
        return added, gradient

    if plain:
        added, _ = add(*chain)
        return added
    return tf.custom_gradient(add)(*chain)


class _Tiles(NamedTuple):
    """The logits of some rows and some words, a tile at a time."""

    features: tf.Tensor
    words: tf.Tensor
    bias: tf.Tensor
    targets: tf.Tensor
    rows: _Range
    columns: _Range

    def add_nll(self, total: tf.Tensor) -> tuple:
        """Returns `total [N]` with the nll of the rows, and the rows' normalizers `[N]`."""

        def add(row: _Block, sums: tuple) -> tuple:
            total, normalizers = sums
            normalizer, logit = self._normalize(row)
            total = row.add_to(total, normalizer - logit)
            normalizers = row.add_to(normalizers, normalizer)
            return total, normalizers

        return self.rows.fold(add, (total, tf.zeros_like(total)))

    def add_gradients(self, sums: tuple, normalizers: tf.Tensor) -> tuple:
        """Returns the gradients with respect to the arguments of `add_blockwise_nll`.

        Args:
            sums: the gradients with respect to its results; the new gradients are added to them.
            normalizers: from `add_nll`.
        """
        by_features, by_total, by_words, by_bias = sums

        def add_tile(row: _Block, column: _Block, sums: tuple) -> tuple:
            by_features, by_words, by_bias = sums
            features, words, bias = self._tile_gradients(
                row, column, normalizers, by_total
            )
            by_features = row.add_to(by_features, features)
            by_words = column.add_to(by_words, words)
            by_bias = column.add_to(by_bias, bias)
            return by_features, by_words, by_bias

        def add_row(row: _Block, sums: tuple) -> tuple:
            return self.columns.fold(functools.partial(add_tile, row), sums)

        sums = self.rows.fold(add_row, (by_features, by_words, by_bias))
        by_features, by_words, by_bias = sums
        return by_features, by_total, by_words, by_bias

    def _normalize(self, row: _Block) -> tuple:
        """Returns the log of a block's sums of exponentials, and the targets' logits."""

        def widen(column: _Block, sums: tuple) -> tuple:
            normalizer, picked = sums
            logits = dense_logits(*self._tile(row, column))
            hits = tf.where(self._hits(row, column), logits, 0)
            picked += tf.reduce_sum(hits, axis=-1)
            normalizer = log_add_exp(tf.reduce_logsumexp(logits, axis=-1), normalizer)
            return normalizer, picked

        labels = row.slice(self.targets)
        known = (self.columns.start <= labels) & (labels < self.columns.stop)
        zeros = tf.zeros_like(labels, at_least_float32(self.features).dtype)
        nothing = zeros - math.inf
        unpicked = tf.where(known, zeros, math.nan)
        return self.columns.fold(widen, (nothing, unpicked))

    def _tile_gradients(
        self,
        row: _Block,
        column: _Block,
        normalizers: tf.Tensor,
        by_total: tf.Tensor,
    ) -> list[tf.Tensor]:
        """Returns the gradients with respect to a tile's features, words and bias."""
        tile = self._tile(row, column)
        with tf.GradientTape() as tape:
            tape.watch(tile)
            logits = dense_logits(*tile)
        softmax = tf.exp(logits - row.slice(normalizers)[:, None])
        hits = tf.cast(self._hits(row, column), logits.dtype)
        by_logits = (softmax - hits) * row.slice(by_total)[:, None]
        return tape.gradient(logits, tile, by_logits)

    def _tile(self, row: _Block, column: _Block) -> tuple:
        """Returns the features of a block, and the words and biases of a block."""
        features = row.slice(self.features)
        return features, column.slice(self.words), column.slice(self.bias)

    def _hits(self, row: _Block, column: _Block) -> tf.Tensor:
        """Returns which logits of a tile belong to targets: booleans `[rows, columns]`."""
        labels = row.slice(self.targets)
        places = column.slice(tf.range(self.words.shape[0]))
        return labels[:, None] == places


class _Block(NamedTuple):
    """Consecutive rows, or words, of `[N, ...]`.

    `slice` cuts twice: first `most` rows from `begin`, then `size` of these from `offset`. XLA
    knows `most`, so it computes no more rows than that.
    """

    begin: tf.Tensor
    most: tf.Tensor
    offset: tf.Tensor
    size: tf.Tensor

    def slice(self, values: tf.Tensor) -> tf.Tensor:
        """Returns the block's rows of `[N, ...]`."""
        ahead = _cut(values, self.begin, self.most)
        return _cut(ahead, self.offset, self.size)

    def add_to(self, values: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        """Adds rows to `[N, ...]` at the places of the block."""
        places = self.slice(tf.range(tf.shape(values)[0]))
        return tf.tensor_scatter_nd_add(values, places[:, None], rows)


def _cut(values: tf.Tensor, begin: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    others = tf.shape(values)[1:]
    begins = tf.concat([[begin], tf.zeros_like(others)], axis=0)
    sizes = tf.concat([[size], others], axis=0)
    return tf.slice(values, begins, sizes)


class _Range(NamedTuple):
    """The part of `[size, ...]` from `start` to `stop`, taken in blocks of at most `limit`."""

    start: Any
    stop: Any
    limit: int
    size: tf.Tensor

    def fold(self, body: Callable[[_Block, tuple], tuple], sums: tuple) -> tuple:
        """Applies `body` to one block after another, and returns the last `sums`."""

        def step(first: tf.Tensor, sums: tuple) -> tuple:
            block = self._block(first)
            return first + block.size, body(block, sums)

        def unfinished(first: tf.Tensor, _: tuple) -> tf.Tensor:
            return first < self.stop

        loop = (tf.convert_to_tensor(self.start), sums)
        # One block at a time: TensorFlow would start the next ones early, and hold their logits.
        _, sums = tf.while_loop(unfinished, step, loop, parallel_iterations=1)
        return sums

    def _block(self, first: tf.Tensor) -> _Block:
        most = tf.minimum(self.size, self.limit)
        begin = tf.minimum(first, self.size - most)
        size = tf.minimum(self.limit, self.stop - first)
        return _Block(begin, most, first - begin, size)
