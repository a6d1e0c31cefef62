"""Texts continued token by token in the graph, with what each token was chosen from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from keras_trellis.core.convolution import swapped
from keras_trellis.export.checks import Tensors
from keras_trellis.export.tokenizer import Tokenizer, readable
from keras_trellis.formats.sampling import Sampling
from keras_trellis.models import generation


class Settings(NamedTuple):
    """How each row is continued, one value a row.

    Attributes:
        sampling: how a token is chosen.
        max_length: how many tokens to add.
        forbidden_ids: `[B, F]`, tokens not to write; negative ones stand for none.
        stop_ids: `[B, S]`, tokens that end a row; negative ones stand for none.
        stop: `[B, S]`, texts that end a row; an empty one stands for none.
        alternatives: how many of the most probable tokens to return in the place of each.
    """

    sampling: Sampling
    max_length: tf.Tensor
    forbidden_ids: tf.Tensor
    stop_ids: tf.Tensor
    stop: tf.Tensor
    alternatives: tf.Tensor


class Text(NamedTuple):
    """What is known of the text of each row while it is written, in bytes of UTF-8.

    Attributes:
        tail: its end, as long as a stop string can begin in it, string `[B]`.
        length: how long it is.
        end: where a stop string begins in it, which ends it; -1: none does.
    """

    tail: tf.Tensor
    length: tf.Tensor
    end: tf.Tensor


def begun_text(rows: tf.Tensor) -> Text:
    """Returns empty texts."""
    return Text(
        tail=tf.fill([rows], ""),
        length=tf.zeros([rows], tf.int32),
        end=tf.fill([rows], -1),
    )


def extended(text: Text, pieces: tf.Tensor, stops: tf.Tensor) -> Text:
    """Writes a piece `[B]` to each text.

    Args:
        text: the texts.
        pieces: what to write.
        stops: the stop strings, `[B, S]`; empty ones stop nothing.
    """
    window = tf.strings.join([text.tail, pieces])
    start = text.length - tf.strings.length(text.tail)
    place = find_stop(window, stops)
    longest = tf.maximum(tf.reduce_max(tf.strings.length(stops)), 1) - 1
    cut = tf.maximum(tf.strings.length(window) - longest, 0)
    return Text(
        tail=tf.strings.substr(window, cut, tf.fill(tf.shape(cut), longest)),
        length=text.length + tf.strings.length(pieces),
        end=tf.where(place >= 0, start + place, -1),
    )


def find_stop(texts: tf.Tensor, stops: tf.Tensor) -> tf.Tensor:
    """Returns where in each text `[B]` the first of its stop strings `[B, S]` begins, in bytes.

    -1: none of them does.
    """
    sizes = tf.strings.length(texts)
    stop_sizes = tf.strings.length(stops)
    width = tf.maximum(tf.reduce_max(sizes), 1)
    longest = tf.maximum(tf.reduce_max(stop_sizes), 1)
    characters = tf.io.decode_raw(texts, tf.uint8, fixed_length=width)
    wanted = tf.io.decode_raw(stops, tf.uint8, fixed_length=longest)
    places = tf.range(width)
    offsets = tf.range(longest)
    padded = tf.pad(characters, [[0, 0], [0, longest]])
    frames = tf.gather(padded, places[:, None] + offsets, axis=1)
    same = frames[:, None] == wanted[:, :, None]
    same |= offsets >= stop_sizes[:, :, None, None]
    fits = places + stop_sizes[:, :, None] <= sizes[:, None, None]
    matches = tf.reduce_all(same, axis=-1) & fits & (stop_sizes > 0)[:, :, None]
    first = tf.reduce_min(tf.where(matches, places, width), axis=[1, 2])
    return tf.where(first < width, first, -1)


class _Rows(NamedTuple):
    """What goes from token to token.

    Attributes:
        token: the last one, `[B]`.
        alive: which rows go on, bool `[B]`.
        lengths: how many tokens each row has.
        stopped: which rows ended by a stop.
        text: the texts; they stay empty if there are no stop strings.
        written: of each token, its id and log-probability, the likeliest and theirs.
    """

    token: tf.Tensor
    alive: tf.Tensor
    lengths: tf.Tensor
    stopped: tf.Tensor
    text: Text
    written: tuple[tf.TensorArray, ...]


def continued(
    step: Callable[[tf.Tensor, Any], tuple[tf.Tensor, Any]],
    log_probs: tf.Tensor,
    cache: Any,
    settings: Settings,
    tokenizer: Tokenizer,
    *,
    last: tf.Tensor,
    first: tf.Tensor,
) -> tuple[Tensors, Any]:
    """Draws tokens for each row until it ends, and feeds each one back.

    Args:
        step: (ids `[B]`, cache) to (log-probabilities `[B, V]` of the next token, cache).
        log_probs: `[B, V]`, of the first token.
        cache: what `step` takes.
        settings: how to continue.
        tokenizer: the vocabulary.
        last: the token before the first one, `[B]`.
        first: the number of each row's first draw, `[B]`: its position in the row, so that two
            calls draw what one long call does.

    Returns:
        the outputs of `generate`: after a row's end stand -1 and, of numbers, 0; and the cache,
        which has read all of the ids but the last.
    """
    addends = generation.penalties(settings.forbidden_ids, log_probs)
    count = tf.maximum(tf.reduce_max(settings.alternatives), 0)
    has_stops = tf.reduce_any(tf.strings.length(settings.stop) > 0)

    def emit(index: tf.Tensor, log_probs: tf.Tensor, rows: _Rows) -> _Rows:
        scores = log_probs + addends
        token = draw(scores, settings.sampling, first + index)
        pieces = tokenizer.decode(rows.token, tf.where(rows.alive, token, -1)[:, None])
        text = tf.cond(
            has_stops,
            lambda: extended(rows.text, pieces, settings.stop),
            lambda: rows.text,
        )
        # The text of a row that has ended stays; where its stop string began is known.
        text = text._replace(end=tf.where(rows.alive, text.end, rows.text.end))
        token = tf.where(rows.alive, token, rows.token)
        lengths = rows.lengths + tf.cast(rows.alive, tf.int32)
        stops_here = tf.reduce_any(token[:, None] == settings.stop_ids, axis=-1)
        stopped = rows.stopped | stops_here | (text.end >= 0)
        alive = rows.alive & ~stopped & (lengths < settings.max_length)
        values = _at_token(log_probs, token, count, settings, rows.alive)
        pairs = zip(rows.written, values, strict=True)
        written = tuple(array.write(index, value) for array, value in pairs)
        return _Rows(token, alive, lengths, stopped, text, written)

    def unfinished(index: tf.Tensor, rows: _Rows, cache: Any) -> tf.Tensor:
        return tf.reduce_any(rows.alive)

    def advance(index: tf.Tensor, rows: _Rows, cache: Any) -> tuple:
        log_probs, after = step(rows.token, cache)
        cache = generation.where_rows(rows.alive, after, cache)
        return index + 1, emit(index, log_probs, rows), cache

    rows = emit(tf.constant(0), log_probs, _begun(last))
    loop = (tf.constant(1), rows, cache)
    _, rows, cache = tf.while_loop(unfinished, advance, loop)
    ids, own, likeliest, best = (swapped(array.stack()) for array in rows.written)
    text = tokenizer.decode(last, ids)
    ends = tf.where(rows.text.end >= 0, rows.text.end, tf.int32.max)
    answer = {
        "ids": ids,
        "lengths": rows.lengths,
        "log_probs": own,
        "likeliest_ids": likeliest,
        "likeliest_log_probs": best,
        "stopped": rows.stopped,
        "text": readable(tf.strings.substr(text, tf.zeros_like(ends), ends)),
    }
    return answer, cache


def draw(scores: tf.Tensor, how: Sampling, numbers: tf.Tensor) -> tf.Tensor:
    """Draws a token for each row, as `formats.sampling.draw`.

    Args:
        scores: `[B, V]`.
        how: how to choose.
        numbers: `[B]`, the number of each row's draw.
    """
    # A row's seed is its own, so that its place in the batch counts for nothing.
    seeds = tf.pad(tf.bitcast(how.seed, tf.int32), [[0, 0], [0, 1]])
    return generation.sample(
        scores,
        seeds,
        numbers,
        temperature=how.temperature,
        top_k=how.top_k,
        top_p=how.top_p,
        by=_OPERATIONS,
    )


def _greatest(scores: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Returns no more of the scores, in their order, than are chosen from."""
    ordered, _ = tf.math.top_k(scores, count)
    return ordered


