"""Sampling from a language model: pure functions of tensors.

Nothing here knows a model: `generate` takes a function that advances one. Every argument that a
request may set (temperature, top-k, top-p, seed, stop tokens) may differ from row to row: rows that
share a batch do not depend on each other.

A draw depends on its row's seed and its number alone. It is the same in eager mode, in a graph and
under XLA.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from keras_trellis.arguments import refusal
from keras_trellis.core import checks, dropout

ALL = tf.int32.max
"""A `top_k` that keeps all tokens."""


def check_sampling(temperature: Any, top_k: Any, top_p: Any) -> None:
    """Refuses values that `sample` cannot use.

    Raises:
        ValueError: not `temperature >= 0`, `top_k >= 1` and integral, `0 < top_p <= 1`.
    """
    if not (isinstance(temperature, numbers.Real) and 0 <= float(temperature) < np.inf):
        raise refusal(
            "temperature", temperature, "a number >= 0 (0: the most probable token)"
        )
    if top_k is not None and not (
        isinstance(top_k, numbers.Integral) and int(top_k) >= 1
    ):
        raise refusal("top_k", top_k, "None or an integer >= 1")
    if top_p is not None and not (
        isinstance(top_p, numbers.Real) and 0 < float(top_p) <= 1
    ):
        raise refusal("top_p", top_p, "None or in (0, 1]")


def row_seeds(seed: int | None, batch_size: Any) -> tf.Tensor:
    """Returns one seed a row, `[B, 2]` int64, from one number; None draws that number at random.

    Row b's seed does not depend on the batch size.
    """
    if seed is None:
        most = tf.int64.max
        seed = tf.random.uniform([], maxval=most, dtype=tf.int64)
    elif isinstance(seed, numbers.Integral):
        unsigned = int(seed) & (2**64 - 1)
        seed = np.array(unsigned, np.uint64).astype(np.int64)
    else:
        raise refusal("seed", seed, "None or an integer")
    rows = tf.range(tf.cast(batch_size, tf.int64))
    seeds = tf.fill(tf.shape(rows), seed)
    return tf.stack([seeds, rows], axis=-1)


def filter_log_probs(
    log_probs: tf.Tensor,
    *,
    top_k: Any = ALL,
    top_p: Any = 1.0,
) -> tf.Tensor:
    """Sets to minus infinity all but the most probable tokens.

    It keeps the `top_k` most probable tokens; of those, renormalised, the fewest that have at least
    the probability `top_p` together (nucleus sampling: Holtzman et al., 2020). It always keeps the
    most probable token, and tokens as probable as the last one kept.

    Args:
        log_probs: `[B, V]`, normalised or not.
        top_k: an integer >= 1, or integers `[B]`.
        top_p: a number in (0, 1], or numbers `[B]`.

    Returns:
        `[B, V]`, not renormalised.
    """
    top_k = _column(top_k, tf.int32)
    top_p = _column(top_p, log_probs.dtype)
    size = tf.shape(log_probs)[1]

    def filtered() -> tf.Tensor:
        ordered = tf.sort(log_probs, axis=-1, direction="DESCENDING")
        chosen = tf.range(size) < top_k
        probabilities = tf.nn.softmax(_only(chosen, ordered))
        before = tf.cumsum(probabilities, axis=-1, exclusive=True)
        # The sum may round to 1 before the last token; a `top_p` of 1 keeps all of them anyway.
        chosen &= (before < top_p) | (top_p >= 1)
        candidates = tf.where(chosen, ordered, ordered.dtype.max)
        least = tf.reduce_min(candidates, axis=-1, keepdims=True)
        return _only(log_probs >= least, log_probs)

    narrows = tf.reduce_any(top_k < size) | tf.reduce_any(top_p < 1)
    # Sorting a large vocabulary takes longer than the rest of a draw.
    return tf.cond(narrows, filtered, lambda: log_probs)


def penalties(forbidden_ids: Any, log_probs: tf.Tensor) -> tf.Tensor:
    """Returns `[B, V]`, which added to log-probabilities forbids tokens.

    Args:
        forbidden_ids: integers `[F]` for all rows, or `[B, F]`, below V; a negative one stands for
            no token.
        log_probs: `[B, V]`, of any draw.

    Returns:
        minus infinity for the tokens that are forbidden, 0 for the others.
    """
    rows = tf.shape(log_probs)[0]
    ids = tf.cast(forbidden_ids, tf.int32)
    ids = tf.broadcast_to(ids, [rows, tf.shape(ids)[-1]])
    row = tf.range(rows)[:, None]
    row = tf.broadcast_to(row, tf.shape(ids))
    places = tf.stack([row, tf.maximum(ids, 0)], axis=-1)
    nothing = tf.zeros_like(log_probs)
    forbidden = _only(ids < 0, tf.zeros_like(ids, log_probs.dtype))
    return tf.tensor_scatter_nd_add(nothing, places, forbidden)


def sample(
    log_probs: tf.Tensor,
    seeds: tf.Tensor,
    step: Any,
    *,
    temperature: Any = 1.0,
    top_k: Any = ALL,
    top_p: Any = 1.0,
) -> tf.Tensor:
    """Draws one token a row.

    A draw is the largest of the filtered log-probabilities plus Gumbel noise, which is distributed
    as the softmax is. With temperature 0 there is no noise, and the draw is the most probable
    token, of equals the first.

    Args:
        log_probs: `[B, V]`; minus infinity for what is never drawn.
        seeds: `[B, 2]` int64, a row's seed.
        step: integer, the number of the row's draw, or integers `[B]`.
        temperature: number >= 0, or numbers `[B]`; it divides the log-probabilities before the
            filters.
        top_k: see `filter_log_probs`.
        top_p: see `filter_log_probs`.

    Returns:
        `[B]` int32.
    """
    temperature = _column(temperature, log_probs.dtype)
    random = temperature > 0

    def drawn() -> tf.Tensor:
        # With the greatest at 0 a quotient that overflows is never that one's.
        greatest = tf.reduce_max(log_probs, axis=-1, keepdims=True)
        divisor = tf.where(random, temperature, 1)
        scaled = (log_probs - greatest) / divisor
        scores = filter_log_probs(scaled, top_k=top_k, top_p=top_p)
        noisy = scores + _gumbel(seeds, step, log_probs)
        return _argmax(tf.where(random, noisy, scores))

    # Noise takes longer than the time step of many models.
    return tf.cond(tf.reduce_any(random), drawn, lambda: _argmax(log_probs))


def generate(
    step: Callable[[tf.Tensor, Any], tuple[tf.Tensor, Any]],
    log_probs: tf.Tensor,
    cache: Any,
    *,
    steps: Any,
    seeds: tf.Tensor,
    first: Any = 0,
    stop_token_ids: Any = (),
    forbidden_ids: Any = (),
    **sampling: Any,
) -> tuple[tf.Tensor, tf.Tensor, Any]:
    """Draws up to `steps` tokens a row, feeding each one back.

    A row ends with its last step or with a stop token. Its cache stays as it was then while other
    rows go on; the loop ends when all rows have ended.

    Args:
        step: (ids `[B]`, cache) -> (log-probabilities `[B, V]` of the next token, cache).
        log_probs: `[B, V]`, of the first token to draw.
        cache: what `step` takes; a nest of tensors `[B, ...]` whose shapes `step` keeps.
        steps: the number of tokens to draw, >= 1, or integers `[B]`; may be a tensor.
        seeds: `[B, 2]` int64, from `row_seeds`, or a seed of its own for every row.
        first: the number of a row's first draw, or integers `[B]`. Number draws by position, and
            two calls draw what one long call draws.
        stop_token_ids: integers `[S]`, or `[B, S]`.
        forbidden_ids: see `penalties`: not all tokens. The filters choose from the others, whose
            probabilities keep their proportions.
        **sampling: `temperature`, `top_k` and `top_p` of `sample`.

    Returns:
        ids `[B, max(steps)]` int32, in which a row repeats its last token after its end; the number
        of tokens drawn for each row, `[B]`; and the cache, which has read all of these but the
        last: to go on, feed that one.
    """
    addends = penalties(forbidden_ids, log_probs)
    stops = tf.cast(stop_token_ids, tf.int32)

    def draw(log_probs: tf.Tensor, index: Any) -> tf.Tensor:
        return sample(log_probs + addends, seeds, first + index, **sampling)

    def going_on(token: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
        stopped = tf.reduce_any(token[:, None] == stops, axis=-1)
        return (lengths < steps) & ~stopped

    def unfinished(index, token, goes_on, *_):
        return tf.reduce_any(goes_on)

    def advance(index, token, goes_on, lengths, tokens, cache):
        log_probs, after = step(token, cache)
        cache = _where_rows(goes_on, after, cache)
        token = tf.where(goes_on, draw(log_probs, index), token)
        tokens = tokens.write(index, token)
        lengths += tf.cast(goes_on, lengths.dtype)
        goes_on &= going_on(token, lengths)
        return index + 1, token, goes_on, lengths, tokens, cache

    token = draw(log_probs, 0)
    lengths = tf.ones_like(token)
    steps = tf.cast(steps, tf.int32) * lengths
    # The first draw counts even without rows.
    longest = tf.maximum(tf.reduce_max(steps), 1)
    tokens = tf.TensorArray(tf.int32, longest, element_shape=token.shape)
    tokens = tokens.write(0, token)
    alive = going_on(token, lengths)
    loop = (tf.constant(1), token, alive, lengths, tokens, cache)
    count, last, _, lengths, tokens, cache = tf.while_loop(
        unfinished, advance, loop, maximum_iterations=longest
    )
    written = tf.range(longest)[:, None] < count
    ids = tf.where(written, tokens.stack(), last)
    return tf.transpose(ids), lengths, cache


def _where_rows(condition: tf.Tensor, ones: Any, others: Any) -> Any:
    """Returns rows of the tensors `ones` where the condition `[B]` holds, else of `others`."""

    def choose(one: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
        ends = [1] * (one.shape.rank - 1)
        return tf.where(tf.reshape(condition, [-1, *ends]), one, other)

    def chosen() -> Any:
        return tf.nest.map_structure(choose, ones, others)

    # A cache is large, and mostly all rows go on: then nothing is copied.
    return tf.cond(tf.reduce_all(condition), lambda: ones, chosen)


def prompts(ids: tf.Tensor, max_length: Any) -> tf.Tensor:
    """Returns prompts `[B, T]` as int32, which can be continued to `max_length` tokens.

    Raises:
        ValueError: a prompt has no token, or is longer than `max_length`.
    """
    length = ids.shape[1]
    if length == 0:
        raise ValueError(
            "`ids` must be of shape [B, T], a prompt having at least one token. "
            f"Received: ids of shape {tuple(ids.shape)}"
        )
    expected = "`max_length` must be an integer >= the length of the prompt, which it counts too"
    received = f"Received: max_length={max_length!r}"
    known = f", {length}" if length else ""
    if not isinstance(max_length, numbers.Integral) or max_length < (length or 1):
        raise ValueError(f"{expected}{known}. {received}")
    if length is None:
        length = tf.shape(ids)[1]
        holds = (length >= 1) & (length <= max_length)
        checks.require(
            holds, f"{expected}, and at least 1. {received}, a prompt of", length
        )
    return tf.cast(ids, tf.int32)


def token_ids(name: str, value: Any, vocabulary_size: int) -> tf.Tensor:
    """Returns tokens `[S]` int32, of None, an integer, or any collection of integers.

    Args:
        name: the argument's.
        value: its value.
        vocabulary_size: V.

    Raises:
        ValueError: they are something else, or not in the vocabulary.
    """
    if value is None:
        value = ()
    elif isinstance(value, (set, frozenset)):
        value = list(value)
    tokens = checks.integers(name, value)
    if tokens.shape.rank not in (0, 1):
        raise refusal(name, value, "None, an integer, or a collection of integers")
    tokens = checks.within(name, tf.reshape(tokens, [-1]), vocabulary_size)
    return tf.cast(tokens, tf.int32)


def forbidden_tokens(value: Any, vocabulary_size: int) -> tf.Tensor:
    """Returns tokens that must not be drawn, as `token_ids` does.

    Raises:
        ValueError: as `token_ids`, or nothing is left to draw.
    """
    tokens = token_ids("forbidden_ids", value, vocabulary_size)
    count = tf.size(tf.unique(tokens)[0])
    message = f"`forbidden_ids` must leave some of the {vocabulary_size} tokens. Received: all"
    checks.require(count < vocabulary_size, message, count)
    return tokens


def _gumbel(seeds: tf.Tensor, step: Any, log_probs: tf.Tensor) -> tf.Tensor:
    """Returns standard Gumbel noise `[B, V]`; a row's depends on its seed and its step alone."""
    number = tf.cast(step, seeds.dtype)
    steps = tf.broadcast_to(number, tf.shape(seeds)[:1])
    words = tf.shape(log_probs)[1:]

    def row_bits(row: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        seed = dropout.fold_in(*row)
        return dropout.uniform_bits(words, seed)

    result = tf.TensorSpec(log_probs.shape[1:], tf.uint32)
    bits = tf.map_fn(row_bits, (seeds, steps), fn_output_signature=result)
    # The middles of 2^23 equal parts of (0, 1): the logarithms stay finite at both ends.
    part = tf.bitwise.right_shift(bits, tf.constant(9, tf.uint32))
    uniform = (tf.cast(part, log_probs.dtype) + 0.5) * 2.0**-23
    return -tf.math.log(-tf.math.log(uniform))


def _argmax(scores: tf.Tensor) -> tf.Tensor:
    return tf.argmax(scores, axis=-1, output_type=tf.int32)


def _only(chosen: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    return tf.where(chosen, values, tf.constant(-np.inf, values.dtype))


def _column(value: Any, dtype: tf.DType) -> tf.Tensor:
    """Returns a number, or one for each row, as `[1, 1]` or `[B, 1]`."""
    return tf.reshape(tf.cast(value, dtype), [-1, 1])
