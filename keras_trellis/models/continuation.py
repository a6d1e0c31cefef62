"""`TrellisLM.generate`: checks, and the graph behind it."""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf

from keras_trellis.models import generation, passes

__all__ = ["continued"]


def continued(
    model: Any,
    ids: Any,
    max_length: int,
    *,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    seed: int | None,
    stop_token_ids: Any,
    forbidden_ids: Any,
    strip_prompt: bool,
) -> tf.Tensor:
    """Continues prompts; the arguments are those of `TrellisLM.generate`."""
    generation.check_sampling(temperature, top_k, top_p)
    size = model.vocabulary_size
    stops = generation.token_ids("stop_token_ids", stop_token_ids, size)
    forbidden = generation.forbidden_tokens(forbidden_ids, size)
    ids = generation.prompts(model.checked_tokens("ids", ids)[0], max_length)
    length = tf.shape(ids)[1] if ids.shape[1] is None else ids.shape[1]
    seeds = generation.row_seeds(seed, tf.shape(ids)[0])
    if ids.shape[1] == max_length:
        return ids[:, :0] if strip_prompt else ids
    continuation = _graph(model)(
        ids,
        tf.convert_to_tensor(max_length - length),
        seeds,
        temperature=tf.constant(temperature, tf.float32),
        top_k=None if top_k is None else tf.constant(min(top_k, size)),
        top_p=None if top_p is None else tf.constant(top_p, tf.float32),
        stop_token_ids=stops,
        forbidden_ids=forbidden,
    )
    # A draw is made even where the prompt, of unknown length, has all that was asked for.
    text = tf.concat([ids, continuation], axis=1)[:, :max_length]
    text = tf.ensure_shape(text, [None, max_length])
    return text[:, length:] if strip_prompt else text


def _graph(model: Any) -> Any:
    """Returns the model's graph of a continuation, in which the length of the result may vary."""
    if getattr(model, "_continuation", None) is None:
        model._continuation = tf.function(
            functools.partial(_continue, model), reduce_retracing=True
        )
    return model._continuation


def _continue(
    model: Any,
    ids: tf.Tensor,
    steps: tf.Tensor,
    seeds: tf.Tensor,
    **settings: Any,
) -> tf.Tensor:
    cache = model.get_initial_cache(tf.shape(ids)[0])
    log_probs, cache = passes.prefill(model, ids, cache)
    tokens, _, _ = generation.generate(
        functools.partial(passes.step, model),
        log_probs,
        cache,
        steps=steps,
        seeds=seeds,
        first=tf.shape(ids)[1],
        **settings,
    )
    return tokens
