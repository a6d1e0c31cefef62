"""The end of a text at a stop string, in the graph."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf


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


def begin(rows: tf.Tensor) -> Text:
    """Returns empty texts."""
    return Text(
        tail=tf.fill([rows], ""),
        length=tf.zeros([rows], tf.int32),
        end=tf.fill([rows], -1),
    )


def extend(text: Text, pieces: tf.Tensor, stops: tf.Tensor) -> Text:
    """Writes a piece `[B]` to each text.

    Args:
        text: the texts.
        pieces: what to write.
        stops: the stop strings, `[B, S]`; empty ones stop nothing.
    """
    window = tf.strings.join([text.tail, pieces])
    start = text.length - tf.strings.length(text.tail)
    place = find(window, stops)
    longest = tf.maximum(tf.reduce_max(tf.strings.length(stops)), 1) - 1
    cut = tf.maximum(tf.strings.length(window) - longest, 0)
    return Text(
        tail=tf.strings.substr(window, cut, tf.fill(tf.shape(cut), longest)),
        length=text.length + tf.strings.length(pieces),
        end=tf.where(place >= 0, start + place, -1),
    )


def find(texts: tf.Tensor, stops: tf.Tensor) -> tf.Tensor:
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
