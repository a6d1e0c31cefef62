"""How a language model reads and writes a chunk or a token at a time."""

from __future__ import annotations

import functools
from collections.abc import Collection
from typing import Any

import keras
from keras import ops

from keras_trellis.backend import current as backend
from keras_trellis.core import checks, dropout
from keras_trellis.models import generation
from keras_trellis.models.losses import begun, where_valid
from keras_trellis.types import Number, Tensor


class Streaming(keras.Model):
    """The part of a language model that reads text: words in, log-probabilities out, with a cache.

    `embed`, `run_chunk`, `read_on`, `logits`, `log_probs` and `nll` check nothing: ids must be in
    [0, V), and shapes must fit. The other methods check them first, and an export checks requests.

    Attributes:
        vocabulary_size: V, the number of tokens.
        embedding: the table of word vectors.
        trellis: the sequence layer.
        head: what turns outputs of the layer into log-probabilities.
    """

    def embed(self, ids: Tensor, training: bool = False) -> Tensor:
        """Returns the word vectors `[B, T, E]`, in training without the words that are dropped.

        An id outside of the vocabulary has NaN: under XLA, on an accelerator and on JAX, a lookup
        outside of the table returns some vector.
        """
        words = self.embedding(ids)
        known = ops.expand_dims((ids >= 0) & (ids < self.vocabulary_size), -1)
        words = ops.where(known, words, float("nan"))
        if self.untrained_input_id is not None:
            untrained = ops.expand_dims(ids == self.untrained_input_id, -1)
            words = ops.where(untrained, ops.stop_gradient(words), words)
        if not (training and self.embedding_dropout):
            return words
        shape = (self.vocabulary_size, 1)
        mask = self.drawn_mask("words", shape, self.embedding_dropout, words.dtype)
        return words * backend.take(mask, ids)

    def run_chunk(
        self, ids: Tensor, cache: Any, mask: Any = None
    ) -> tuple[Tensor, Any]:
        """Returns what the head gets for ids `[B, T]`, one a step, and the next cache."""
        outputs, cache = self.trellis.stream(self.embed(ids), cache, mask=mask)
        return outputs, cache

    def read_on(self, ids: Tensor, cache: Any, mask: Any = None) -> tuple[Tensor, Any]:
        """Returns the log-probabilities `[B, V]` after ids `[B, T]`, T >= 1, and the next cache."""
        outputs, cache = self.run_chunk(ids, cache, mask)
        # A masked step has the output of the valid one before it: the last one fits every row.
        return self.log_probs(outputs[:, -1]), cache

    def read_one(self, ids: Tensor, cache: Any) -> tuple[Tensor, Any]:
        """Returns what `read_on` does after one id a row, `[B]`."""
        return self.read_on(ids[:, None], cache)

    def logits(self, outputs: Tensor, training: bool = False) -> Tensor:
        """Returns the logits `[..., V]` for outputs `[..., output_units]`."""
        table = self.embedding.embeddings
        logits: Tensor = self.head.logits(outputs, table, training=training)
        return logits

    def log_probs(self, outputs: Tensor) -> Tensor:
        """Returns the log-probabilities `[..., V]` for outputs `[..., output_units]`."""
        log_probs: Tensor = self.head.log_probs(outputs, self.embedding.embeddings)
        return log_probs

    def nll(self, outputs: Tensor, targets: Tensor, **options: Any) -> Tensor:
        """Returns the negative log-likelihood of each target, in nats; see the head's `nll`."""
        table = self.embedding.embeddings
        nll: Tensor = self.head.nll(outputs, targets, table, **options)
        return nll

    def drawn_mask(self, name: str, shape: Any, rate: float, dtype: Any) -> Any:
        """Returns a mask of dropout of this call; the rate is not zero."""
        seed = dropout.next_seed(self.seed_generator)
        return dropout.stream_mask(seed, name, rate, shape, dtype)

    def get_initial_state(self, batch_size: int) -> Any:
        """Returns the state of no history: a list of zeros `[B, units]`."""
        return self.trellis.get_initial_state(batch_size)

    def get_initial_cache(self, batch_size: int, initial_state: Any = None) -> Any:
        """Returns the cache of no history, for `score`, `prefill` and `step`.

        Args:
            batch_size: B.
            initial_state: None, or a state to begin from instead, each tensor `[B, units]`.
        """
        if initial_state is None:  # a layer of a user's own may not take one
            return self.trellis.get_initial_cache(batch_size)
        return self.trellis.get_initial_cache(batch_size, initial_state)

    def stream(self, ids: Tensor, cache: Any, mask: Any = None) -> tuple[Tensor, Any]:
        """Returns what the head gets at each step, `[B, T, output_units]`, and the new cache.

        Args:
            ids: integers `[B, T]`.
            cache: from `get_initial_cache`, or of what came before.
            mask: None, or booleans `[B, T]`; masked steps are skipped.
        """
        ids, mask = self.checked_tokens("ids", ids, mask)
        return self.run_chunk(ids, cache, mask)

    def prefill(self, ids: Tensor, cache: Any, mask: Any = None) -> tuple[Tensor, Any]:
        """Reads a chunk of text at once.

        Args:
            ids: integers `[B, T]`, T >= 1.
            cache: from `get_initial_cache`, or of what came before.
            mask: None, or booleans `[B, T]` with at least one True a row: False is padding.

        Returns:
            log-probabilities `[B, V]` of the token after the last valid one of each row, and the
            new cache.
        """
        ids, mask = self.checked_tokens("ids", ids, mask)
        return self.read_on(begun("ids", ids), cache, mask)

    def step(self, ids: Tensor, cache: Any) -> tuple[Tensor, Any]:
        """Reads one token a row, at a cost that does not grow with the text.

        Args:
            ids: integers `[B]`.
            cache: of what came before.

        Returns:
            log-probabilities `[B, V]` of the next token, and the new cache.
        """
        ids = checks.integers("ids", ids)
        ids = checks.with_shape("ids", ids, [None], "of shape [B]")
        ids = checks.within("ids", ids, self.vocabulary_size)
        return self.read_one(ids, cache)

    def generate(
        self,
        ids: Tensor,
        max_length: int,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        stop_token_ids: int | Collection[int] | Tensor | None = None,
        forbidden_ids: int | Collection[int] | Tensor | None = None,
        strip_prompt: bool = False,
    ) -> Tensor:
        """Continues prompts of equal length.

        The same arguments and seed give the same text on every backend, unless rounding decides
        between two tokens. An export continues a text of one row in the same way. A row's text does
        not depend on the rows after it. JAX compiles a program for each shape of the prompts and
        each `max_length`.

        Args:
            ids: integers `[B, T]`, T >= 1, the prompts.
            max_length: length of the result, the prompt included.
            temperature: divides the log-probabilities; 0 takes the most probable token each time.
            top_k: None, or from how many of the most probable tokens to choose.
            top_p: None, or choose from the fewest tokens that have this probability together, in
                (0, 1].
            seed: None (at random), or an integer.
            stop_token_ids: tokens that end a row: what follows is filled with that token. None, an
                integer, or a sequence, a set, an array or a tensor of them.
            forbidden_ids: tokens that are never drawn, such as that of unknown words; None: none.
                `top_k` and `top_p` choose from the others, whose probabilities keep their
                proportions.
            strip_prompt: whether to return the continuation alone.

        Returns:
            ids `[B, max_length]`, or `[B, max_length - T]`, int32 whatever the dtype of `ids`.

        Raises:
            ValueError: an argument out of range, an empty prompt or one longer than `max_length`.
        """
        generation.check_sampling(temperature, top_k, top_p)
        size = self.vocabulary_size
        stops = generation.token_ids("stop_token_ids", stop_token_ids, size)
        forbidden = generation.forbidden_tokens(forbidden_ids, size)
        ids, _ = self.checked_tokens("ids", ids)
        ids = generation.prompts(ids, max_length)
        rows, length = checks.sizes(ids)
        seeds = generation.row_seeds(seed, rows)
        if ids.shape[1] == max_length:
            if strip_prompt:
                return ids[:, :0]
            return ids
        continuation = self._continuation(
            ids,
            seeds,
            steps=max_length - length,
            temperature=ops.convert_to_tensor(float(temperature), "float32"),
            top_k=ops.convert_to_tensor(min(top_k or size, size), "int32"),
            top_p=ops.convert_to_tensor(float(top_p or 1.0), "float32"),
            stop_token_ids=stops,
            forbidden_ids=forbidden,
        )
        # A draw is made even where the prompt, of unknown length, is as long as the result.
        text = ops.concatenate([ids, continuation], axis=1)[:, :max_length]
        text = backend.with_sizes(text, [None, max_length])
        if strip_prompt:
            return text[:, length:]
        return text

    def checked_tokens(
        self,
        name: str,
        value: Any,
        mask: Any = None,
    ) -> tuple[Tensor, Any]:
        """Returns tokens `[B, T]`, zeros where they are masked, and the mask.

        Raises:
            ValueError: they are no tokens of the vocabulary, or the mask does not fit.
        """
        ids = checks.integers(name, value)
        ids = checks.with_shape(name, ids, [None, None], "of shape [B, T]")
        if mask is not None:
            mask = checks.with_shape(
                "mask", mask, checks.sizes(ids), f"of the shape of `{name}`"
            )
            ids = where_valid(mask, ids)
        return checks.within(name, ids, self.vocabulary_size), mask

    @functools.cached_property
    def _continuation(self) -> Any:
        """The program behind `generate`; a graph of TensorFlow has any length of the result."""
        return backend.compiled(self._continue, self, sizes=["steps"])

    def _continue(
        self,
        ids: Tensor,
        seeds: Tensor,
        *,
        steps: Number,
        **settings: Any,
    ) -> Tensor:
        rows, length = checks.sizes(ids)
        cache = self.get_initial_cache(rows)
        log_probs, cache = self.read_on(ids, cache)
        tokens, _, _ = generation.generate(
            self.read_one,
            log_probs,
            cache,
            steps=steps,
            seeds=seeds,
            first=length,
            **settings,
        )
        return tokens
