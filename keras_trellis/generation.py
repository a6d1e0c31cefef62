"""Sampling from a language model: pure functions of tensors.

Nothing here knows a model: `generate` takes a function that advances one. Every argument that a
request may set (temperature, top-k, top-p, seed, stop tokens) may differ from row to row, so that
rows which happen to share a batch do not meet.

A draw is a function of its row's seed and of the step alone, and the same in eager mode, in a
graph and under XLA.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_trellis import dropout

__all__ = ["check_sampling", "filter_log_probs", "generate", "row_seeds", "sample"]


def check_sampling(temperature: Any, top_k: Any, top_p: Any) -> None:
    """Refuses values that `sample` cannot mean anything by.

    Raises:
        ValueError: not `temperature >= 0`, `top_k >= 1` and integral, `0 < top_p <= 1`.
    """
    if not (isinstance(temperature, numbers.Real) and 0 <= float(temperature) < float("inf")):
        raise ValueError(
            "`temperature` must be a number >= 0 (0: the most probable token). "
            f"Received: temperature={temperature!r}"
        )
    if top_k is not None and not (isinstance(top_k, numbers.Integral) and int(top_k) >= 1):
        raise ValueError(f"`top_k` must be None or an integer >= 1. Received: top_k={top_k!r}")
    if top_p is not None and not (isinstance(top_p, numbers.Real) and 0 < float(top_p) <= 1):
        raise ValueError(f"`top_p` must be None or in (0, 1]. Received: top_p={top_p!r}")


def row_seeds(seed: int | None, batch_size: Any) -> tf.Tensor:
    """Returns one seed a row, `[B, 2]` int64, from one number; None draws that number at random.

    Row b's seed does not depend on the batch size.
    """
    if seed is None:
        seed = tf.random.uniform([], maxval=tf.int64.max, dtype=tf.int64)
    elif isinstance(seed, numbers.Integral):
        seed = np.array(int(seed) & (2**64 - 1), np.uint64).astype(np.int64)
    else:
        raise ValueError(f"`seed` must be None or an integer. Received: seed={seed!r}")
    rows = tf.range(tf.cast(batch_size, tf.int64))
    return tf.stack([tf.fill(tf.shape(rows), tf.cast(seed, tf.int64)), rows], axis=-1)


def filter_log_probs(log_probs: tf.Tensor, *, top_k: Any = None, top_p: Any = None) -> tf.Tensor:
    """Sets to minus infinity all but the most probable tokens.

    The `top_k` most probable tokens are kept; of those, renormalised, the fewest that have at
    least the probability `top_p` together (nucleus sampling: Holtzman et al., 2020). The most
    probable token is always kept, and so are tokens as probable as the last one kept.

    Args:
        log_probs: `[B, V]`, normalised or not.
        top_k: None, an integer >= 1, or integers `[B]`.
        top_p: None, a number in (0, 1], or numbers `[B]`.

    Returns:
        `[B, V]`, not renormalised.
    """
    if top_k is None and top_p is None:
        return log_probs
    ordered = tf.sort(log_probs, axis=-1, direction="DESCENDING")
    kept = tf.ones_like(ordered, tf.bool)
    if top_k is not None:
        kept = tf.range(tf.shape(ordered)[1])[None] < _column(top_k, tf.int32)
    if top_p is not None:
        probabilities = tf.nn.softmax(_only(kept, ordered))
        before = tf.cumsum(probabilities, axis=-1, exclusive=True)
        top_p = _column(top_p, ordered.dtype)
        # The sum may round to 1 before the last token: 1 keeps all of them whatever it says.
        kept &= (before < top_p) | (top_p >= 1)
    least = tf.reduce_min(tf.where(kept, ordered, ordered.dtype.max), axis=-1, keepdims=True)
    return _only(log_probs >= least, log_probs)


def sample(
    log_probs: tf.Tensor,
    seeds: tf.Tensor,
    step: Any,
    *,
    temperature: Any = 1.0,
    top_k: Any = None,
    top_p: Any = None,
) -> tf.Tensor:
    """Draws one token a row.

    A draw is the largest of the filtered log-probabilities plus Gumbel noise, which is
    distributed as the softmax is; with temperature 0 there is no noise, and the most probable
    token (of equals, the first) is what remains.

    Args:
        log_probs: `[B, V]`.
        seeds: `[B, 2]` int64, a row's seed.
        step: integer, which draw of the row's this is.
        temperature: number >= 0, or numbers `[B]`; it divides the log-probabilities before the
            filters.
        top_k: see `filter_log_probs`.
        top_p: see `filter_log_probs`.

    Returns:
        `[B]` int32.
    """
    temperature = _column(temperature, log_probs.dtype)
    random = temperature > 0
    scaled = log_probs / tf.where(random, temperature, tf.ones_like(temperature))
    scores = filter_log_probs(scaled, top_k=top_k, top_p=top_p)
    noise = _gumbel(seeds, step, tf.shape(log_probs)[1], log_probs.dtype)
    return tf.argmax(tf.where(random, scores + noise, scores), axis=-1, output_type=tf.int32)


def generate(
    step: Callable[[tf.Tensor, Any], tuple[tf.Tensor, Any]],
    log_probs: tf.Tensor,
    cache: Any,
    *,
    steps: Any,
    seeds: tf.Tensor,
    temperature: Any = 1.0,
    top_k: Any = None,
    top_p: Any = None,
    stop_token_ids: Any = None,
) -> tuple[tf.Tensor, Any]:
    """Draws `steps` tokens a row, feeding each one back.

    A row that has drawn a stop token goes on with that token; the loop ends when all rows have.

    Args:
        step: (ids `[B]`, cache) -> (log-probabilities `[B, V]` of the next token, cache).
        log_probs: `[B, V]`, of the first token to draw.
        cache: what `step` takes; a nest of tensors whose shapes `step` keeps.
        steps: how many tokens to draw, >= 1; may be a tensor.
        seeds: `[B, 2]` int64, from `row_seeds`, or a seed of its own for every row.
        temperature: see `sample`.
        top_k: see `filter_log_probs`.
        top_p: see `filter_log_probs`.
        stop_token_ids: None, integers `[S]`, or `[B, S]`.

    Returns:
        ids `[B, steps]` int32, and the cache after all of them but the last: to go on, feed that
        one.
    """

    def draw(log_probs: tf.Tensor, index: Any) -> tf.Tensor:
        return sample(log_probs, seeds, index, temperature=temperature, top_k=top_k, top_p=top_p)

    def unfinished(index, token, finished, *_):
        return (index < steps) & ~tf.reduce_all(finished)

    def advance(index, token, finished, tokens, cache):
        log_probs, cache = step(token, cache)
        token = tf.where(finished, token, draw(log_probs, index))
        finished |= _is_stop(token, stop_token_ids)
        return index + 1, token, finished, tokens.write(index, token), cache

    steps = tf.convert_to_tensor(steps, tf.int32)
    token = draw(log_probs, 0)
    tokens = tf.TensorArray(tf.int32, steps, element_shape=token.shape).write(0, token)
    loop = (tf.constant(1), token, _is_stop(token, stop_token_ids), tokens, cache)
    count, last, _, tokens, cache = tf.while_loop(
        unfinished, advance, loop, maximum_iterations=steps
    )
    # What an early end left unwritten is the stop token that each row ended with.
    written = tf.range(steps)[:, None] < count
    return tf.transpose(tf.where(written, tokens.stack(), last[None])), cache


def check_generation(
    ids: tf.Tensor, max_length: Any, stop_token_ids: Sequence[int] | None, vocabulary_size: int
) -> None:
    """Refuses a prompt that cannot be continued to `max_length` tokens of a vocabulary.

    Raises:
        ValueError: the prompt is not `[B, T]` with T >= 1, has ids outside the vocabulary, or is
            longer than `max_length`; a stop token is not in the vocabulary.
    """
    if ids.shape.rank != 2 or ids.shape[1] == 0:
        raise ValueError(
            "`ids` must be of shape [B, T], a prompt having at least one token. "
            f"Received: ids of shape {tuple(ids.shape)}"
        )
    _check_range("ids", ids.numpy(), vocabulary_size)
    if not isinstance(max_length, numbers.Integral) or max_length < ids.shape[1]:
        raise ValueError(
            "`max_length` counts the prompt's tokens too, so it must be an integer >= the prompt's "
            f"length, {ids.shape[1]}. Received: max_length={max_length!r}"
        )
    if stop_token_ids is not None:
        stops = np.asarray(stop_token_ids)
        if stops.ndim != 1 or (stops.size and not np.issubdtype(stops.dtype, np.integer)):
            raise ValueError(
                "`stop_token_ids` must be None or a sequence of integers. "
                f"Received: stop_token_ids={stop_token_ids!r}"
            )
        _check_range("stop_token_ids", stops, vocabulary_size)


def _check_range(name: str, ids: np.ndarray, vocabulary_size: int) -> None:
    outside = ids[(ids < 0) | (ids >= vocabulary_size)]
    if outside.size:
        raise ValueError(
            f"`{name}` must be in [0, {vocabulary_size}), the vocabulary. "
            f"Received: {name} with {outside.flat[0]}"
        )


def _gumbel(seeds: tf.Tensor, step: Any, size: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Standard Gumbel noise `[B, size]`: row b a function of `seeds[b]` and `step`."""

    def row(seed: tf.Tensor) -> tf.Tensor:
        bits = dropout.uniform_bits([size], dropout.fold_in(seed, tf.cast(step, seed.dtype)))
        # The middles of 2^23 equal parts of (0, 1): the logarithms stay finite at both ends.
        parts = tf.cast(tf.bitwise.right_shift(bits, tf.constant(9, tf.uint32)), dtype)
        return -tf.math.log(-tf.math.log((parts + 0.5) * 2.0**-23))

    return tf.map_fn(row, seeds, fn_output_signature=tf.TensorSpec([None], dtype))


def _is_stop(token: tf.Tensor, stop_token_ids: Any) -> tf.Tensor:
    if stop_token_ids is None:
        return tf.zeros_like(token, tf.bool)
    return tf.reduce_any(token[:, None] == tf.cast(stop_token_ids, token.dtype), axis=-1)


def _only(kept: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    return tf.where(kept, values, tf.constant(-np.inf, values.dtype))


def _column(value: Any, dtype: tf.DType) -> tf.Tensor:
    """A number or one a row, `[1, 1]` or `[B, 1]`."""
    return tf.reshape(tf.cast(value, dtype), [-1, 1])
