"""A softmax split by frequency, for vocabularies of hundreds of thousands of words."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_trellis import arguments
from keras_trellis.backend import current as backend
from keras_trellis.core import checks
from keras_trellis.core.convolution import at_least_float32
from keras_trellis.heads.blockwise import Chain, add_blockwise_nll, blockwise_nll
from keras_trellis.heads.head import (
    Head,
    broadcast_targets,
    dense_logits,
    require_tied_sizes,
)
from keras_trellis.types import Tensor


@keras.saving.register_keras_serializable("keras_trellis")
class AdaptiveSoftmax(Head):
    """A tied softmax in clusters: frequent words at once, rare ones in two steps.

    The vocabulary is in the order of frequency, the most frequent word first. A cutoff begins a
    cluster of rare words. The first softmax predicts the frequent words and a token for each
    cluster. A word of cluster j has the probability of the cluster's token times its probability in
    a softmax over the cluster:

        log p(w) = log softmax([table_0; tail_vectors] h + [bias_0; tail_bias])_w          w in 0
        log p(w) = the same of the token of j + log softmax(table_j h + bias_j)_w          w in j

    `nll` computes a cluster's softmax only for the targets in that cluster: a training step costs
    little more than the softmax of the frequent words. `add_blockwise_nll` describes its memory.
    The gradient of the table is dense, as optimizers with momentum or weight decay need it.

    Variables: `bias [V]`, `tail_vectors [clusters, E]`, `tail_bias [clusters]`, all initially zero.
    The nll of a target outside [0, V) is NaN.

    Args:
        cutoffs: the first word of each cluster: increasing integers in (0, V).
        **kwargs: arguments of every Keras layer.

    Raises:
        ValueError: the cutoffs do not increase, or reach beyond the vocabulary.

    Source: Bai et al. (2019), section 5.2 (WikiText-103), after Grave et al. (2017), "Efficient
    softmax approximation for GPUs"; tied as in the released code, with no smaller word vectors for
    rare words.

    Input shape:
        features `[..., E]`, and the table of word vectors, `[V, E]`.

    Output shape:
        `[..., V]`.

    Examples:
        >>> import numpy as np
        >>> from keras_trellis.heads import AdaptiveSoftmax
        >>> head = AdaptiveSoftmax(cutoffs=[10, 30])
        >>> features, table = np.ones([2, 5, 8], "float32"), np.ones([50, 8], "float32")
        >>> tuple(head(features, table).shape)
        (2, 5, 50)
    """

    def __init__(self, cutoffs: Sequence[int], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.cutoffs = arguments.increasing("cutoffs", cutoffs)

    def build(self, features_shape: tuple, table_shape: tuple) -> None:
        """Creates the variables; features must have as many channels as the table."""
        require_tied_sizes("An adaptive softmax", features_shape, table_shape)
        words, units = table_shape
        if self.cutoffs[-1] >= words:
            raise ValueError(
                f"`cutoffs` must be less than the vocabulary's size, {words}. "
                f"Received: cutoffs={self.cutoffs}"
            )
        edges = (0, *self.cutoffs, words)
        self._ranges = list(itertools.pairwise(edges))
        clusters = len(self.cutoffs)
        self.bias = self._add_bias(words)
        self.tail_vectors = self.add_weight(
            name="tail_vectors", shape=(clusters, units), initializer="zeros"
        )
        self.tail_bias = self.add_weight(
            name="tail_bias",
            shape=(clusters,),
            initializer="zeros",
            autocast=False,
        )

    def log_probs(self, features: Tensor, table: Any, training: bool = False) -> Tensor:
        """Returns log-probabilities `[..., V]` in at least float32."""
        words = _cut(backend.to_tensor(table), self._ranges)
        biases = _cut(backend.to_tensor(self.bias), self._ranges)
        words[0], biases[0] = self._with_tokens(words[0], biases[0])
        softmaxes = []
        for cluster in zip(words, biases, strict=True):
            logits = dense_logits(features, *cluster)
            softmaxes.append(ops.log_softmax(logits))
        first, *tails = softmaxes
        frequent = self.cutoffs[0]
        parts = [first[..., :frequent]]
        for place, tail in enumerate(tails, start=frequent):
            token = first[..., place : place + 1]
            parts.append(token + tail)
        return ops.concatenate(parts, axis=-1)

    def nll(
        self,
        features: Tensor,
        targets: Tensor,
        table: Any,
        training: bool = False,
    ) -> Tensor:
        """Returns the negative log-likelihood of each target; see `Head.nll`."""
        targets = broadcast_targets(targets, features)
        targets = ops.cast(targets, "int32")
        labels = ops.reshape(targets, [-1])
        rows = ops.reshape(features, [-1, features.shape[-1]])
        # Sort the targets by cluster, so that those of a cluster are consecutive.
        order = ops.argsort(self._target_clusters(labels))
        sorted_rows = backend.take(rows, order)
        sorted_labels = backend.take(labels, order)
        nll = self._sorted_nll(sorted_rows, sorted_labels, table)
        nll = ops.scatter(order[:, None], nll, checks.sizes(labels))
        return ops.reshape(nll, checks.sizes(targets))

    def _sorted_nll(
        self,
        rows: Tensor,
        targets: Tensor,
        table: Any,
    ) -> Tensor:
        """Returns the nll of targets `[N]` that are sorted by cluster."""
        places = self._target_clusters(targets)
        edges = [
            ops.sum(ops.cast(places < number, "int32"))
            for number in range(1, len(self.cutoffs) + 2)
        ]
        zeros = ops.zeros_like(at_least_float32(rows[:, 0]))
        words = backend.to_tensor(table)
        bias = backend.to_tensor(self.bias)
        chain: Chain = rows, zeros, words, bias
        _, *clusters = self._ranges
        row_ranges = itertools.pairwise(edges)
        for word_range, row_range in zip(clusters, row_ranges, strict=True):
            chain = add_blockwise_nll(chain, targets, word_range, row_range)
        rows, nll, words, bias = chain
        # The frequent words come last: the backward pass begins with them, and extends their
        # gradient by zeros to that of the table.
        count = self.cutoffs[0]
        words, bias = self._with_tokens(words[:count], bias[:count])
        labels = ops.where(places > 0, count - 1 + places, targets)
        return nll + blockwise_nll(rows, labels, words, bias)

    def _target_clusters(self, targets: Tensor) -> Tensor:
        """`[N]` -> int32 `[N]`: 0 for a frequent word."""
        begun = [targets >= cutoff for cutoff in self.cutoffs]
        return sum(ops.cast(after, "int32") for after in begun)  # type: ignore[return-value]

    def _with_tokens(self, words: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """Appends the clusters' tokens to the frequent words and their biases."""
        tail = ops.cast(self.tail_vectors, words.dtype)
        words = ops.concatenate([words, tail], axis=0)
        tail_bias = backend.to_tensor(self.tail_bias)
        bias = ops.concatenate([bias, tail_bias], axis=0)
        return words, bias

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {**super().get_config(), "cutoffs": list(self.cutoffs)}


def _cut(rows: Tensor, ranges: Sequence[tuple[int, int]]) -> list[Tensor]:
    return [rows[begin:end] for begin, end in ranges]
