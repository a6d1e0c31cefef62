"""The signatures of a language model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from keras_trellis.export.caches import CacheFormat
from keras_trellis.export.checks import checked, same_batch
from keras_trellis.export.saving import Signature
from keras_trellis.export.tokenizer import UNKNOWN, Encoded, Tokenizer
from keras_trellis.export.weights import Weights
from keras_trellis.models import generation
from keras_trellis.models.language_model import TrellisLM
from keras_trellis.types import Cache

__all__ = ["LanguageModelEndpoints"]

_CHUNK = 128  # tokens read at once: what bounds the memory of a long text
_LONGEST = 65_536  # tokens that one call of `generate` may add: what bounds its memory
_NEXT = 10  # how many next tokens `serving_default` tells

_TEXT = tf.TensorSpec([None], tf.string, "text")
_IDS = tf.TensorSpec([None, None], tf.int32, "ids")
_LENGTHS = tf.TensorSpec([None], tf.int32, "lengths")
_FORBIDDEN = tf.TensorSpec([None, None], tf.int32, "forbidden_ids")
# What stands in `forbidden_ids` beside ids of the vocabulary.
_UNKNOWN_ID, _NOTHING = -1, -2


def _row(name: str, dtype: tf.DType) -> tf.TensorSpec:
    return tf.TensorSpec([None], dtype, name)


class LanguageModelEndpoints:
    """What a server is asked of a language model: functions of batches, with checks of the input.

    A row's answer depends on that row alone, whatever else is in the batch.

    Args:
        model: the model, as `inference_model` returns it.
        tokenizer: its vocabulary.
        weights: the model's weights, as they are exported.

    Attributes:
        cache: the cache's tensors, by name.
    """

    def __init__(self, model: TrellisLM, tokenizer: Tokenizer, weights: Weights) -> None:
        self._model = model
        self._tokenizer = tokenizer
        example = model.get_initial_cache(1)
        self.cache = CacheFormat(example)
        # Functions that several signatures call: they stand in the graph once.
        row, rows, cache = tf.TensorSpec([None], tf.int32), _IDS, _specs_like(example)
        mask = tf.TensorSpec([None, None], tf.bool)
        self._one_token = _shared(weights, model.step, [row, cache])
        self._chunk = _shared(weights, model.stream, [rows, cache, mask])
        self._read = _shared(weights, self._read_alone, [rows, _LENGTHS, cache])
        self._read_and_score = _shared(weights, self._read_scored, [rows, _LENGTHS, cache])

    def signatures(self) -> dict[str, Signature]:
        """Returns the signatures by name."""
        text, ids = {"text": _TEXT}, {"ids": _IDS, "lengths": _LENGTHS}
        sampling = {
            "temperature": _row("temperature", tf.float32),
            "top_k": _row("top_k", tf.int32),
            "top_p": _row("top_p", tf.float32),
            "seed": _row("seed", tf.int64),
            "max_length": _row("max_length", tf.int32),
            "stop_id": _row("stop_id", tf.int32),
            "forbidden_ids": _FORBIDDEN,
        }
        eos = self._tokenizer.eos_id
        cache = self.cache.flatten(self._model.get_initial_cache(1))
        for_text = {"text": tf.constant([""])}
        for_ids = {"ids": tf.constant([[eos]]), "lengths": tf.constant([1])}
        settings = {
            "temperature": tf.constant([1.0]),
            "top_k": tf.constant([0]),
            "top_p": tf.constant([1.0]),
            "seed": tf.constant([0], tf.int64),
            "max_length": tf.constant([2]),
            "stop_id": tf.constant([-1]),
            "forbidden_ids": tf.constant([[_UNKNOWN_ID]]),
        }
        describe = Signature(self.describe, text, for_text)
        return {
            "serving_default": describe,
            "serve": describe,  # what `keras.layers.TFSMLayer` looks for
            "tokenize": Signature(self.tokenize, text, for_text),
            "score": Signature(self.score, text, for_text),
            "score_ids": Signature(self.score_ids, ids, for_ids),
            "prefill": Signature(self.prefill, ids, for_ids),
            "step": Signature(
                self.step,
                {"ids": _row("ids", tf.int32), **self.cache.specs},
                {"ids": tf.constant([eos]), **cache},
            ),
            "generate": Signature(
                self.generate,
                {**ids, **sampling, **self.cache.specs},
                {**for_ids, **settings, **cache},
            ),
        }

    def describe(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """`serving_default`: how probable texts are, and what comes next.

        Args:
            text: `[B]`.

        Returns:
            `perplexity` `[B]`, of the tokens after the line break that each text begins after (1
            where there are none); `unknown` `[B]`, how many of them are words that the vocabulary
            does not have, and read `<unk>`; `next_tokens` and `next_probabilities` `[B, 10]`, the
            most probable first.
        """
        encoded, nll, features = self._read_text(text)
        count = tf.maximum(tf.cast(encoded.lengths, tf.float32), 1)
        probabilities = tf.exp(self._log_probs(features))
        size = min(_NEXT, self._model.vocabulary_size)
        best, ids = tf.math.top_k(probabilities, size)
        return {
            "perplexity": tf.exp(_total(nll) / count),
            "unknown": encoded.unknown,
            "next_tokens": self._tokenizer.tokens(ids),
            "next_probabilities": best,
        }

    def tokenize(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns `ids` `[B, T]` of texts, `lengths` `[B]`, and `unknown` `[B]`, see `describe`."""
        encoded = self._tokenizer.encode(text)
        return {"ids": encoded.ids, "lengths": encoded.lengths, "unknown": encoded.unknown}

    def score(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Scores texts, each token given those before it and the line break before the text.

        Args:
            text: `[B]`.

        Returns:
            `tokens` `[B, T]`, as the model reads them; `words` `[B, T]`, the text's own, as they
            were cut and made ready: another where the token is `<unk>`, else the same; `nll`
            `[B, T]`, in nats; `total` `[B]`, its sum; `count` `[B]`, of tokens; `unknown` `[B]`,
            see `describe`. After a text's end stand empty strings and zeros.
        """
        encoded, nll, _ = self._read_text(text)
        valid = _valid(encoded.ids, encoded.lengths)
        return {
            "tokens": tf.where(valid, self._tokenizer.tokens(encoded.ids), ""),
            "words": encoded.words,
            "nll": nll,
            "total": _total(nll),
            "count": encoded.lengths,
            "unknown": encoded.unknown,
        }

    def score_ids(self, ids: tf.Tensor, lengths: tf.Tensor) -> dict[str, tf.Tensor]:
        """Scores ids, each given those before it in its row.

        Args:
            ids: `[B, T]`.
            lengths: `[B]`, how many of each row there are.

        Returns:
            `nll` `[B, T]`, in nats, 0 for the first of a row, which has no context, and after a
            row's end; `total` `[B]`, its sum; `count` `[B]`, of ids scored.
        """
        ids, lengths = self._checked(same_batch({"ids": ids, "lengths": lengths}))
        nll, _, _ = self._read_and_score(ids, lengths, self._empty_cache(ids))
        return {"nll": nll, "total": _total(nll), "count": tf.maximum(lengths - 1, 0)}

    def prefill(self, ids: tf.Tensor, lengths: tf.Tensor) -> dict[str, tf.Tensor]:
        """Reads prompts in one call.

        Args:
            ids: `[B, T]`.
            lengths: `[B]`; 0 for an empty prompt.

        Returns:
            `log_probs` `[B, V]` of the next token, and the cache.
        """
        ids, lengths = self._checked(same_batch({"ids": ids, "lengths": lengths}))
        features, cache = self._read(ids, lengths, self._empty_cache(ids))
        return {"log_probs": self._log_probs(features), **self.cache.flatten(cache)}

    def step(self, ids: tf.Tensor, **cache: tf.Tensor) -> dict[str, tf.Tensor]:
        """Reads one token a row, at a cost that does not grow with the text.

        Args:
            ids: `[B]`.
            **cache: what `prefill`, `step` or `generate` returned.

        Returns:
            `log_probs` `[B, V]` of the next token, and the new cache.
        """
        inputs = same_batch({"ids": ids, **cache})
        ids = self._in_vocabulary("ids", inputs.pop("ids"))
        log_probs, after = self._one_token(ids, self.cache.unflatten(inputs))
        return {"log_probs": log_probs, **self.cache.flatten(after)}

    def generate(
        self,
        ids: tf.Tensor,
        lengths: tf.Tensor,
        temperature: tf.Tensor,
        top_k: tf.Tensor,
        top_p: tf.Tensor,
        seed: tf.Tensor,
        max_length: tf.Tensor,
        stop_id: tf.Tensor,
        forbidden_ids: tf.Tensor,
        **cache: tf.Tensor,
    ) -> dict[str, tf.Tensor]:
        """Reads ids and continues them.

        The same row with the same seed is continued alike, and in two calls as in one.

        Args:
            ids: `[B, T]`, what has not been read yet.
            lengths: `[B]`, how many of each row there are, at least 1.
            temperature: `[B]`, divides the log-probabilities; 0: the most probable token.
            top_k: `[B]`, from how many of the most probable tokens to choose; 0: from all.
            top_p: `[B]`, choose from the fewest tokens that have this probability, in (0, 1].
            seed: `[B]`.
            max_length: `[B]`, how many tokens to add, from 1 to 65,536.
            stop_id: `[B]`, the token that ends a row; -1: none.
            forbidden_ids: `[B, F]`, what is not written, before `top_k` and `top_p` choose: ids;
                -1: `<unk>`, where the vocabulary has it; -2: nothing.
            **cache: what came before: `prefill` of an empty prompt, where nothing did.

        Returns:
            `ids` `[B, N]`, -1 after a row's end; `lengths` `[B]`; `text` `[B]`, what they add to
            the text; and the cache after all of these but the last: to go on, send that one.
        """
        rows = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
        rows |= {"max_length": max_length, "stop_id": stop_id, "forbidden_ids": forbidden_ids}
        rows = same_batch({**rows, "lengths": lengths, "ids": ids, **cache})
        ids, lengths = self._checked(rows, least=1)
        limits, stops = self._limits(rows)
        before = self.cache.unflatten({name: rows[name] for name in self.cache.specs})
        settings = self._sampling(rows)
        features, after = self._read(ids, lengths, before)
        drawn, counts, after = generation.generate(
            self._one_token,
            self._log_probs(features),
            after,
            steps=limits,
            seeds=tf.stack([rows["seed"], tf.zeros_like(rows["seed"])], axis=-1),
            first=after.steps,
            stop_token_ids=stops[:, None],
            **settings,
        )
        drawn = tf.where(_valid(drawn, counts), drawn, -1)
        last = tf.gather(ids, lengths - 1, batch_dims=1)
        text = self._tokenizer.decode(last, drawn)
        return {"ids": drawn, "lengths": counts, "text": text, **self.cache.flatten(after)}

    def _limits(self, rows: dict[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        lengths, stops, size = rows["max_length"], rows["stop_id"], self._model.vocabulary_size
        fits = (lengths >= 1) & (lengths <= _LONGEST)
        lengths = checked("max_length", lengths, fits, f"from 1 to {_LONGEST}")
        known = (stops >= -1) & (stops < size)
        return lengths, checked("stop_id", stops, known, f"-1 (none) or in [0, {size})")

    def _sampling(self, rows: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        temperature, top_k, top_p = rows["temperature"], rows["top_k"], rows["top_p"]
        hot = tf.math.is_finite(temperature) & (temperature >= 0)
        top_k = checked("top_k", top_k, top_k >= 0, "at least 0 (0: all tokens)")
        return {
            "temperature": checked("temperature", temperature, hot, "a number of at least 0"),
            "top_k": tf.where(top_k == 0, self._model.vocabulary_size, top_k),
            "top_p": checked("top_p", top_p, (top_p > 0) & (top_p <= 1), "in (0, 1]"),
            "forbidden_ids": self._forbidden(rows["forbidden_ids"]),
        }

    def _forbidden(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns what `generation.generate` must not write, `[B, F]`."""
        size, unknown = self._model.vocabulary_size, self._tokenizer.unknown_id
        expected = f"{_UNKNOWN_ID} ({UNKNOWN}), {_NOTHING} (nothing) or in [0, {size})"
        ids = checked("forbidden_ids", ids, (ids >= _NOTHING) & (ids < size), expected)
        ids = tf.where(ids == _UNKNOWN_ID, _NOTHING if unknown is None else unknown, ids)
        leaves = ~tf.reduce_all(generation.forbidden(ids, tf.shape(ids)[0], size), axis=1)
        leaves = tf.broadcast_to(leaves[:, None], tf.shape(ids))
        return checked("forbidden_ids", ids, leaves, f"less than all {size} tokens", told=False)

    def _checked(
        self, rows: Mapping[str, tf.Tensor], least: int = 0
    ) -> tuple[tf.Tensor, tf.Tensor]:
        ids, lengths = rows["ids"], rows["lengths"]
        fits = (lengths >= least) & (lengths <= tf.shape(ids)[1])
        expected = f"from {least} to the number of columns of `ids`"
        lengths = checked("lengths", lengths, fits, expected)
        return self._in_vocabulary("ids", tf.where(_valid(ids, lengths), ids, 0)), lengths

    def _in_vocabulary(self, name: str, ids: tf.Tensor) -> tf.Tensor:
        size = self._model.vocabulary_size
        return checked(name, ids, (ids >= 0) & (ids < size), f"in [0, {size}), the vocabulary")

    def _empty_cache(self, rows: tf.Tensor) -> Cache:
        return self._model.get_initial_cache(tf.shape(rows)[0])

    def _log_probs(self, features: tf.Tensor) -> tf.Tensor:
        return self._model.head.log_probs(features, self._model.embedding.embeddings)

    def _read_text(self, text: tf.Tensor) -> tuple[Encoded, tf.Tensor, tf.Tensor]:
        """Returns texts as they are read, the nll of their tokens, and the last features."""
        encoded = self._tokenizer.encode(text)
        begun = tf.pad(encoded.ids, [[0, 0], [1, 0]], constant_values=self._tokenizer.eos_id)
        lengths, empty = encoded.lengths + 1, self._empty_cache(begun)
        nll, features, _ = self._read_and_score(begun, lengths, empty)
        return encoded, nll[:, 1:], features

    def _read_alone(
        self, ids: tf.Tensor, lengths: tf.Tensor, cache: Cache
    ) -> tuple[tf.Tensor, Cache]:
        """Reads ids, so many at a time.

        Args:
            ids: `[B, T]`, in the vocabulary.
            lengths: `[B]`.
            cache: what came before.

        Returns:
            the features of each row's last id `[B, E]`; the cache after it.
        """
        features, cache, _ = self._read_chunks(ids, lengths, cache, score=False)
        return features, cache

    def _read_scored(
        self, ids: tf.Tensor, lengths: tf.Tensor, cache: Cache
    ) -> tuple[tf.Tensor, tf.Tensor, Cache]:
        """As `_read_alone`; before the features, the nll of the ids `[B, T]`.

        It is 0 for the first of a row, and after a row's end.
        """
        features, cache, nll = self._read_chunks(ids, lengths, cache, score=True)
        time = tf.shape(ids)[1]
        nll = tf.transpose(nll.concat())[:, : tf.maximum(time - 1, 0)]
        return tf.pad(nll, [[0, 0], [tf.minimum(time, 1), 0]]), features, cache

    def _read_chunks(
        self, ids: tf.Tensor, lengths: tf.Tensor, cache: Cache, *, score: bool
    ) -> tuple[tf.Tensor, Cache, tf.TensorArray]:
        """Returns the last features, the cache, and the nll of the next ids, chunk by chunk."""
        model, time = self._model, tf.shape(ids)[1]
        size = tf.clip_by_value(time, 1, _CHUNK)
        chunks = tf.maximum(-(-time // size), 1)
        padded = tf.pad(ids, [[0, 0], [0, chunks * size + 1 - time]])

        def advance(index: Any, cache: Cache, _: tf.Tensor, nll: tf.TensorArray) -> Any:
            places = index * size + tf.range(size)
            ids = tf.gather(padded, places, axis=1)
            outputs, after = self._chunk(ids, cache, places < lengths[:, None])
            after = tf.nest.map_structure(_with_shape_of, after, cache)
            if score:
                scored = places + 1 < lengths[:, None]
                targets = tf.where(scored, tf.gather(padded, places + 1, axis=1), 0)
                each = model.head.plain_nll(outputs, targets, model.embedding.embeddings)
                nll = nll.write(index, tf.transpose(tf.where(scored, each, 0)))
            return index + 1, after, outputs[:, -1], nll

        features = tf.zeros([tf.shape(ids)[0], model.trellis.output_units])
        nll = tf.TensorArray(tf.float32, chunks if score else 0, element_shape=[None, None])
        _, cache, features, nll = tf.while_loop(
            lambda index, *_: index < chunks, advance, (0, cache, features, nll)
        )
        return features, cache, nll


def _shared(
    weights: Weights, function: Callable, specs: Sequence[Any]
) -> tf.types.experimental.PolymorphicFunction:
    """Returns a function of the model's as one that is traced once."""

    def call(*arguments: Any) -> Any:
        return weights.call(function, *arguments)

    return tf.function(call, input_signature=specs, autograph=False)


def _specs_like(cache: Cache) -> Cache:
    def spec(value: tf.Tensor) -> tf.TensorSpec:
        return tf.TensorSpec([None, *value.shape[1:]], value.dtype)

    return tf.nest.map_structure(spec, cache)


def _with_shape_of(tensor: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
    return tf.ensure_shape(tensor, other.shape)  # a loop's variables must keep their static shape


def _valid(ids: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    return tf.sequence_mask(lengths, tf.shape(ids)[1])


def _total(nll: tf.Tensor) -> tf.Tensor:
    """The sum over a text, which may be long, `[B]`."""
    return tf.cast(tf.reduce_sum(tf.cast(nll, tf.float64), axis=1), tf.float32)
