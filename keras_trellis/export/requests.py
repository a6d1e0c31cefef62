"""What a request to a language model must hold, and as what the model takes it."""

from __future__ import annotations

import tensorflow as tf

from keras_trellis.export.checks import Check, Tensors, all_checked, checked
from keras_trellis.export.continuation import Settings
from keras_trellis.export.reading import valid
from keras_trellis.formats.checks import requirement
from keras_trellis.formats.limits import (
    MOST_STOP_BYTES,
    MOST_TOKENS,
)
from keras_trellis.formats.sampling import Sampling
from keras_trellis.models import generation

_SAMPLING = ("temperature", "top_k", "top_p")
# In `forbidden_ids`, beside ids of the vocabulary.
UNKNOWN_ID, _NOTHING = -1, -2


class Vocabulary:
    """Checks the inputs of requests against a vocabulary.

    All methods raise tf.errors.InvalidArgumentError as the graph runs.

    Args:
        size: the number of tokens.
        unknown_id: the id of `<unk>`; None if there is none.
    """

    def __init__(self, size: int, unknown_id: int | None) -> None:
        self.size = size
        self._unknown_id = _NOTHING if unknown_id is None else unknown_id

    def ids(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns ids, which must be in the vocabulary."""
        known = (ids >= 0) & (ids < self.size)
        return checked("ids", ids, known, f"in [0, {self.size}), the vocabulary")

    def ids_and_lengths(
        self,
        ids: tf.Tensor,
        lengths: tf.Tensor,
        least: int = 0,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns ids with 0 after each row's end, and lengths, which must be >= `least`."""
        fits = (lengths >= least) & (lengths <= tf.shape(ids)[1])
        expected = f"from {least} to the number of columns of `ids`"
        lengths = checked("lengths", lengths, fits, expected)
        ids = tf.where(valid(ids, lengths), ids, 0)
        return self.ids(ids), lengths

    def prompts(
        self, ids: tf.Tensor, lengths: tf.Tensor, least: int
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns what `ids_and_lengths` does, of prompts that are not too long."""
        columns = tf.shape(ids)[1:]
        expected = f"prompts of at most {MOST_TOKENS} tokens"
        columns = checked("ids", columns, columns <= MOST_TOKENS, expected)
        with tf.control_dependencies([columns]):
            return self.ids_and_lengths(tf.identity(ids), lengths, least)

    def alternatives(self, alternatives: tf.Tensor) -> tf.Tensor:
        """Returns how many of the most probable tokens each row asks for, at most V."""
        check = self._check("alternatives", alternatives)
        return tf.minimum(*all_checked([check]), self.size)

    def settings(self, rows: Tensors) -> Settings:
        """Returns how to continue each row."""
        given = self._rows(rows, *_SAMPLING, "max_length", "alternatives")
        given |= self._rows(rows, "stop_ids") | self._rows(rows, "stop")
        top_k = given["top_k"]
        return Settings(
            sampling=Sampling(
                temperature=given["temperature"],
                top_k=tf.where(top_k == 0, self.size, tf.minimum(top_k, self.size)),
                top_p=given["top_p"],
                seed=rows["seed"],
            ),
            max_length=given["max_length"],
            forbidden_ids=self._forbidden(rows["forbidden_ids"]),
            stop_ids=given["stop_ids"],
            stop=given["stop"],
            alternatives=tf.minimum(given["alternatives"], self.size),
        )

    def _rows(self, rows: Tensors, *names: str) -> Tensors:
        """Returns inputs by name; all of them are empty, or none."""
        checks = [self._check(name, rows[name]) for name in names]
        return dict(zip(names, all_checked(checks), strict=True))

    def _check(self, name: str, value: tf.Tensor) -> Check:
        if name == "stop":
            short = tf.strings.length(value) <= MOST_STOP_BYTES
            expected = f"texts of at most {MOST_STOP_BYTES} bytes"
            return Check(name, value, short, expected, shows_value=False)
        return Check(name, value, *requirement(name, value, self.size))

    def _forbidden(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns the ids that `generation.generate` must not write, `[B, F]`."""
        (ids,) = all_checked([self._check("forbidden_ids", ids)])
        ids = tf.where(ids == UNKNOWN_ID, self._unknown_id, ids)
        nothing = tf.zeros([tf.shape(ids)[0], self.size])
        free = generation.penalties(ids, nothing) == 0
        leaves_some = tf.reduce_any(free, axis=1, keepdims=True)
        leaves_some = tf.broadcast_to(leaves_some, tf.shape(ids))
        expected = f"less than all {self.size} tokens"
        return checked("forbidden_ids", ids, leaves_some, expected, shows_value=False)
