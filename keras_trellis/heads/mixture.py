"""A mixture of softmaxes."""

from __future__ import annotations

import math
from typing import Any

import keras
from keras import ops

from keras_trellis import arguments
from keras_trellis.backend import current as backend
from keras_trellis.core import checks, dropout
from keras_trellis.core.convolution import at_least_float32, rows
from keras_trellis.heads.blockwise import blockwise_nll
from keras_trellis.heads.head import (
    Head,
    broadcast_targets,
    dense_logits,
    log_add_exp,
)
from keras_trellis.types import Tensor


@keras.saving.register_keras_serializable("keras_trellis")
class MixtureOfSoftmaxes(Head):
    """A mixture of K softmaxes over the whole vocabulary, with the embedding's word vectors.

    For features h it computes, in log space:

        pi = softmax(h prior_kernel + prior_bias)                                   [K]
        z_k = tanh(dropout(h latent_kernel + latent_bias)_k)                        [K, E']
        p = sum_k pi_k softmax(table z_k + bias) + epsilon                          [V]

    Features need not have as many channels as the word vectors. The nll of given targets keeps no
    distribution in memory: `add_blockwise_nll` computes it, with the K latent vectors of every
    position as rows.

    The released code sets `epsilon` to 1e-8, which keeps the logarithm finite. The probabilities
    then sum to 1 + V epsilon. `log_probs` and `nll` take another value for one call. You may set
    the attribute too; a graph keeps the value that it was traced with.

    Variables: `prior_kernel [E, K]`, `prior_bias [K]`, `latent_kernel [E, K E']`, `latent_bias [K
    E']`, initially uniform in ±1 / sqrt(E), torch's default and so the released code's; and `bias
    [V]`, initially zero.

    The nll of a target outside [0, V) is NaN.

    Args:
        experts: K.
        latent_dropout: fraction of the channels of the latent vectors to drop, before the tanh;
            one mask for all steps of a row.
        epsilon: added to each probability, in [0, 1).
        seed: integer from which the masks derive; None draws it at random.
        **kwargs: arguments of every Keras layer.

    Raises:
        ValueError: an argument out of range.

    Source: Yang et al. (2018), "Breaking the softmax bottleneck", as in Bai et al. (2019), section
    5.2, and its released code.

    Input shape:
        features `[..., E]`, and the table of word vectors, `[V, E']`.

    Output shape:
        `[..., V]`.

    Examples:
        >>> import numpy as np
        >>> from keras_trellis.heads import MixtureOfSoftmaxes
        >>> head = MixtureOfSoftmaxes(experts=3)
        >>> features, table = np.ones([2, 5, 8], "float32"), np.ones([50, 8], "float32")
        >>> tuple(head(features, table).shape)
        (2, 5, 50)
    """

    latent_dropout: Any = dropout.Rate()

    def __init__(
        self,
        experts: int,
        *,
        latent_dropout: float = 0.0,
        epsilon: float = 0.0,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.experts = arguments.positive("experts", experts)
        self.latent_dropout = latent_dropout
        self.epsilon = arguments.rate("epsilon", epsilon)
        self.seed = seed
        self.seed_generator = dropout.generator_for(seed, self.latent_dropout)

    def build(self, features_shape: tuple, table_shape: tuple) -> None:
        """Creates the variables."""
        words, word_units = table_shape
        units = features_shape[-1]

        def add(name: str, *shape: int) -> keras.Variable:
            bound = units**-0.5
            # Make one initializer for each variable: one draws the same numbers every time.
            initializer = keras.initializers.RandomUniform(-bound, bound)
            return self.add_weight(name=name, shape=shape, initializer=initializer)

        self.prior_kernel = add("prior_kernel", units, self.experts)
        self.prior_bias = add("prior_bias", self.experts)
        self.latent_kernel = add("latent_kernel", units, self.experts * word_units)
        self.latent_bias = add("latent_bias", self.experts * word_units)
        self.bias = self._add_bias(words)

    def log_probs(
        self,
        features: Tensor,
        table: Any,
        training: bool = False,
        epsilon: float | None = None,
    ) -> Tensor:
        """Returns log-probabilities `[..., V]` in at least float32.

        Args:
            features: `[..., E]`.
            table: `[V, E']`.
            training: whether to drop latents.
            epsilon: added to each probability; None: the head's own.
        """
        latents = self._latents(features, training)
        by_expert = ops.unstack(latents, self.experts, axis=-2)
        log_priors = self._log_priors(features)
        priors = ops.split(log_priors, self.experts, axis=-1)
        total: Any = None
        # Take one expert at a time: all of them together need K times the memory of the result.
        for prior, latent in zip(priors, by_expert, strict=True):
            logits = dense_logits(latent, table, self.bias)
            part = prior + ops.log_softmax(logits)
            total = part if total is None else log_add_exp(total, part)
        return self._plus_epsilon(total, epsilon)

    def nll(
        self,
        features: Tensor,
        targets: Tensor,
        table: Any,
        training: bool = False,
        epsilon: float | None = None,
    ) -> Tensor:
        """Returns the negative log-likelihood of each target; see `Head.nll`.

        `epsilon` is added to each probability; None: the head's own.
        """
        targets = ops.cast(broadcast_targets(targets, features), "int32")
        latents = self._latents(features, training)
        shape = checks.sizes(latents)[:-1]
        targets = ops.broadcast_to(targets[..., None], shape)
        nll = blockwise_nll(
            ops.reshape(latents, [-1, latents.shape[-1]]),
            ops.reshape(targets, [-1]),
            backend.to_tensor(table),
            backend.to_tensor(self.bias),
        )
        joint = self._log_priors(features) - ops.reshape(nll, shape)
        log_probs = ops.logsumexp(joint, axis=-1)
        return -self._plus_epsilon(log_probs, epsilon)

    def _log_priors(self, features: Tensor) -> Tensor:
        """`[..., E]` -> `[..., K]` in at least float32."""
        logits = _dense(features, self.prior_kernel, self.prior_bias)
        return ops.log_softmax(at_least_float32(logits))

    def _latents(self, features: Tensor, training: bool) -> Tensor:
        """`[..., T, E]` -> `[..., T, K, E']`."""
        latents = _dense(features, self.latent_kernel, self.latent_bias)
        *rows, steps, channels = checks.sizes(latents)
        if training and self.latent_dropout:
            seed = dropout.next_seed(self.seed_generator)
            shape = [*rows, 1, channels]
            rate = self.latent_dropout
            latents = latents * dropout.stream_mask(
                seed, "latents", rate, shape, latents.dtype
            )
        units = channels // self.experts
        shape = [*rows, steps, self.experts, units]
        return ops.reshape(backend.tanh(latents), shape)

    def _plus_epsilon(self, log_probs: Tensor, epsilon: float | None) -> Tensor:
        if epsilon is None:
            epsilon = self.epsilon
        epsilon = arguments.rate("epsilon", epsilon)
        if not epsilon:
            return log_probs
        return log_add_exp(log_probs, math.log(epsilon))

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {
            **super().get_config(),
            "experts": self.experts,
            "latent_dropout": self.latent_dropout,
            "epsilon": self.epsilon,
            "seed": self.seed,
        }


def _dense(features: Tensor, kernel: Any, bias: Any) -> Tensor:
    """Returns an affine map of features, in their dtype."""
    products = rows(features) @ ops.cast(kernel, features.dtype)
    *outer, _ = checks.sizes(features)
    products = ops.reshape(products, [*outer, products.shape[-1]])
    return products + ops.cast(bias, features.dtype)