_OPERATIONS = generation.OPERATIONS._replace(greatest=_greatest)


def _begun(last: tf.Tensor) -> _Rows:
    """Returns rows without a token."""

    def array(dtype: tf.DType, *sizes: int | None) -> tf.TensorArray:
        return tf.TensorArray(
            dtype, 0, dynamic_size=True, infer_shape=False, element_shape=[None, *sizes]
        )

    size = tf.shape(last)[0]
    alive = tf.ones_like(last, tf.bool)
    return _Rows(
        token=last,
        alive=alive,
        lengths=tf.zeros_like(last),
        stopped=~alive,
        text=begun_text(size),
        written=(
            array(tf.int32),
            array(tf.float32),
            array(tf.int32, None),
            array(tf.float32, None),
        ),
    )


def _at_token(
    log_probs: tf.Tensor,
    token: tf.Tensor,
    count: tf.Tensor,
    settings: Settings,
    alive: tf.Tensor,
) -> tuple[tf.Tensor, ...]:
    """Returns what `_Rows.written` has of a token, for rows that were alive before it."""
    own = tf.gather(log_probs, token[:, None], batch_dims=1)[:, 0]
    best, likeliest = tf.math.top_k(log_probs, count)
    asked = alive[:, None] & (tf.range(count) < settings.alternatives[:, None])
    return (
        tf.where(alive, token, -1),
        tf.where(alive, own, 0),
        tf.where(asked, likeliest, -1),
        tf.where(asked, best, 0),
    )
