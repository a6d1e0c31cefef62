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

    `generate` draws what `TrellisLM.generate` draws of the same seed. Caches have all tensors of
    the model's, and no fingerprint.

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
        """Scores texts, each token given those before it and the line break before the text.

        Args:
            text: `[B]`.

        Returns:
            `tokens` `[B, T]`, as the model reads them; `words` `[B, T]`, the text's own, cut and
            standardised, which differ from the tokens where those are `<unk>`; `nll` `[B, T]`, in
            nats; `total` `[B]`, its sum; `count` `[B]`, the number of tokens; `unknown` `[B]`, see
            `serving_default`. Empty strings and zeros fill the rows after a text's end.
        """
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
        """Scores ids, each given those before it in its row.

        Args:
            ids: `[B, T]`.
            lengths: `[B]`, the number of ids in each row.

        Returns:
            `nll` `[B, T]`, in nats, 0 for the first of a row, which has no context, and after a
            row's end; `total` `[B]`, its sum; `count` `[B]`, the number of ids scored.
        """
        ids, lengths = self._vocabulary.ids_and_lengths(ids, lengths)
        nll, _, _ = self._reader.read_and_score(
            ids, lengths, self._reader.empty_cache(ids)
        )
        count = tf.maximum(lengths - 1, 0)
        return {"nll": nll, "total": total(nll), "count": count}

    def prefill(self, ids: tf.Tensor, lengths: tf.Tensor) -> Tensors:
        """Reads prompts in one call.

        Args:
            ids: `[B, T]`.
            lengths: `[B]`; 0 for an empty prompt.

        Returns:
            `log_probs` `[B, V]` of the next token, and the cache.
        """
        ids, lengths = self._vocabulary.ids_and_lengths(ids, lengths)
        features, cache = self._reader.read(ids, lengths, self._reader.empty_cache(ids))
        log_probs = self._reader.log_probs(features)
        return {"log_probs": log_probs, **self._cache.flatten(cache, lengths)}

    def step(self, ids: tf.Tensor, **cache: tf.Tensor) -> Tensors:
        """Reads one token a row, at a cost that does not grow with the text.

        Args:
            ids: `[B]`.
            **cache: what `prefill`, `step` or `generate` returned.

        Returns:
            `log_probs` `[B, V]` of the next token, and the new cache.
        """
        ids = self._vocabulary.ids(ids)
        before, steps = self._cache.unflatten(self._cache.checked(cache))
        log_probs, after = self._reader.step(ids, before)
        return {"log_probs": log_probs, **self._cache.flatten(after, steps + 1)}

    def generate(
        self,
        ids: tf.Tensor,
        lengths: tf.Tensor,
        **inputs: tf.Tensor,
    ) -> Tensors:
        """Reads ids and continues them.

        The same row with the same seed is continued alike, and in two calls as in one.

        Args:
            ids: `[B, T]`, which have not been read yet.
            lengths: `[B]`, the number of ids in each row, at least 1.
            **inputs: `temperature` `[B]`, divides the log-probabilities; 0: the most probable
                token.
                `top_k` `[B]`, choose from so many of the most probable tokens; 0: from all.
                `top_p` `[B]`, choose from the fewest tokens of this probability, in (0, 1].
                `seed` `[B]`.
                `max_length` `[B]`, the number of tokens to add, from 1 to 65,536.
                `stop_id` `[B]`, the token that ends a row; -1: none.
                `forbidden_ids` `[B, F]`, tokens not to write, which are left out before `top_k`
                and `top_p` choose; -1: `<unk>`, if the vocabulary has it; -2: nothing.
                The cache of what came before: of an empty `prefill` where nothing did.

        Returns:
            `ids` `[B, N]`, -1 after a row's end; `lengths` `[B]`; `text` `[B]`, what they add to
            the text; and the cache, which has read all of these but the last: send that one to
            go on.
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
