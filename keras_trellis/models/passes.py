"""What a language model computes: embedding, layer, head; nothing is checked.

`model` is anything with an `embedding`, a sequence layer `trellis` and a `head`. Ids must be in
[0, V), and shapes must fit: the methods of `TrellisLM` check them first, an export checks requests.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from keras import ops

from keras_trellis.backend import current as backend
from keras_trellis.core import checks, dropout
from keras_trellis.models import sequence_layer
from keras_trellis.types import Tensor


class Features(NamedTuple):
    """What the terms of the loss are made of.

    Attributes:
        raw: the outputs of the layer, `[B, T, output_units]`.
        dropped: the same after dropout, which is what the head gets.
        auxiliary: the outputs of inner levels after dropout, `[B, M, T, output_units]`, or None.
        state: the state after the last step.
    """

    raw: Tensor
    dropped: Tensor
    auxiliary: Tensor | None
    state: tuple[Tensor, ...]


def embed(
    model: Any,
    ids: Tensor,
    training: bool = False,
) -> Tensor:
    """Returns the word vectors `[B, T, E]`, in training without the words that are dropped.

    An id outside of the vocabulary has NaN: under XLA, on an accelerator and on JAX, a lookup
    outside of the table returns some vector.
    """
    words = model.embedding(ids)
    known = ops.expand_dims((ids >= 0) & (ids < model.vocabulary_size), -1)
    words = ops.where(known, words, float("nan"))
    if model.untrained_input_id is not None:
        untrained = ops.expand_dims(ids == model.untrained_input_id, -1)
        words = ops.where(untrained, ops.stop_gradient(words), words)
    if not (training and model.embedding_dropout):
        return words
    shape = (model.vocabulary_size, 1)
    mask = _mask(model, "words", shape, model.embedding_dropout, words.dtype)
    return words * backend.take(mask, ids)


def features(
    model: Any,
    ids: Tensor,
    *,
    training: bool = False,
    **how: Any,
) -> Features:
    """Runs whole sequences of ids `[B, T]`.

    Args:
        model: the model.
        ids: the ids.
        training: whether to drop.
        **how: `initial_state`, `mask` and the arguments of `sequence_layer.run`.
    """
    words = embed(model, ids, training)
    raw, state, auxiliary = sequence_layer.run(
        model.trellis, words, training=training, **how
    )
    if auxiliary is not None:
        auxiliary = _drop(model, auxiliary, training)
    return Features(raw, _drop(model, raw, training), auxiliary, state)


def stream(model: Any, ids: Tensor, cache: Any, mask: Any = None) -> tuple[Tensor, Any]:
    """Returns what the head gets for ids `[B, T]`, `[B, T, output_units]`, and the next cache."""
    return model.trellis.stream(embed(model, ids), cache, mask=mask)


def read(
    model: Any,
    ids: Tensor,
    *,
    cache: Any = None,
    initial_state: Any = None,
    mask: Any = None,
) -> tuple[Tensor, Any]:
    """Returns what the head gets for ids `[B, T]`, and what to continue with.

    Args:
        model: the model.
        ids: the ids.
        cache: the exact past, which is continued by the next one; None: the past is
            `initial_state`.
        initial_state: a state, which is continued by the next one; None: zeros.
        mask: None, or booleans `[B, T]`.
    """
    if cache is not None:
        return stream(model, ids, cache, mask)
    results = features(model, ids, initial_state=initial_state, mask=mask)
    return results.raw, results.state


def prefill(
    model: Any, ids: Tensor, cache: Any, mask: Any = None
) -> tuple[Tensor, Any]:
    """Returns the log-probabilities `[B, V]` after ids `[B, T]`, T >= 1, and the next cache."""
    outputs, cache = stream(model, ids, cache, mask)
    # A masked step has the output of the valid one before it: the last one fits every row.
    return log_probs(model, outputs[:, -1]), cache


def step(
    model: Any,
    ids: Tensor,
    cache: Any,
) -> tuple[Tensor, Any]:
    """Returns the log-probabilities `[B, V]` after one id a row, `[B]`, and the next cache."""
    return prefill(model, ids[:, None], cache)


def logits(
    model: Any,
    outputs: Tensor,
    training: bool = False,
) -> Tensor:
    """Returns the logits `[..., V]` for outputs `[..., output_units]`."""
    return model.head.logits(outputs, model.embedding.embeddings, training=training)


def log_probs(model: Any, outputs: Tensor) -> Tensor:
    """Returns the log-probabilities `[..., V]` for outputs `[..., output_units]`."""
    return model.head.log_probs(outputs, model.embedding.embeddings)


def nll(
    model: Any,
    outputs: Tensor,
    targets: Tensor,
    training: bool = False,
    **options: Any,
) -> Tensor:
    """Returns the negative log-likelihood of each target, in nats; see the head's `nll`."""
    table = model.embedding.embeddings
    return model.head.nll(outputs, targets, table, training=training, **options)


def _drop(
    model: Any,
    outputs: Tensor,
    training: bool,
) -> Tensor:
    """Variational dropout of `[..., T, E]`: one mask for all steps."""
    if not (training and model.output_dropout):
        return outputs
    *rows, _, channels = checks.sizes(outputs)
    shape = [*rows, 1, channels]
    return outputs * _mask(model, "outputs", shape, model.output_dropout, outputs.dtype)


def _mask(
    model: Any,
    name: str,
    shape: Any,
    rate: float,
    dtype: Any,
) -> Any:  # a tensor: the rate is not zero
    seed = dropout.next_seed(model.seed_generator)
    return dropout.stream_mask(seed, name, rate, shape, dtype)
