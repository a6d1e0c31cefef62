"""The signatures of a language model."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from keras_trellis.export.caches import CacheFormat, unread
from keras_trellis.export.checks import Tensors
from keras_trellis.export.continuation import continued
from keras_trellis.export.reading import Reader, total, valid
from keras_trellis.export.requests import UNKNOWN_ID, Vocabulary
from keras_trellis.export.saving import Signature
from keras_trellis.export.tokenizer import Tokenizer
from keras_trellis.export.weights import Weights
from keras_trellis.models.language_model import TrellisLM

_NEXT = 10  # next tokens in the answer of `serving_default`

# Inputs of one row, with which a server warms up; requests may have any sizes.
_TEXT = {"text": np.array([""], object)}
_ALTERNATIVES = {"alternatives": np.array([1], np.int32)}
_SETTINGS = {
    "temperature": np.array([1], np.float32),
    "top_k": np.array([0], np.int32),
    "top_p": np.array([1], np.float32),
    "seed": np.array([0], np.int64),
    "max_length": np.array([2], np.int32),
    "stop_ids": np.array([[-1]], np.int32),
    "stop": np.array([[""]], object),
    "forbidden_ids": np.array([[UNKNOWN_ID]], np.int32),
    **_ALTERNATIVES,
}


class LanguageModelEndpoints:
    """The signatures of a language model: functions of batches, which check their input.

    A row's answer depends on that row alone, whatever else is in the batch. `score_v2`,
    `score_ids_v2`, `prefill_v2`, `step_v2` and `generate_v2` are the methods below without that
    ending.

    A cache has no tensor that nothing is computed of, and in each row the model's fingerprint.
    Another model's cache is refused.

    Args:
        model: the model, as `inference_model` returns it.
        tokenizer: its vocabulary.
        weights: the model's weights, as they are exported.
        fingerprint: of the model.

    Attributes:
        cache: the names and shapes of the cache's tensors.
        plain_cache: the same without the fingerprint.
    """

    def __init__(
        self, model: TrellisLM, tokenizer: Tokenizer, weights: Weights, fingerprint: int
    ) -> None:
        self._tokenizer = tokenizer
        self._vocabulary = Vocabulary(model.vocabulary_size, tokenizer.unknown_id)
        self._reader = Reader(model, weights)
        self._empty = model.get_initial_cache(1)
        left_out = self._unread()
        self.plain_cache = CacheFormat(self._empty, left_out=left_out)
        self.cache = CacheFormat(
            self._empty, left_out=left_out, fingerprint=fingerprint
        )

    def signatures(self) -> dict[str, Signature]:
        """Returns the signatures by name."""
        eos = np.array([self._tokenizer.eos_id], np.int32)
        ids = {"ids": eos[:, None], "lengths": np.array([1], np.int32)}
        cache = self.cache.flatten(self._empty, tf.zeros([1], tf.int32))
        specs = self.cache.specs
        describe = Signature.from_example(self.describe, _TEXT)
        return {
            "serving_default": describe,
            "serve": describe,  # the name that `keras.layers.TFSMLayer` asks for by default
            "tokenize": Signature.from_example(self.tokenize, _TEXT),
            "detokenize": Signature.from_example(self.detokenize, ids),
            "score_v2": Signature.from_example(self.score, {**_TEXT, **_ALTERNATIVES}),
            "score_ids_v2": Signature.from_example(
                self.score_ids, {**ids, **_ALTERNATIVES}
            ),
            "prefill_v2": Signature.from_example(self.prefill, ids),
            "step_v2": Signature.from_example(self.step, {"ids": eos, **cache}, specs),
            "generate_v2": Signature.from_example(
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
        encoded = self._tokenizer.encode(text)
        begun = self._tokenizer.begun(encoded)
        compared, features = self._reader.compare(
            begun, encoded.lengths + 1, tf.constant(0)
        )
        count = tf.maximum(tf.cast(encoded.lengths, tf.float32), 1)
        probabilities = tf.exp(self._reader.log_probs(features))
        best, ids = tf.math.top_k(probabilities, min(_NEXT, self._vocabulary.size))
        return {
            "perplexity": tf.exp(total(compared["nll"]) / count),
            "unknown": encoded.unknown,
            "next_tokens": self._tokenizer.tokens(ids),
            "next_probabilities": best,
        }

    def tokenize(self, text: tf.Tensor) -> Tensors:
        """Returns `ids` `[B, T]` of texts, `lengths` `[B]`, and `unknown` `[B]`, see `describe`."""
        outputs = self._tokenizer.encode(text)._asdict()
        del outputs["words"]
        return outputs

    def detokenize(self, ids: tf.Tensor, lengths: tf.Tensor) -> Tensors:
        """Writes ids, which begin a line, as text in print.

        Args:
            ids: `[B, T]`.
            lengths: `[B]`, the number of ids in each row.

        Returns:
            `text` `[B]`: of words, the spaces that stand between them alone are left out, as far as
            the export says how; `settled` `[B]`, its beginning that more ids do not change, by
            which a text is shown while it grows.
        """
        ids, lengths = self._vocabulary.ids_and_lengths(ids, lengths)
        ids = tf.where(valid(ids, lengths), ids, -1)
        text = self._tokenizer.detokenize(ids)
        return {"text": text, "settled": self._tokenizer.settled(text)}

    def score(self, text: tf.Tensor, alternatives: tf.Tensor) -> Tensors:
        """Scores texts, each token given those before it and the line break before the text.

        Args:
            text: `[B]`.
            alternatives: `[B]`, how many of the most probable tokens to return in the place of
                each, from 0 to 100.

        Returns:
            `tokens` `[B, T]`, as the model reads them; `words` `[B, T]`, the text's own, cut and
            standardised, which differ from the tokens where those are `<unk>`; `nll` `[B, T]`, in
            nats; `ranks` `[B, T]`, 1 for the most probable token; `likeliest_tokens` and
            `likeliest_log_probs` `[B, T, K]`, the first first; `total` `[B]`, the sum of `nll`;
            `count` `[B]`, the number of tokens; `unknown` `[B]`, see `describe`. Empty strings and
            zeros fill the rows after a text's end, and after as many alternatives as a row asks
            for.
        """
        encoded = self._tokenizer.encode(text)
        begun = self._tokenizer.begun(encoded)
        asked = self._vocabulary.alternatives(alternatives)
        compared = self._compare(begun, encoded.lengths + 1, asked)
        compared = {name: values[:, 1:] for name, values in compared.items()}
        likeliest = compared.pop("likeliest_ids")
        tokens = self._tokenizer.tokens(encoded.ids)
        return {
            "tokens": tf.where(valid(encoded.ids, encoded.lengths), tokens, ""),
            "words": encoded.words,
            **compared,
            "likeliest_tokens": self._tokenizer.tokens(likeliest),
            "total": total(compared["nll"]),
            "count": encoded.lengths,
            "unknown": encoded.unknown,
        }

    def score_ids(
        self, ids: tf.Tensor, lengths: tf.Tensor, alternatives: tf.Tensor
    ) -> Tensors:
        """Scores ids, each given those before it in its row.

        Args:
            ids: `[B, T]`.
            lengths: `[B]`, the number of ids in each row.
            alternatives: `[B]`, see `score`.

        Returns:
            `nll` and `ranks` `[B, T]`, see `score`: 0 for the first of a row, which has no context,
            and after a row's end; `likeliest_ids` `[B, T, K]`, -1 there, and
            `likeliest_log_probs` `[B, T, K]`; `total` `[B]`, the sum of `nll`; `count` `[B]`, the
            number of ids scored.
        """
        ids, lengths = self._vocabulary.ids_and_lengths(ids, lengths)
        asked = self._vocabulary.alternatives(alternatives)
        compared = self._compare(ids, lengths, asked)
        count = tf.maximum(lengths - 1, 0)
        return {**compared, "total": total(compared["nll"]), "count": count}

    def prefill(self, ids: tf.Tensor, lengths: tf.Tensor) -> Tensors:
        """Reads prompts in one call.

        Args:
            ids: `[B, T]`, at most 65,536 tokens.
            lengths: `[B]`; 0 for an empty prompt.

        Returns:
            `log_probs` `[B, V]` of the next token, and the cache.
        """
        ids, lengths = self._vocabulary.prompts(ids, lengths, least=0)
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
        before, steps = self.cache.unflatten(self.cache.checked(cache))
        log_probs, after = self._reader.step(ids, before)
        return {"log_probs": log_probs, **self.cache.flatten(after, steps + 1)}

    def generate(
        self,
        ids: tf.Tensor,
        lengths: tf.Tensor,
        **inputs: tf.Tensor,
    ) -> Tensors:
        """Reads ids and continues them.

        The same row with the same seed is continued alike, whatever row or batch it is in, and in
        two calls as in one. docs/reference/signatures.md has the random numbers.

        Args:
            ids: `[B, T]`, at most 65,536 tokens, which have not been read yet.
            lengths: `[B]`, the number of ids in each row, at least 1.
            **inputs: `temperature` `[B]`, divides the log-probabilities; 0: the most probable
                token.
                `top_k` `[B]`, choose from so many of the most probable tokens; 0: from all.
                `top_p` `[B]`, choose from the fewest tokens of this probability, in (0, 1].
                `seed` `[B]`.
                `max_length` `[B]`, the number of tokens to add, from 1 to 65,536.
                `stop_ids` `[B, S]`, tokens that end a row; -1: none.
                `stop` `[B, S]`, texts that end a row, each of at most 256 bytes; empty: none. Each
                is looked for in what this call writes.
                `forbidden_ids` `[B, F]`, tokens not to write, which are left out before `top_k`
                and `top_p` choose; -1: `<unk>`, if the vocabulary has it; -2: nothing.
                `alternatives` `[B]`, see `score`.
                The cache of what came before: of an empty `prefill` where nothing did.

        Returns:
            `ids` `[B, N]`, -1 after a row's end; `lengths` `[B]`; `log_probs` `[B, N]`, those of
            the model, whatever the settings make of them; `likeliest_ids` and
            `likeliest_log_probs` `[B, N, K]`, see `score_ids`; `stopped` `[B]`, whether a stop
            ended the row; `text` `[B]`, what the ids add to the text, up to where a stop text
            begins, words with single spaces between them: `detokenize` writes them as in print; and
            the cache, which has read all of these ids but the last: send that one to go on.
        """
        ids, lengths = self._vocabulary.prompts(ids, lengths, least=1)
        settings = self._vocabulary.settings(inputs)
        before, steps = self.cache.unflatten(self.cache.checked(inputs))
        features, after = self._reader.read(ids, lengths, before)
        steps += lengths
        answer, after = continued(
            self._reader.step,
            self._reader.log_probs(features),
            after,
            settings,
            self._tokenizer,
            last=tf.gather(ids, lengths - 1, batch_dims=1),
            first=steps,
        )
        steps += answer["lengths"] - 1
        return {**answer, **self.cache.flatten(after, steps)}

    def _compare(
        self, ids: tf.Tensor, lengths: tf.Tensor, alternatives: tf.Tensor
    ) -> Tensors:
        """Compares ids with as many others as each row asks for; -1 and 0 fill the places left."""
        count = tf.maximum(tf.reduce_max(alternatives), 0)
        compared, _ = self._reader.compare(ids, lengths, count)
        asked = tf.range(count) < alternatives[:, None, None]
        asked &= (compared["ranks"] > 0)[..., None]
        for name, other in {"likeliest_ids": -1, "likeliest_log_probs": 0}.items():
            compared[name] = tf.where(asked, compared[name], other)
        return compared

    def _unread(self) -> frozenset[str]:
        """Returns the tensors of a cache that no call reads, which all begin with a valid token."""
        token = tf.constant([self._tokenizer.eos_id])
        chunk = tf.repeat(token[None], 3, axis=1)
        mask = tf.constant([[True, True, False]])
        _, cache = self._reader.chunk(chunk, self._empty, mask)
        return unread(
            [
                lambda cache: self._reader.step(token, cache),
                lambda cache: self._reader.chunk(chunk, cache, mask),
            ],
            cache,
        )
