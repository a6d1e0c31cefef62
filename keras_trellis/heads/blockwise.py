"""The nll of a softmax in blocks of rows: memory that does not grow with their number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from keras_trellis.heads.head import at_least_float32, dense_logits

__all__ = ["BLOCK", "add_blockwise_nll", "blockwise_nll"]

BLOCK = 2**24
"""How many logits there are at a time, or a quarter of the words' gradient; 64 MiB in float32."""


def blockwise_nll(
    features: tf.Tensor, targets: tf.Tensor, words: tf.Tensor, bias: tf.Tensor
) -> tf.Tensor:
    """Returns `-log softmax(features words^T + bias)[targets]`, `[N]` in at least float32.

    There are never more than `BLOCK` logits at a time, or a quarter as many as there are numbers
    in `words`: the backward pass computes them again, a block after another, which is a third more
    work than keeping them.

    Args:
        features: `[N, E]`.
        targets: int32 `[N]`, in [0, V).
        words: `[V, E]`, V known.
        bias: `[V]`.
    """
    zeros = tf.zeros_like(at_least_float32(features[:, 0]))
    return add_blockwise_nll(features, zeros, targets, words, bias, 0, tf.shape(features)[0])[1]


def add_blockwise_nll(
    features: tf.Tensor,
    total: tf.Tensor,
    targets: tf.Tensor,
    words: tf.Tensor,
    bias: tf.Tensor,
    start: Any,
    stop: Any,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the features, and `total [N]` with the nll of the rows from `start` to `stop` added.

    As `blockwise_nll`. Other rows cost nothing, their targets may be anything; under XLA, where all
    blocks have one size, the last one is filled up. Several ranges that hand on features and total
    are computed one after another in the backward pass too, so that it needs the memory of one.
    """
    rows = _Rows(start, stop, max(1, BLOCK // words.shape[0], words.shape[1] // 4))

    @tf.custom_gradient
    def add(features: tf.Tensor, total: tf.Tensor, words: tf.Tensor, bias: tf.Tensor) -> Any:
        def forward(block: _Block, sums: tuple) -> tuple:
            values = _nll(block.of(features), block.of(targets), words, bias)
            return (block.add_to(sums[0], values),)

        def gradient(of_features: tf.Tensor, of_total: tf.Tensor) -> tuple:
            def backward(block: _Block, sums: tuple) -> tuple:
                inputs = (block.of(features), words, bias)
                with tf.GradientTape() as tape:
                    tape.watch(inputs)
                    values = _nll(inputs[0], block.of(targets), words, bias)
                of_rows, of_words, of_bias = tape.gradient(values, inputs, block.of(of_total))
                return block.add_to(sums[0], of_rows), sums[1] + of_words, sums[2] + of_bias

            sums = (of_features, tf.zeros_like(words), tf.zeros_like(bias))
            of_features, of_words, of_bias = rows.fold(backward, sums)
            return of_features, of_total, of_words, of_bias

        return (tf.identity(features), *rows.fold(forward, (total,))), gradient

    return add(features, total, words, bias)


def _nll(features: tf.Tensor, targets: tf.Tensor, words: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    logits = dense_logits(features, words, bias)
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=targets, logits=logits)


class _Block(NamedTuple):
    """Consecutive rows of `[N, ...]`.

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


class _Rows(NamedTuple):
    """The rows from `start` to `stop`, to be taken in blocks of at most `limit`."""

    start: Any
    stop: Any
    limit: int

    def fold(self, body: Callable[[_Block, tuple], tuple], sums: tuple) -> tuple:
        """Returns what is left of `sums`, the first of them `[N, ...]`, after all blocks."""

        def step(first: tf.Tensor, sums: tuple) -> tuple:
            block = self._block(first, tf.shape(sums[0])[0])
            return first + block.size, body(block, sums)

        loop = (tf.convert_to_tensor(self.start), sums)
        # One block at a time, whatever does not depend on the one before.
        return tf.while_loop(lambda first, _: first < self.stop, step, loop, parallel_iterations=1)[
            1
        ]

    def _block(self, first: tf.Tensor, rows: tf.Tensor) -> _Block:
        most = tf.minimum(rows, self.limit)
        begin = tf.minimum(first, rows - most)
        return _Block(begin, most, first - begin, tf.minimum(self.limit, self.stop - first))
