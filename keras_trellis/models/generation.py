"""Sampling from a language model: pure functions of tensors.

Nothing here knows a model: `generate` takes a function that advances one. Every argument that a
request may set (temperature, top-k, top-p, seed, stop tokens) may differ from row to row: rows that
share a batch do not depend on each other.

The noise of a draw depends on its row's seed and its number alone. It is the same on every backend,
in eager mode, in a graph and under XLA, and in an export.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_trellis.arguments import refusal
from keras_trellis.backend import current as backend
from keras_trellis.core import checks
from keras_trellis.formats import sampling
from keras_trellis.formats.sampling import Sampling
from keras_trellis.types import Number, Tensor

ALL = 2**31 - 1
"""A `top_k` that keeps all tokens."""


def _ordered(scores: Tensor, most: Tensor) -> Tensor:
    """Returns all scores, as XLA needs to know how many."""
    ordered, _ = ops.top_k(scores, checks.sizes(scores)[-1])
    return ordered


OPERATIONS = sampling.Operations(ops, ops.cond, backend.argmax, _ordered)
"""Those of every backend, by which `sample` draws."""


def check_sampling(temperature: Any, top_k: Any, top_p: Any) -> None:
    """Refuses values that `sample` cannot use.

    Raises:
        ValueError: not `temperature >= 0`, `top_k >= 1` and integral, `0 < top_p <= 1`.
    """
    if not (
        isinstance(temperature, numbers.Real) and 0 <= float(temperature) < math.inf
    ):
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


def row_seeds(seed: int | None, batch_size: Number) -> Tensor:
    """Returns one seed a row, from one number; None draws that number at random.

    Row b's seed does not depend on the batch size.

    Returns:
        int32 `[B, 3]`: the lower word of the number, of which 64 bits count, the upper one, and b.
    """
    if seed is None:
        words = backend.random_words()
    elif isinstance(seed, numbers.Integral):
        low, high = int(seed) % 2**32, (int(seed) >> 32) % 2**32
        words = np.array([low, high], "uint32").view("int32")
    else:
        raise refusal("seed", seed, "None or an integer")
    rows = ops.arange(batch_size, dtype="int32")
    shared = [ops.broadcast_to(word, ops.shape(rows)) for word in (words[0], words[1])]
    return ops.stack([*shared, rows], axis=-1)


def penalties(forbidden_ids: Any, log_probs: Tensor) -> Tensor:
    """Returns `[B, V]`, which added to log-probabilities forbids tokens.

    Args:
        forbidden_ids: integers `[F]` for all rows, or `[B, F]`, below V; a negative one stands for
            no token.
        log_probs: `[B, V]`, of any draw.

    Returns:
        minus infinity for the tokens that are forbidden, 0 for the others.
    """
    rows, words = checks.sizes(log_probs)
    ids = _int32(forbidden_ids)
    shape = [rows, checks.sizes(ids)[-1]]
    ids = ops.broadcast_to(ids, shape)
    row = ops.arange(rows, dtype="int32")[:, None]
    row = ops.broadcast_to(row, shape)
    places = ops.stack([row, ops.maximum(ids, 0)], axis=-1)
    forbidden = ops.where(ids < 0, ops.zeros(shape, log_probs.dtype), -math.inf)
    return ops.scatter(places, forbidden, [rows, words])


def sample(
    log_probs: Tensor,
    seeds: Tensor,
    step: Any,
    *,
    temperature: Any = 1.0,
    top_k: Any = ALL,
    top_p: Any = 1.0,
    by: sampling.Operations = OPERATIONS,
) -> Tensor:
    """Draws one token a row.

    A draw is the largest of the log-probabilities, as `sampling.filtered` leaves them, plus Gumbel
    noise, which is distributed as the softmax is. With temperature 0 there is no noise, and the
    draw is the most probable token, of equals the first.

    Args:
        log_probs: `[B, V]`; minus infinity for what is never drawn.
        seeds: from `row_seeds`, or a seed of its own for every row.
        step: integer, the number of the row's draw, or integers `[B]`.
        temperature: number >= 0, or numbers `[B]`; it divides the log-probabilities before the
            filters.
        top_k: from how many of the most probable tokens to choose, >= 1, or integers `[B]`.
        top_p: in (0, 1], or numbers `[B]`: choose from the fewest tokens that have this probability
            together.
        by: the operations of the draw.

    Returns:
        `[B]` int32.
    """
    log_probs = backend.to_tensor(log_probs)
    rows, words = checks.sizes(log_probs)
    how = Sampling(
        temperature=_row(temperature, log_probs.dtype),
        top_k=_row(top_k, "int32"),
        top_p=_row(top_p, log_probs.dtype),
        seed=seeds,
    )
    numbers = ops.broadcast_to(_int32(step), [rows])

    def noise() -> Tensor:
        bits = backend.row_bits(seeds, numbers, words)
        return sampling.gumbel(bits, log_probs.dtype, ops)

    return sampling.draw(log_probs, how, noise, by)


def generate(
    step: Callable[[Tensor, Any], tuple[Tensor, Any]],
    log_probs: Tensor,
    cache: Any,
    *,
    steps: Any,
    seeds: Tensor,
    first: Any = 0,
    stop_token_ids: Any = (),
    forbidden_ids: Any = (),
    **how: Any,
) -> tuple[Tensor, Tensor, Any]:
    """Draws up to `steps` tokens a row, feeding each one back.

    A row ends with its last step or with a stop token. Its cache stays as it was then while other
    rows go on; the loop ends when all rows have ended.

    Args:
        step: (ids `[B]`, cache) -> (log-probabilities `[B, V]` of the next token, cache).
        log_probs: `[B, V]`, of the first token to draw.
        cache: what `step` takes; a nest of tensors `[B, ...]` whose shapes `step` keeps.
        steps: the number of tokens to draw, >= 1, or integers `[B]`; in a graph of TensorFlow it
            may be a tensor.
        seeds: see `sample`.
        first: the number of a row's first draw, or integers `[B]`. Number draws by position, and
            two calls draw what one long call draws.
        stop_token_ids: integers `[S]`, or `[B, S]`.
        forbidden_ids: see `penalties`: not all tokens. The filters choose from the others, whose
            probabilities keep their proportions.
        **how: `temperature`, `top_k` and `top_p` of `sample`.

    Returns:
        ids `[B, max(steps)]` int32, in which a row repeats its last token after its end; the number
        of tokens drawn for each row, `[B]`; and the cache, which has read all of these but the
        last: to go on, feed that one.
    """
    addends = penalties(forbidden_ids, log_probs)
    limits = _int32(steps)
    stops = _int32(stop_token_ids)

    def draw(log_probs: Tensor, index: Any) -> Tensor:
        return sample(log_probs + addends, seeds, first + index, **how)

    def going_on(token: Tensor, lengths: Tensor) -> Tensor:
        stopped = ops.any(token[:, None] == stops, axis=-1)
        return (lengths < limits) & ~stopped

    def unfinished(index, token, goes_on, *_):
        return ops.any(goes_on)

    def advance(index, token, goes_on, lengths, tokens, cache):
        log_probs, after = step(token, cache)
        cache = where_rows(goes_on, after, cache)
        token = ops.where(goes_on, draw(log_probs, index), token)
        tokens = ops.where(places >= index, token[:, None], tokens)
        lengths = lengths + ops.cast(goes_on, "int32")
        goes_on &= going_on(token, lengths)
        return index + 1, token, goes_on, lengths, tokens, cache

    token = draw(log_probs, 0)
    lengths = ops.ones_like(token)
    longest = _longest(steps)
    places = ops.arange(longest, dtype="int32")
    # What is drawn is written at its place and at all later ones, which later draws overwrite.
    tokens = ops.broadcast_to(token[:, None], [checks.sizes(token)[0], longest])
    alive = going_on(token, lengths)
    first_index = ops.convert_to_tensor(1, "int32")
    loop = (first_index, token, alive, lengths, tokens, cache)
    _, _, _, lengths, tokens, cache = ops.while_loop(unfinished, advance, loop)
    return tokens, lengths, cache


def _longest(steps: Any) -> Number:
    """Returns the most of some numbers of steps, at least 1: the first draw counts in any case."""
    if isinstance(steps, int):
        return max(steps, 1)
    most = ops.maximum(ops.max(_int32(steps)), 1)
    known = backend.static_value(most)
    return most if known is None else known


def where_rows(condition: Tensor, ones: Any, others: Any) -> Any:
    """Returns rows of the tensors `ones` where the condition `[B]` holds, else of `others`."""

    def choose(one: Tensor, other: Tensor) -> Tensor:
        ends = [1] * (len(one.shape) - 1)
        return ops.where(ops.reshape(condition, [-1, *ends]), one, other)

    def chosen() -> Any:
        return keras.tree.map_structure(choose, ones, others)

    # A cache is large, and mostly all rows go on: then nothing is copied.
    return ops.cond(ops.all(condition), lambda: ones, chosen)


def prompts(ids: Tensor, max_length: Any) -> Tensor:
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
        counted: Any = ops.shape(ids)[1]
        holds = (counted >= 1) & (counted <= max_length)
        checks.require(
            holds, f"{expected}, and at least 1. {received}, a prompt of", counted
        )
    return ops.cast(ids, "int32")


def token_ids(name: str, value: Any, vocabulary_size: int) -> Tensor:
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
    shape = backend.static_shape(tokens)
    if shape is None or len(shape) > 1:
        raise refusal(name, value, "None, an integer, or a collection of integers")
    tokens = checks.within(name, ops.reshape(tokens, [-1]), vocabulary_size)
    return ops.cast(tokens, "int32")


def forbidden_tokens(value: Any, vocabulary_size: int) -> Tensor:
    """Returns tokens that must not be drawn, as `token_ids` does.

    Raises:
        ValueError: as `token_ids`, or nothing is left to draw.
    """
    tokens = token_ids("forbidden_ids", value, vocabulary_size)
    times = ops.scatter(tokens[:, None], ops.ones_like(tokens), [vocabulary_size])
    count = ops.sum(ops.cast(times > 0, "int32"))
    message = f"`forbidden_ids` must leave some of the {vocabulary_size} tokens. Received: all"
    checks.require(count < vocabulary_size, message, count)
    return tokens


def _row(value: Any, dtype: Any) -> Tensor:
    """Returns a number, or one for each row, as `[1]` or `[B]`."""
    return ops.reshape(ops.cast(backend.to_tensor(value), dtype), [-1])


def _int32(value: Any) -> Tensor:
    return ops.cast(backend.to_tensor(value), "int32")
