"""The choice of the next token in the graph of an export, as `keras_trellis.serving` makes it."""

from __future__ import annotations

import math
from typing import NamedTuple

import tensorflow as tf


class Sampling(NamedTuple):
    """How the tokens of each row are chosen, one value a row.

    Attributes:
        temperature: divides the log-probabilities; 0: the most probable token.
        top_k: choose from so many of the most probable tokens; V: from all.
        top_p: choose from the fewest tokens of this probability, in (0, 1].
        seed: int64; the noise of a draw depends on it and on the draw's number alone.
    """

    temperature: tf.Tensor
    top_k: tf.Tensor
    top_p: tf.Tensor
    seed: tf.Tensor


def draw(scores: tf.Tensor, how: Sampling, numbers: tf.Tensor) -> tf.Tensor:
    """Draws a token for each row: the place of the largest of filtered scores plus Gumbel noise.

    Args:
        scores: `[B, V]`, log-probabilities; minus infinity for what is never drawn.
        how: how to choose.
        numbers: `[B]`, the number of each row's draw.

    Returns:
        int32 `[B]`; of equal scores the first.
    """
    random = how.temperature > 0

    def drawn() -> tf.Tensor:
        # With the greatest at 0 a quotient that overflows is never that one's.
        shifted = scores - tf.reduce_max(scores, axis=-1, keepdims=True)
        divisor = tf.where(random, how.temperature, 1)
        chosen = filtered(shifted / divisor[:, None], how.top_k, how.top_p)
        noise = gumbel(how.seed, numbers, scores.shape[-1])
        return _argmax(tf.where(random[:, None], chosen + noise, scores))

    return tf.cond(tf.reduce_any(random), drawn, lambda: _argmax(scores))


def filtered(scores: tf.Tensor, top_k: tf.Tensor, top_p: tf.Tensor) -> tf.Tensor:
    """Returns scores with minus infinity in place of those that are not chosen from.

    It keeps the `top_k` greatest; of these the fewest whose softmax has at least the sum `top_p`.
    What equals the least of those stays too. No more of the vocabulary is sorted than `top_k` says.

    Args:
        scores: `[B, V]`.
        top_k: `[B]`, from 1 to V.
        top_p: `[B]`, in (0, 1].
    """
    narrows = (top_k < scores.shape[-1]) | (top_p < 1)

    def narrowed() -> tf.Tensor:
        count = tf.reduce_max(tf.where(narrows, top_k, 1))
        ordered, _ = tf.math.top_k(scores, count)
        chosen = tf.range(count) < top_k[:, None]
        probabilities = tf.nn.softmax(tf.where(chosen, ordered, -math.inf))
        before = tf.cumsum(probabilities, axis=-1, exclusive=True)
        # The sum may round to 1 before the last one; a `top_p` of 1 keeps all of them anyway.
        chosen &= (before < top_p[:, None]) | (top_p >= 1)[:, None]
        least = tf.reduce_min(tf.where(chosen, ordered, math.inf), axis=-1)
        least = tf.where(narrows, least, -math.inf)
        return tf.where(scores >= least[:, None], scores, -math.inf)

    return tf.cond(tf.reduce_any(narrows), narrowed, lambda: scores)


def gumbel(seeds: tf.Tensor, numbers: tf.Tensor, count: int) -> tf.Tensor:
    """Returns standard Gumbel noise, float32 `[B, count]`, as `serving.philox.gumbel`.

    Args:
        seeds: int64 `[B]`.
        numbers: `[B]`, of each row's draw.
        count: how many for each row.
    """
    parts = tf.bitwise.right_shift(
        bits(seeds, numbers, count), tf.constant(9, tf.uint32)
    )
    uniform = (tf.cast(parts, tf.float32) + 0.5) * 2.0**-23
    return -tf.math.log(-tf.math.log(uniform))


def bits(seeds: tf.Tensor, numbers: tf.Tensor, count: int) -> tf.Tensor:
    """Returns uniform uint32 numbers `[B, count]`, as `serving.philox.bits`."""

    def row(given: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        seed, number = given
        # TensorFlow's Philox counts up from a counter of two words of 64 bits, the lower one first.
        return tf.raw_ops.StatelessRandomUniformFullIntV2(
            shape=[count],
            key=tf.bitcast(seed[None], tf.uint64),
            counter=tf.stack([tf.zeros([], tf.uint64), tf.cast(number, tf.uint64)]),
            alg=tf.random.Algorithm.PHILOX.value,
            dtype=tf.uint32,
        )

    result = tf.TensorSpec([count], tf.uint32)
    return tf.map_fn(row, (seeds, numbers), fn_output_signature=result)


def _argmax(scores: tf.Tensor) -> tf.Tensor:
    return tf.argmax(scores, axis=-1, output_type=tf.int32)
