"""Adapting to a text while it is scored: dynamic evaluation, and the continuous cache.

Both are causal: a target's score depends only on earlier tokens. They need one pass over a text, so
they score under the protocol `exact`. The parallel streams of `trellisnet` have no such order:
weights that adapt to all streams at once have seen later tokens of the text.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
import tqdm

from keras_trellis.heads import at_least_float32
from keras_trellis.types import Tensor
from trainers.data import streams
from trainers.data.names import check_flag
from trainers.language.evaluation import Score, head_epsilon

# The constants of dynamic evaluation's authors, for words. A good rate depends on all three.
SEGMENT = 5
STREAMS = 100
EPSILON = 2e-5
BATCHES = 400  # ours: theirs take all of the training text, with little effect
_bar = functools.partial(tqdm.trange, disable=None, leave=False)  # a bar on a terminal


@dataclasses.dataclass(frozen=True)
class DynamicEvaluation:
    """Gradient descent on the text, after each segment of it has been scored.

    With w_0 the trained weights, L_i the mean nll of the targets of segment i, and g_k the
    gradients of L on batches of the training text,

        r   = sqrt(mean_k g_k^2)                 element by element
        a   = min(decay r / mean(r), 1)          the mean over the tensors of their means
        w_i = w_{i-1} - rate dL_i / (r + 2e-5) + a (w_0 - w_{i-1})

    dL_i is the gradient at w_{i-1}, through the time steps of the segment. The cache before the
    segment counts as constant. A segment has 5 tokens. A batch k has a segment of each of 100
    streams.

    Source: Krause, Kahembwe, Murray and Renals (2018), "Dynamic evaluation of neural sequence
    models", section 3 (RMS with RMS global prior); the constants are those of the code that they
    released.

    Attributes:
        rate: above 0; the paper's eta.
        decay: from 0 to 1; the paper's lambda.

    Raises:
        ValueError: one is out of its range; the message names its flag.
    """

    rate: float
    decay: float

    def __post_init__(self):
        rate, decay = 0 < self.rate < math.inf, 0 <= self.decay <= 1
        check_flag("dynamic_rate", self.rate, "a number above 0", rate)
        check_flag("dynamic_decay", self.decay, "a number from 0 to 1", decay)


@dataclasses.dataclass(frozen=True)
class ContinuousCache:
    """A distribution over recent words; a word counts more if its past is like the present one.

    With h_t the head's input at time step t, and x_t the tokens,

        p_cache(w | t) ~ sum_i [x_{i+1} = w] exp(theta h_t . h_i),  i from t - size to t - 1
        p(w | t)       = (1 - weight) p_model(w | t) + weight p_cache(w | t)

    At the first time step the cache is empty, so p is p_model.

    Source: Grave, Joulin and Usunier (2017), "Improving neural language models with a continuous
    cache", section 3 (linear interpolation).

    Attributes:
        size: the number of time steps kept, at least 1.
        theta: at least 0, which counts words alone.
        weight: from 0 to below 1; the paper's lambda.

    Raises:
        ValueError: one is out of its range; the message names its flag.
    """

    size: int
    theta: float
    weight: float

    def __post_init__(self):
        theta, weight = 0 <= self.theta < math.inf, 0 <= self.weight < 1
        check_flag("cache_size", self.size, "at least 1", self.size >= 1)
        check_flag("cache_theta", self.theta, "a number of at least 0", theta)
        check_flag("cache_lambda", self.weight, "a number from 0 to below 1", weight)


class Recent(NamedTuple):
    """The time steps in a continuous cache; the last ones are valid.

    Attributes:
        features: `[size, E]`.
        targets: `[size]`, the token after each.
        count: the number of valid steps.
    """

    features: Tensor
    targets: Tensor
    count: Tensor  # type: ignore[assignment]  # in place of the method of tuples


def recall(
    cache: ContinuousCache,
    recent: Recent,
    nll: Tensor,
    features: Tensor,
    targets: Tensor,
) -> tuple[Tensor, Recent]:
    """Mixes the cache's distribution into the nll of the time steps after those in it.

    Args:
        cache: its size and weights.
        recent: the earlier time steps.
        nll: `[n]`, the model's.
        features: `[n, E]`.
        targets: `[n]`.

    Returns:
        the nll of the mixture, `[n]`, and the time steps that are in the cache now.
    """
    features = at_least_float32(features)
    joined = Recent(
        tf.concat([recent.features, features], 0),
        tf.concat([recent.targets, targets], 0),
        tf.minimum(recent.count + tf.size(targets), cache.size),
    )
    scores = cache.theta * tf.matmul(features, joined.features, transpose_b=True)
    # A time step's cache has the `size` places before its own; the first may not be filled yet.
    places = tf.range(tf.size(joined.targets))
    steps = tf.range(tf.size(targets))[:, None]
    known = (places >= steps) & (places < steps + cache.size)
    known &= places >= cache.size - recent.count
    filled = tf.reduce_any(known, 1)
    every = tf.where(filled, _log_sum(scores, known), 0)
    same = _log_sum(scores, known & (joined.targets == targets[:, None]))
    # While the cache is empty, the model's own probability takes its place in the mixture.
    recalled = tf.where(filled, tf.cast(same - every, nll.dtype), -nll)
    weights = tf.constant([1 - cache.weight, cache.weight], nll.dtype)
    shares = tf.math.log(weights)
    mixed = -tf.reduce_logsumexp(shares + tf.stack([-nll, recalled], 1), 1)
    last = slice(-cache.size, None)
    return mixed, Recent(joined.features[last], joined.targets[last], joined.count)


def _log_sum(scores: Tensor, chosen: Tensor) -> Tensor:
    """Returns log sum_j exp(scores_ij) over the chosen j of each i; minus infinity for none."""
    least = tf.constant(-math.inf, scores.dtype)
    return tf.reduce_logsumexp(tf.where(chosen, scores, least), 1)


class AdaptiveEvaluator:
    """Scores a text in one pass and adapts to it; then restores the model's weights.

    Args:
        model: a language model with `stream`, `get_initial_cache`, `head` and `embedding`.
        train: the training ids `[N]`, for the statistics of dynamic evaluation.
        chunk: time steps a call without dynamic evaluation; changes no number.
        dynamic: dynamic evaluation, or None.
        cache: a continuous cache, or None.
    """

    def __init__(
        self,
        model: keras.Model,
        train: np.ndarray,
        chunk: int,
        dynamic: DynamicEvaluation | None = None,
        cache: ContinuousCache | None = None,
    ) -> None:
        self._model = model
        self._chunk = SEGMENT if dynamic else chunk
        self._continuous = cache
        self._descent = _Descent(model, dynamic, train) if dynamic else None
        self._call = tf.function(self._score, autograph=False)

    def exact(self, ids: np.ndarray) -> Score:
        """Scores each of the N - 1 targets of a stream of ids `[N]` once."""
        nll = self.nll(ids)
        return Score(float(nll.sum(dtype=np.float64)), len(nll))

    def nll(self, ids: np.ndarray) -> np.ndarray:
        """Returns the nll of each target of a stream of ids `[N]`, `[N - 1]`, in nats."""
        segments = streams.Windows(len(ids), self._chunk)
        cache, recent = self._model.get_initial_cache(1), self._no_steps()
        parts = []
        try:
            for index in _bar(segments.count, desc="scoring"):
                rows = segments.select(ids[None], index)
                nll, cache, recent = self._call(*rows, cache, recent)
                parts.append(nll.numpy())
        finally:
            if self._descent:
                self._descent.reset()
        return np.concatenate(parts)

    def _score(
        self, ids: Tensor, targets: Tensor, cache: Any, recent: Recent | None
    ) -> tuple[Tensor, Any, Recent | None]:
        """Returns the nll `[n]` of a segment's targets `[1, n]`, and learns from it."""
        if self._descent:
            gradients, nll, features, cache = _gradients(
                self._model, ids, targets, cache
            )
            self._descent.step(gradients)
        else:
            nll, features, cache = _forward(self._model, ids, targets, cache)
        if not self._continuous or not recent:
            return nll[0], cache, None
        mixed, recent = recall(
            self._continuous, recent, nll[0], features[0], targets[0]
        )
        return mixed, cache, recent

    def _no_steps(self) -> Recent | None:
        if not self._continuous:
            return None
        # A time step of any token shows how wide features are, and their dtype.
        cache, size = self._model.get_initial_cache(1), self._continuous.size
        features, _ = self._model.stream(tf.constant([[0]]), cache)
        keys = tf.repeat(tf.zeros_like(at_least_float32(features[0])), size, 0)
        return Recent(keys, tf.zeros([size], tf.int32), tf.constant(0))


