"""What a request to a language model must hold, and as what the model takes it."""

from __future__ import annotations

import tensorflow as tf

from keras_trellis.export.checks import Tensors, checked
from keras_trellis.export.reading import valid
from keras_trellis.export.tokenizer import UNKNOWN
from keras_trellis.models import generation

_LONGEST = 65_536  # tokens that one call of `generate` may add, which bounds its memory
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

    def settings(self, rows: Tensors) -> Tensors:
        """Returns the arguments of `generation.generate` by name."""
        steps = rows["max_length"]
        stops = rows["stop_id"]
        seed = rows["seed"]
        temperature = rows["temperature"]
        top_k = rows["top_k"]
        top_p = rows["top_p"]
        fits = (steps >= 1) & (steps <= _LONGEST)
        known = (stops >= -1) & (stops < self.size)
        hot = tf.math.is_finite(temperature) & (temperature >= 0)
        some = (top_p > 0) & (top_p <= 1)
        stops = checked("stop_id", stops, known, f"-1 (none) or in [0, {self.size})")
        top_k = checked("top_k", top_k, top_k >= 0, "at least 0 (0: all tokens)")
        return {
            "steps": checked("max_length", steps, fits, f"from 1 to {_LONGEST}"),
            "stop_token_ids": stops[:, None],
            "seeds": tf.stack([seed, tf.zeros_like(seed)], axis=-1),
            "temperature": checked(
                "temperature", temperature, hot, "a number of at least 0"
            ),
            "top_k": tf.where(top_k == 0, self.size, top_k),
            "top_p": checked("top_p", top_p, some, "in (0, 1]"),
            "forbidden_ids": self._forbidden(rows["forbidden_ids"]),
        }

    def _forbidden(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns the ids that `generation.generate` must not write, `[B, F]`."""
        expected = (
            f"{UNKNOWN_ID} ({UNKNOWN}), {_NOTHING} (nothing) or in [0, {self.size})"
        )
        known = (ids >= _NOTHING) & (ids < self.size)
        ids = checked("forbidden_ids", ids, known, expected)
        ids = tf.where(ids == UNKNOWN_ID, self._unknown_id, ids)
        nothing = tf.zeros([tf.shape(ids)[0], self.size])
        free = generation.penalties(ids, nothing) == 0
        leaves_some = tf.reduce_any(free, axis=1, keepdims=True)
        leaves_some = tf.broadcast_to(leaves_some, tf.shape(ids))
        expected = f"less than all {self.size} tokens"
        return checked("forbidden_ids", ids, leaves_some, expected, shows_value=False)
