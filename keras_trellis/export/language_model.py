"""The signatures of a language model."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from keras_trellis.export.caches import CacheFormat
from keras_trellis.export.checks import Tensors
from keras_trellis.export.reading import Reader, valid
from keras_trellis.export.requests import UNKNOWN_ID, Vocabulary
from keras_trellis.export.saving import Signature
from keras_trellis.export.tokenizer import Encoded, Tokenizer
from keras_trellis.export.weights import Weights
from keras_trellis.models import generation
from keras_trellis.models.language_model import TrellisLM

_NEXT = 10  # next tokens in the answer of `serving_default`

# Inputs of one row, with which a server warms up; requests may have any sizes.
_TEXT = {"text": np.array([""], object)}
_SETTINGS = {
    "temperature": np.array([1], np.float32),
    "top_k": np.array([0], np.int32),
    "top_p": np.array([1], np.float32),
    "seed": np.array([0], np.int64),
    "max_length": np.array([2], np.int32),
    "stop_id": np.array([-1], np.int32),
    "forbidden_ids": np.array([[UNKNOWN_ID]], np.int32),
}


class LanguageModelEndpoints:
    """The signatures of a language model: functions of batches, which check their input.

    A row's answer depends on that row alone, whatever else is in the batch.

    Args:
        model: the model, as `inference_model` returns it.
        tokenizer: its vocabulary.
        weights: the model's weights, as they are exported.

    Attributes:
        cache: the names and shapes of the cache's tensors.
    """

    def __init__(
        self, model: TrellisLM, tokenizer: Tokenizer, weights: Weights
    ) -> None:
        self._tokenizer = tokenizer
        self._vocabulary = Vocabulary(model.vocabulary_size, tokenizer.unknown_id)
        self._reader = Reader(model, weights)
        self._empty = model.get_initial_cache(1)
        self.cache = CacheFormat(self._empty)

    def signatures(self) -> dict[str, Signature]:
        """Returns the signatures by name."""
        eos = np.array([self._tokenizer.eos_id], np.int32)
        lengths = np.array([1], np.int32)
        ids = {"ids": eos[:, None], "lengths": lengths}
        cache = self.cache.flatten(self._empty, tf.zeros([1], tf.int32))
        specs = self.cache.specs
        describe = Signature.from_example(self.describe, _TEXT)
        return {
            "serving_default": describe,
            "serve": describe,  # the name that `keras.layers.TFSMLayer` asks for by default
            "tokenize": Signature.from_example(self.tokenize, _TEXT),
            "score": Signature.from_example(self.score, _TEXT),
            "score_ids": Signature.from_example(self.score_ids, ids),
            "prefill": Signature.from_example(self.prefill, ids),
            "step": Signature.from_example(self.step, {"ids": eos, **cache}, specs),
            "generate": Signature.from_example(
                self.generate, {**ids, **_SETTINGS, **cache}, specs
            ),
        }

    def describe(self, text: tf.Tensor) -> Tensors:
        """`serving_default`: how probable texts are, and what comes next.

        Args:
            text: `[B]`.

        Returns:
            `perplexity` `[B]`, of the text's tokens after a line break (1 where there are none);
            `unknown` `[B]`, the number of them that the vocabulary does not have, which read
            `<unk>`; `next_tokens` and `next_probabilities` `[B, 10]`, the most probable first.
        """
        encoded, nll, features = self._read_text(text)
        count = tf.maximum(tf.cast(encoded.lengths, tf.float32), 1)
        probabilities = tf.exp(self._reader.log_probs(features))
        best, ids = tf.math.top_k(probabilities, min(_NEXT, self._vocabulary.size))
        return {
            "perplexity": tf.exp(_total(nll) / count),
            "unknown": encoded.unknown,
            "next_tokens": self._tokenizer.tokens(ids),
            "next_probabilities": best,
        }

    def tokenize(self, text: tf.Tensor) -> Tensors:
        """Returns `ids` `[B, T]` of texts, `lengths` `[B]`, and `unknown` `[B]`, see `describe`."""
        encoded = self._tokenizer.encode(text)
        return {
            "ids": encoded.ids,
            "lengths": encoded.lengths,
            "unknown": encoded.unknown,
        }

    def score(self, text: tf.Tensor) -> Tensors:
        """Scores texts, each token given those before it and the line break before the text.

        Args:
            text: `[B]`.

        Returns:
            `tokens` `[B, T]`, as the model reads them; `words` `[B, T]`, the text's own, cut and
            standardised, which differ from the tokens where those are `<unk>`; `nll` `[B, T]`, in
            nats; `total` `[B]`, its sum; `count` `[B]`, the number of tokens; `unknown` `[B]`, see
            `describe`. Empty strings and zeros fill the rows after a text's end.
        """
        encoded, nll, _ = self._read_text(text)
        tokens = self._tokenizer.tokens(encoded.ids)
        return {
            "tokens": tf.where(valid(encoded.ids, encoded.lengths), tokens, ""),
            "words": encoded.words,
            "nll": nll,
            "total": _total(nll),
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
        return {"nll": nll, "total": _total(nll), "count": count}

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
        return {"log_probs": log_probs, **self.cache.flatten(cache, lengths)}

    def step(self, ids: tf.Tensor, **cache: tf.Tensor) -> Tensors:
        """Reads one token a row, at a cost that does not grow with the text.

        Args:
            ids: `[B]`.
            **cache: what `prefill`, `step` or `generate` returned.

        Returns:
            `log_probs` `[B, V]` of the next token, and the new cache.
        """
        ids = self._vocabulary.ids(ids)
        before, steps = self.cache.unflatten(cache)
        log_probs, after = self._reader.step(ids, before)
        return {"log_probs": log_probs, **self.cache.flatten(after, steps + 1)}

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
        settings = self._vocabulary.settings(inputs)
        before, steps = self.cache.unflatten(inputs)
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
            "text": self._tokenizer.decode(last, drawn),
            **self.cache.flatten(after, steps + counts - 1),
        }

    def _read_text(self, text: tf.Tensor) -> tuple[Encoded, tf.Tensor, tf.Tensor]:
        """Returns encoded texts, the nll of their tokens, and the features after the last ones."""
        encoded = self._tokenizer.encode(text)
        begun = tf.pad(
            encoded.ids, [[0, 0], [1, 0]], constant_values=self._tokenizer.eos_id
        )
        empty = self._reader.empty_cache(begun)
        nll, features, _ = self._reader.read_and_score(
            begun, encoded.lengths + 1, empty
        )
        return encoded, nll[:, 1:], features


def _total(nll: tf.Tensor) -> tf.Tensor:
    """Returns the sum over a text, which may be long, `[B]`."""
    total = tf.reduce_sum(tf.cast(nll, tf.float64), axis=1)
    return tf.cast(total, tf.float32)
