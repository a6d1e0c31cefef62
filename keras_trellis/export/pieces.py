"""Pieces of words in the graph: text is cut by operations that every TensorFlow has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from keras_trellis.export.standardizer import Standardizer
from keras_trellis.export.tokenizer import EOS, Standardize, Tokenizer
from keras_trellis.formats.pieces import read_names


class PieceTokenizer(Tokenizer):
    """Pieces of words, see `keras_trellis.formats.pieces`; no text is unknown.

    Args:
        tokens: the names of the pieces, in the order of the ids.
        standardize: see `Tokenizer`.
        detokenize: see `Tokenizer`.
    """

    kind = "pieces"

    def __init__(
        self,
        tokens: Sequence[str],
        standardize: Standardize | None = None,
        detokenize: Standardizer | None = None,
    ) -> None:
        super().__init__(tokens, standardize, detokenize)
        pieces = read_names(tokens, EOS)
        # Tensors, which a SavedModel has once, whatever signatures use them.
        self._edges, self._node_ids = map(tf.constant, _trie(pieces))
        # An id that is none, which becomes the last, adds nothing.
        self._pieces = tf.constant([*pieces, b""])
        shown = [piece.decode(errors="replace") for piece in pieces]
        shown[self.eos_id] = EOS
        self._shown = tf.constant([*shown, ""])

    def rule(self) -> str:
        """Returns how text is cut, in words for a model card."""
        return (
            "in pieces of words, each the longest that the rest of the text begins with; a line "
            f"break reads `{EOS}`, which stands before each text too; no text is unknown"
        )

    def tokens(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns the piece of each id; one that is a part of a character reads U+FFFD."""
        return self._choose(self._shown, ids)

    def decode(self, before: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        """Returns what ids add to a text, whatever stands `before` them."""
        return tf.strings.reduce_join(self._choose(self._pieces, ids), axis=1)

    def _choose(self, values: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        last = values.shape[0] - 1
        known = (ids >= 0) & (ids < last)
        return tf.gather(values, tf.where(known, ids, last))

    def _cut(self, text: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
        # A line break, which is part of no other piece, parts the texts.
        joined = tf.strings.join([tf.strings.reduce_join(text, separator="\n"), "\n"])
        values = tf.io.decode_raw(joined, tf.uint8)
        trie = _Trie(self._edges, self._node_ids)
        ids, lengths = _longest(trie, tf.cast(values, tf.int32))
        starts = _chain(lengths)
        ids = tf.gather(ids, starts)
        stops = starts + tf.gather(lengths, starts)
        words = tf.strings.substr(joined, *_characters(values, starts, stops))
        words = tf.where(ids == self.eos_id, EOS, words)
        ends = tf.cumsum(tf.strings.length(text) + 1)
        rows = tf.searchsorted(ends, starts, side="right")
        inside = stops < tf.gather(tf.concat([ends, [0]], axis=0), rows)
        count = tf.shape(text, tf.int64)[0]
        return tuple(
            tf.RaggedTensor.from_value_rowids(
                tf.boolean_mask(flat, inside),
                tf.cast(tf.boolean_mask(rows, inside), tf.int64),
                nrows=count,
                validate=False,
            )
            for flat in (ids, words)
        )


class _Trie(NamedTuple):
    """The beginnings of pieces as nodes; node 0 is the empty one.

    Attributes:
        edges: int32 `[E]`, ascending: edge e, which leads to node e + 1, is 256 n + b, from node n
            by byte b.
        ids: int32 `[E + 1]`, the id of the piece at a node; -1: none ends there.
    """

    edges: Any
    ids: Any


def _trie(pieces: Sequence[bytes]) -> _Trie:
    beginnings = {piece[:size] for piece in pieces for size in range(1, len(piece) + 1)}
    # By length, so that a node's number is above that of its beginning, and edges ascend.
    nodes = [b"", *sorted(beginnings, key=lambda text: (len(text), text))]
    numbers = {text: number for number, text in enumerate(nodes)}
    edges = [0x100 * numbers[text[:-1]] + text[-1] for text in nodes[1:]]
    ids = {piece: index for index, piece in enumerate(pieces)}
    node_ids = [ids.get(text, -1) for text in nodes]
    return _Trie(np.array(edges, np.int32), np.array(node_ids, np.int32))


def _longest(trie: _Trie, values: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the longest piece that begins at each byte `[N]`: its id and its length, `[N]`.

    All places go down the trie at once, as many steps as the longest match has; those that have
    left it are dropped.
    """
    size = tf.size(values)

    def goes_on(depth, places, *_):
        return tf.size(places) > 0

    def step(depth, places, nodes, ids, lengths):
        wanted = 0x100 * nodes + tf.gather(values, places + depth)
        edges = tf.searchsorted(trie.edges, wanted)
        edges = tf.minimum(edges, tf.size(trie.edges) - 1)
        matches = tf.gather(trie.edges, edges) == wanted
        places = tf.boolean_mask(places, matches)
        nodes = tf.boolean_mask(edges + 1, matches)
        found = tf.gather(trie.ids, nodes)
        ends = found >= 0
        where = tf.boolean_mask(places, ends)[:, None]
        ids = tf.tensor_scatter_nd_update(ids, where, tf.boolean_mask(found, ends))
        depth += 1
        grown = tf.fill(tf.shape(where)[:1], depth)
        lengths = tf.tensor_scatter_nd_update(lengths, where, grown)
        inside = places + depth < size
        places, nodes = (tf.boolean_mask(each, inside) for each in (places, nodes))
        return depth, places, nodes, ids, lengths

    nothing = tf.zeros_like(values)
    loop = (tf.constant(0), tf.range(size), nothing, nothing, nothing)
    any_size = tf.TensorShape([None])
    shapes = (tf.TensorShape([]), *[any_size] * 4)
    _, _, _, ids, lengths = tf.while_loop(goes_on, step, loop, shapes)
    return ids, lengths


def _chain(lengths: tf.Tensor) -> tf.Tensor:
    """Returns where the pieces of a text begin, if each place `[N]` begins one of some length.

    Twice as many of them are known after each step: those that are known, and as many after them.
    """
    size = tf.size(lengths)
    after = tf.concat([tf.range(size) + lengths, [size]], axis=0)

    def goes_on(starts, after):
        return starts[-1] < size

    def step(starts, after):
        starts = tf.concat([starts, tf.gather(after, starts)], axis=0)
        return starts, tf.gather(after, after)

    any_size = tf.TensorShape([None])
    loop = (tf.zeros([1], tf.int32), after)
    starts, _ = tf.while_loop(goes_on, step, loop, (any_size, any_size))
    return tf.boolean_mask(starts, starts < size)


def _characters(
    values: tf.Tensor, starts: tf.Tensor, stops: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns where the characters begin that end in parts of a text, and their bytes."""
    begins = tf.bitwise.bitwise_and(values, 0xC0) != 0x80
    places = tf.cast(tf.where(begins)[:, 0], tf.int32)
    places = tf.gather(places, tf.cumsum(tf.cast(begins, tf.int32)) - 1)
    places = tf.concat([places, [tf.size(values)]], axis=0)
    first = tf.gather(places, starts)
    return first, tf.gather(places, stops) - first
