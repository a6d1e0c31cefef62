"""The nll of a softmax, by tiles: memory grows neither with the rows nor with the words."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

from keras import ops

from keras_trellis.backend import current as backend
from keras_trellis.core import checks
from keras_trellis.core.convolution import at_least_float32
from keras_trellis.heads.head import dense_logits, log_add_exp
from keras_trellis.types import Number, Tensor

BLOCK = 2**23
"""The most logits in memory at a time: 32 MiB in float32."""

WORDS = 3 * 2**13
"""The most words of a tile."""

Chain = tuple[Tensor, Tensor, Tensor, Tensor]
"""Features `[N, E]`, a nll `[N]`, words `[V, E]` with V known, and biases `[V]`."""


def blockwise_nll(
    features: Tensor,
    targets: Tensor,
    words: Tensor,
    bias: Tensor,
) -> Tensor:
    """Returns `-log softmax(features words^T + bias)[targets]`, `[N]` in at least float32.

    The nll of a target outside [0, V) is NaN. `add_blockwise_nll` describes the memory.

    Args:
        features: `[N, E]`.
        targets: int32 `[N]`, in [0, V).
        words: `[V, E]`, V known.
        bias: `[V]`.
    """
    zeros = ops.zeros_like(at_least_float32(features[:, 0]))
    word_range = 0, words.shape[0]
    row_range = 0, checks.sizes(features)[0]
    chain = features, zeros, words, bias
    _, nll, _, _ = add_blockwise_nll(chain, targets, word_range, row_range)
    return nll


def add_blockwise_nll(
    chain: Chain,
    targets: Tensor,
    word_range: tuple[int, int],
    row_range: tuple[Number, Number],
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

    Returns:
        the chain with the new nll.
    """
    first, end = word_range
    # Make equal parts: under XLA all blocks have one size.
    parts = math.ceil((end - first) / WORDS)
    limit = math.ceil((end - first) / parts)

    def add(features: Tensor, total: Tensor, words: Tensor, bias: Tensor) -> Any:
        num_rows, *_ = checks.sizes(features)
        rows = _Range(row_range, BLOCK // limit, num_rows)
        columns = _Range(word_range, limit, words.shape[0])
        tiles = _Tiles(features, words, bias, targets, rows, columns)
        total, normalizers = tiles.add_nll(total)

        def gradient(*sums: Tensor) -> tuple:
            return tiles.add_gradients(sums, normalizers)

        return (features, total, words, bias), gradient

    return backend.custom_gradient(add)(*chain)


class _Tiles(NamedTuple):
    """The logits of some rows and some words, a tile at a time."""

    features: Tensor
    words: Tensor
    bias: Tensor
    targets: Tensor
    rows: _Range
    columns: _Range

    def add_nll(self, total: Tensor) -> tuple:
        """Returns `total [N]` with the nll of the rows, and the rows' normalizers `[N]`."""

        def add(row: Any, sums: tuple) -> tuple:
            total, normalizers = sums
            normalizer, logit = self._normalize(row)
            total = row.add_to(total, normalizer - logit)
            normalizers = row.add_to(normalizers, normalizer)
            return total, normalizers

        return self.rows.fold(add, (total, ops.zeros_like(total)))

    def add_gradients(self, sums: tuple, normalizers: Tensor) -> tuple:
        """Returns the gradients with respect to the arguments of `add_blockwise_nll`.

        Args:
            sums: the gradients with respect to its results; the new gradients are added to them.
            normalizers: from `add_nll`.
        """
        by_features, by_total, by_words, by_bias = sums

        def add_tile(row: Any, column: Any, sums: tuple) -> tuple:
            by_features, by_words, by_bias = sums
            features, words, bias = self._tile_gradients(
                row, column, normalizers, by_total
            )
            by_features = row.add_to(by_features, features)
            by_words = column.add_to(by_words, words)
            by_bias = column.add_to(by_bias, bias)
            return by_features, by_words, by_bias

        def add_row(row: Any, sums: tuple) -> tuple:
            return self.columns.fold(functools.partial(add_tile, row), sums)

        sums = self.rows.fold(add_row, (by_features, by_words, by_bias))
        by_features, by_words, by_bias = sums
        return by_features, by_total, by_words, by_bias

    def _normalize(self, row: Any) -> tuple:
        """Returns the log of a block's sums of exponentials, and the targets' logits."""

        def widen(column: Any, sums: tuple) -> tuple:
            normalizer, picked = sums
            tile = self._tile(row, column)
            logits = column.only(dense_logits(*tile), -math.inf)
            hits = ops.where(self._hits(row, column), logits, 0)
            picked = picked + ops.sum(hits, axis=-1)
            tile_normalizer = ops.logsumexp(logits, axis=-1)
            normalizer = log_add_exp(tile_normalizer, normalizer)
            return normalizer, picked

        labels = row.slice(self.targets)
        first, end = self.columns.range
        known = (labels >= first) & (labels < end)
        zeros = ops.zeros_like(labels, at_least_float32(self.features).dtype)
        nothing = zeros - math.inf
        unpicked = ops.where(known, zeros, math.nan)
        return self.columns.fold(widen, (nothing, unpicked))

    def _tile_gradients(
        self,
        row: Any,
        column: Any,
        normalizers: Tensor,
        by_total: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the gradients with respect to a tile's features, words and bias."""
        features, words, bias = self._tile(row, column)
        logits = dense_logits(features, words, bias)
        logits = column.only(logits, -math.inf)
        normalizer = row.slice(normalizers, math.inf)[:, None]
        softmax = ops.exp(logits - normalizer)
        hits = ops.cast(self._hits(row, column), logits.dtype)
        by_nll = row.slice(by_total)[:, None]
        by_logits = (softmax - hits) * by_nll
        by_products = ops.cast(by_logits, features.dtype)
        vectors = ops.cast(words, features.dtype)
        by_features = backend.matmul(by_products, vectors)
        by_words = backend.matmul(by_products, features, transpose_one=True)
        by_bias = ops.sum(by_logits, axis=0)
        return (
            by_features,
            ops.cast(by_words, words.dtype),
            ops.cast(by_bias, bias.dtype),
        )

    def _tile(self, row: Any, column: Any) -> tuple:
        """Returns the features of a block, and the words and biases of a block."""
        return (
            row.slice(self.features),
            column.slice(self.words),
            column.slice(self.bias),
        )

    def _hits(self, row: Any, column: Any) -> Tensor:
        """Returns which logits of a tile belong to targets: booleans `[rows, columns]`."""
        labels = row.slice(self.targets)
        places = column.places(self.words.shape[0])
        return column.only(labels[:, None] == places, False)


class _Range(NamedTuple):
    """The part of `[size, ...]` from its first row to its last, in blocks of at most `limit`."""

    range: tuple[Number, Number]
    limit: int
    size: Number

    def fold(self, body: Any, sums: tuple) -> tuple:
        """Applies `body` to one block after another; see `backend.fold_blocks`."""
        return backend.fold_blocks(body, sums, self.range, self.limit, self.size)