def _forward(model: keras.Model, ids: Tensor, targets: Tensor, cache: Any) -> tuple:
    """Returns the nll `[B, n]` and features `[B, n, E]` of a segment, and the cache after it."""
    features, cache = model.stream(ids, cache)
    table, how = model.embedding.embeddings, head_epsilon("exact", model)
    nll = model.head.nll(features, targets, table, **how)
    return nll, features, cache


def _gradients(model: keras.Model, ids: Tensor, targets: Tensor, cache: Any) -> tuple:
    """Returns the dense gradients of a segment's mean nll, and what `_forward` returns."""
    variables = [variable.value for variable in model.trainable_variables]
    with tf.GradientTape() as tape:
        nll, features, cache = _forward(model, ids, targets, cache)
        loss = tf.reduce_mean(nll)
    zero = tf.UnconnectedGradients.ZERO
    gradients = tape.gradient(loss, variables, unconnected_gradients=zero)
    dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
    return dense, nll, features, cache


class _Descent:
    """Dynamic evaluation of a model: its trained weights, and the scales of their steps."""

    def __init__(
        self, model: keras.Model, settings: DynamicEvaluation, train: np.ndarray
    ) -> None:
        self._variables = model.trainable_variables
        self._trained = [tf.identity(variable.value) for variable in self._variables]
        self._scales = gradient_scales(model, train)
        self._mean = tf.reduce_mean([tf.reduce_mean(scale) for scale in self._scales])
        self._settings = settings

    def step(self, gradients: Sequence[Tensor]) -> None:
        """Moves each variable after a segment."""
        for variable, *values in zip(
            self._variables, gradients, self._trained, self._scales, strict=True
        ):
            variable.assign(self._moved(variable.value, *values))

    # Compiled, this is one pass over the weights instead of one an operation.
    @tf.function(jit_compile=True, autograph=False)
    def _moved(
        self,
        weights: Tensor,
        gradient: Tensor,
        trained: Tensor,
        scale: Tensor,
    ) -> Tensor:
        rate = self._settings.rate / (scale + EPSILON)
        decay = tf.minimum(self._settings.decay * scale / self._mean, 1)
        return weights - rate * gradient + decay * (trained - weights)

    def reset(self) -> None:
        """Sets the trained weights back."""
        for variable, trained in zip(self._variables, self._trained, strict=True):
            variable.assign(trained)


def gradient_scales(model: keras.Model, train: np.ndarray) -> list[Tensor]:
    """Returns the root mean square of the gradients on training text, by variable.

    Args:
        model: with the trained weights.
        train: the training ids `[N]`. They are cut into `STREAMS` streams, or fewer if a stream
            would have less than two tokens. The first `BATCHES` segments of `SEGMENT` tokens count.
    """
    rows = streams.contiguous_streams(train, min(STREAMS, len(train) // 2))
    segments = streams.Windows(rows.shape[1], SEGMENT)
    cache = model.get_initial_cache(len(rows))
    squares = [tf.zeros_like(variable.value) for variable in model.trainable_variables]
    batches = min(BATCHES, segments.count)

    @tf.function(autograph=False)
    def add(ids, targets, cache, squares):
        gradients, _, _, cache = _gradients(model, ids, targets, cache)
        return cache, [
            s + tf.square(g) for s, g in zip(squares, gradients, strict=True)
        ]

    for index in _bar(batches, desc="gradient statistics"):
        cache, squares = add(*segments.select(rows, index), cache, squares)
    return [tf.sqrt(square / batches) for square in squares]
