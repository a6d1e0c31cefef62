"""The first form of a language model's signatures, which works for one release more."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from keras_trellis.export.caches import CacheFormat
from keras_trellis.export.checks import Tensors
from keras_trellis.export.reading import Reader, total, valid
from keras_trellis.export.requests import UNKNOWN_ID, Vocabulary
from keras_trellis.export.saving import Signature
from keras_trellis.export.tokenizer import Tokenizer, readable
from keras_trellis.models import generation

_SETTINGS = {
    "temperature": np.array([1], np.float32),
    "top_k": np.array([0], np.int32),
    "top_p": np.array([1], np.float32),
    "seed": np.array([0], np.int64),
    "max_length": np.array([2], np.int32),
    "stop_id": np.array([-1], np.int32),
    "forbidden_ids": np.array([[UNKNOWN_ID]], np.int32),
}


class FirstForm:
    """`score`, `score_ids`, `prefill`, `step` and `generate` as they were.

    `LanguageModelEndpoints` describes the second form, by which this is told. `generate` draws what
    `TrellisLM.generate` draws of the same seed. Caches have all tensors of the model's, and no
    fingerprint.

    Args:
        tokenizer: the vocabulary.
        vocabulary: checks requests.
        reader: reads ids.
        empty: a cache of one row, of no text.
    """

    def __init__(
        self, tokenizer: Tokenizer, vocabulary: Vocabulary, reader: Reader, empty: Any
    ) -> None:
        self._tokenizer = tokenizer
        self._vocabulary = vocabulary
        self._reader = reader
        self._empty = empty
        self._cache = CacheFormat(empty)

    def signatures(self, text: Any, ids: Any) -> dict[str, Signature]:
        """Returns the signatures by name, of examples of a text and of ids with their lengths."""
        cache = self._cache.flatten(self._empty, tf.zeros([1], tf.int32))
        specs = self._cache.specs
        token = {"ids": ids["ids"][:, 0]}
        return {
            "score": Signature.from_example(self.score, text),
            "score_ids": Signature.from_example(self.score_ids, ids),
            "prefill": Signature.from_example(self.prefill, ids),
            "step": Signature.from_example(self.step, {**token, **cache}, specs),
            "generate": Signature.from_example(
                self.generate, {**ids, **_SETTINGS, **cache}, specs
            ),
        }

    def score(self, text: tf.Tensor) -> Tensors:
        """Scores texts `[B]`: what `score_v2` returns, but for ranks and other tokens."""
        encoded, nll, _ = self._reader.read_text(self._tokenizer, text)
        tokens = self._tokenizer.tokens(encoded.ids)
        return {
            "tokens": tf.where(valid(encoded.ids, encoded.lengths), tokens, ""),
            "words": encoded.words,
            "nll": nll,
            "total": total(nll),
            "count": encoded.lengths,
            "unknown": encoded.unknown,
        }

    def score_ids(self, ids: tf.Tensor, lengths: tf.Tensor) -> Tensors:
        """Scores ids `[B, T]`: what `score_ids_v2` returns, but for ranks and other tokens."""
        ids, lengths = self._vocabulary.ids_and_lengths(ids, lengths)
        nll, _, _ = self._reader.read_and_score(
            ids, lengths, self._reader.empty_cache(ids)
        )
        count = tf.maximum(lengths - 1, 0)
        return {"nll": nll, "total": total(nll), "count": count}

    def prefill(self, ids: tf.Tensor, lengths: tf.Tensor) -> Tensors:
        """Reads prompts `[B, T]` of any length, as `prefill_v2` does."""
        ids, lengths = self._vocabulary.ids_and_lengths(ids, lengths)
        features, cache = self._reader.read(ids, lengths, self._reader.empty_cache(ids))
        log_probs = self._reader.log_probs(features)
        return {"log_probs": log_probs, **self._cache.flatten(cache, lengths)}

    def step(self, ids: tf.Tensor, **cache: tf.Tensor) -> Tensors:
        """Reads one token a row, as `step_v2` does; the cache is of the first form."""
        ids = self._vocabulary.ids(ids)
        return self._cache.advanced(self._reader.step, ids, cache)

    def generate(
        self,
        ids: tf.Tensor,
        lengths: tf.Tensor,
        **inputs: tf.Tensor,
    ) -> Tensors:
        """Reads ids `[B, T]`, of any number, and continues them.

        Args:
            ids: which have not been read yet.
            lengths: `[B]`, the number of ids in each row, at least 1.
            **inputs: those of `generate_v2`, but with `stop_id` `[B]`, the token that ends a row
                (-1: none), in place of its stops, and without `alternatives`; and the cache.

        Returns:
            `ids` `[B, N]`, -1 after a row's end; `lengths` `[B]`; `text` `[B]`, what they add to
            the text; and the cache, as in `generate_v2`.
        """
        ids, lengths = self._vocabulary.ids_and_lengths(ids, lengths, least=1)
        settings = self._vocabulary.first_form_settings(inputs)
        before, steps = self._cache.unflatten(self._cache.checked(inputs))
        features, after = self._reader.read(ids, lengths, before)
        steps += lengths
        drawn, counts, after = generation.generate(
            self._reader.step,
            self._reader.log_probs(features),
            after,
            first=steps,  # numbered by position, the draws of two calls are those of one
            **settings,
        )
        drawn = tf.where(valid(drawn, counts), drawn, -1)
        last = tf.gather(ids, lengths - 1, batch_dims=1)
        return {
            "ids": drawn,
            "lengths": counts,
            "text": readable(self._tokenizer.decode(last, drawn)),
            **self._cache.flatten(after, steps + counts - 1),
        }
