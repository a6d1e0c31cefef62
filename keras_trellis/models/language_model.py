"""TrellisLM: a language model over any sequence layer."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_trellis import arguments, heads
from keras_trellis.core import checks, dropout
from keras_trellis.layers.sequence import serialized
from keras_trellis.models import legacy, losses, sequence_layer
from keras_trellis.models.losses import (
    Features,
    LossTerms,
    OwnLoss,
    next_tokens,
    scored,
    where_valid,
)
from keras_trellis.models.streaming import Streaming
from keras_trellis.types import Tensor


@keras.saving.register_keras_serializable("keras_trellis")
class TrellisLM(Streaming, OwnLoss):
    """A language model over token ids: embedding, sequence layer, softmax.

    As a Keras model it maps ids `[B, T]` to logits `[B, T, V]` for the token after each.
    `compile()` without a loss trains the paper's whole loss, the sum of `loss_terms`, on
    `fit(ids, next_ids)`:

        layer = TrellisLayer(1400, depth=55, output_units=400, recurrent_dropout=0.28)
        model = TrellisLM(10_000, layer, embedding_units=400)
        model.compile(keras.optimizers.Adam(1e-3))
        model.fit(ids, next_ids)

    `evaluate` then reports that loss too, with dropout off. A loss given to `compile` sees the
    logits `model(ids)` alone: no auxiliary levels, no activation terms.

    Dropout. All masks are drawn once a call and scaled by 1 / (1 - rate): `embedding_dropout`
    drops whole words of the table, in the whole batch; `output_dropout` is variational, one mask
    `[B, 1, channels]` for all steps, and for the auxiliary outputs one a level. The layer has its
    own dropout. The softmax uses the table undropped.

    Ids and targets must lie in [0, vocabulary_size). XLA leaves this check out: there an id outside
    makes everything NaN that depends on it, and under `jit` of JAX the whole batch. A position is
    not scored where `mask` is False or its weight is 0; its target, and a masked id, may be
    anything.

    Args:
        vocabulary_size: V, the number of tokens.
        trellis: the layer between embedding and softmax: a `TrellisLayer`, an
            `EquilibriumTrellisLayer`, one or a list of `keras.layers.LSTM`, `GRU`, `SimpleRNN` or
            `RNN`, or any other sequence layer. It keeps its own dtype policy, seed and name. The
            model sets its `return_sequences` and `return_state`, and takes no layer with
            `stateful`, `go_backwards` or `zero_output_for_mask`.
        embedding_units: E, the size of a word vector. The tied and the adaptive softmax need as
            many output channels of the layer.
        head: `"tied"`, or a `keras_trellis.heads.Head` that belongs to this model alone.
        embedding_dropout: fraction of the vocabulary to drop from the embedding table.
        output_dropout: fraction of the output channels to drop.
        auxiliary_every: f: the outputs of every f-th level join the loss. Needs a layer with inner
            levels, as `TrellisLayer`.
        auxiliary_from: where f counts from. "bottom", as in the released code: after f, 2f, ...
            levels. "top", as in the paper's text: after L - f, L - 2f, ... of L levels.
        auxiliary_weight: weight of each of them (paper: lambda).
        activation_weight: weight of the activation term (AR: alpha).
        temporal_weight: weight of the temporal term (TAR: beta).
        embeddings_initializer: of the table; None: uniform in [-0.1, 0.1], the paper's.
        untrained_input_id: a token whose word vector learns as a target only: no gradient reaches
            it through the input. In the released code torch's `padding_idx=-1` does so to the last
            word. A negative id counts from the end.
        seed: integer that the model's dropout masks derive from; None: drawn at random.
        **kwargs: `name`, `dtype`, `trainable` of every Keras model.

    Raises:
        ValueError: an argument out of range, or one of the layer that has no meaning here.

    Source: Bai et al. (2019), section 5 and appendix B (dropout, auxiliary losses); AR and TAR:
    Merity et al. (2017), "Revisiting activation regularization for language RNNs".

    Input shape:
        ids `[B, T]`, integers in [0, V); `mask` is bool, `[B, T]`.

    Output shape:
        `[B, T, V]`, logits of the next token at each position.

    Examples:
        >>> import numpy as np
        >>> from keras_trellis import TrellisLayer, TrellisLM
        >>> layer = TrellisLayer(16, depth=4, output_units=8)
        >>> model = TrellisLM(50, layer, embedding_units=8)
        >>> ids = np.array([[3, 14, 15, 9], [2, 6, 5, 3]])
        >>> tuple(model(ids).shape)
        (2, 4, 50)

        To continue both rows until each has ten tokens:

        >>> tuple(model.generate(ids, max_length=10, seed=1).shape)
        (2, 10)
    """

    embedding_dropout: Any = dropout.Rate()
    output_dropout: Any = dropout.Rate()

    def __init__(
        self,
        vocabulary_size: int,
        trellis: keras.layers.Layer | Sequence[keras.layers.RNN],
        *,
        embedding_units: int,
        head: str | heads.Head = "tied",
        embedding_dropout: float = 0.0,
        output_dropout: float = 0.0,
        auxiliary_every: int | None = None,
        auxiliary_from: str = "bottom",
        auxiliary_weight: float = 0.0,
        activation_weight: float = 0.0,
        temporal_weight: float = 0.0,
        embeddings_initializer: Any = None,
        untrained_input_id: int | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.vocabulary_size = arguments.positive("vocabulary_size", vocabulary_size)
        self.embedding_units = arguments.positive("embedding_units", embedding_units)
        self.embedding_dropout = embedding_dropout
        self.output_dropout = output_dropout
        self.auxiliary_from = arguments.bottom_or_top("auxiliary_from", auxiliary_from)
        self.auxiliary_weight = _weight("auxiliary_weight", auxiliary_weight)
        self.activation_weight = _weight("activation_weight", activation_weight)
        self.temporal_weight = _weight("temporal_weight", temporal_weight)
        self.untrained_input_id = _token(
            "untrained_input_id", untrained_input_id, vocabulary_size
        )
        # A config keeps what was given, so that an id from the end follows another vocabulary.
        self._from_the_end = (untrained_input_id or 0) < 0
        self.seed = seed
        self.supports_masking = True
        self.seed_generator = dropout.generator_for(
            seed, self.embedding_dropout, self.output_dropout
        )
        self.embedding = self._new_embedding(embeddings_initializer)
        self.trellis = sequence_layer.prepared(
            trellis, "a language model", returns_all=True
        )
        self.auxiliary_every = sequence_layer.auxiliary_levels(
            self.trellis, auxiliary_every, self.auxiliary_from, self.auxiliary_weight
        )
        self.head = heads.get(head, dtype=self.dtype_policy, name="head")
        self._finish()

    def _new_embedding(self, initializer: Any) -> keras.layers.Embedding:
        if initializer is None:
            initializer = keras.initializers.RandomUniform(-0.1, 0.1)
        return keras.layers.Embedding(
            self.vocabulary_size,
            self.embedding_units,
            embeddings_initializer=initializer,
            dtype=self.dtype_policy,
            name="embedding",
        )

    def _finish(self) -> None:
        """Builds the model and calls it once, so that no method has to ask whether it is built."""
        self.build((None, None))
        self.head.take()
        ids = ops.zeros([1, 1], "int32")
        self(ids)  # Keras exports only what has been called
        if self.auxiliary_weight:  # an error of the layer comes now, not in training
            self._scored_features(ids, training=False)

    def build(self, ids_shape: Sequence[int | None]) -> None:
        """Creates all variables; the constructor calls it."""
        if self.built:
            return
        self.embedding.build((None, None))
        if not self.trellis.built:
            self.trellis.build((None, None, self.embedding_units))
        if not self.head.built:
            self.head.build(
                (None, None, self.trellis.output_units),
                (self.vocabulary_size, self.embedding_units),
            )

    @property
    def input_dtype(self) -> str:
        """What Keras takes ids for where it has none at hand, as in `export`."""
        return "int32"

    @property
    def receptive_field(self) -> int | None:
        """How many tokens, the present one included, a prediction depends on; None: all."""
        return self.trellis.receptive_field

    def __call__(self, ids: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls the model, as Keras does; see `call`."""
        # Keras on JAX would cut an id beyond int32 off, to another word.
        if isinstance(ids, np.ndarray) and ids.dtype.kind in "iu":
            ids = checks.integers("ids", ids)
        return super().__call__(ids, *args, **kwargs)

    def call(
        self,
        ids: Tensor,
        mask: Any = None,
        training: bool = False,
    ) -> Tensor:
        """Returns the logits of the next token at each position.

        Args:
            ids: integers `[B, T]`. Floats are cast: Keras itself calls with floats when it builds
                metrics under a distribution strategy.
            mask: None, or booleans `[B, T]`: False is skipped, as in `keras.layers.LSTM`.
            training: whether to drop.

        Returns:
            `[B, T, V]` in at least float32; log-probabilities where the head has no logits.
        """
        logits = self.step_logits(training)
        if logits is not None:
            return logits
        if keras.backend.is_float_dtype(getattr(ids, "dtype", None)):
            ids = ops.cast(ids, "int32")
        ids, mask = self.checked_tokens("ids", ids, mask)
        features = self.features(ids, training, mask=mask)
        return self.logits(features.dropped, training)

    def features(
        self,
        ids: Tensor,
        training: bool = False,
        *,
        auxiliary_every: int | None = None,
        discard: int = 0,
        depth: int | None = None,
        **how: Any,
    ) -> Features:
        """Runs whole sequences of ids `[B, T]`.

        Args:
            ids: the ids.
            training: whether to drop.
            auxiliary_every: see `TrellisLayer.call`.
            discard: how many of the first outputs to leave out.
            depth: how many levels to run; None: all.
            **how: `initial_state` and `mask` of the call.
        """
        layer = self.trellis
        if auxiliary_every is not None:
            how["auxiliary_every"] = auxiliary_every
            if self.auxiliary_from != "bottom":  # a layer need not have the argument
                how["auxiliary_from"] = self.auxiliary_from
        how |= sequence_layer.depth_argument(layer, depth)
        if discard and sequence_layer.takes(layer, "discard"):
            how["discard"] = discard
            discard = 0
        words = self.embed(ids, training)
        outputs, *state = layer(words, training=training, **how)
        auxiliary = None
        if auxiliary_every is not None:
            auxiliary = self._dropped(state.pop(), training)
        raw = outputs[:, discard:]
        return Features(raw, self._dropped(raw, training), auxiliary, tuple(state))

    def _dropped(self, outputs: Tensor, training: bool) -> Tensor:
        """Variational dropout of `[..., T, E]`: one mask for all steps."""
        if not (training and self.output_dropout):
            return outputs
        *rows, _, channels = checks.sizes(outputs)
        shape = [*rows, 1, channels]
        rate = self.output_dropout
        return outputs * self.drawn_mask("outputs", shape, rate, outputs.dtype)

    def read(
        self,
        ids: Tensor,
        cache: Any = None,
        initial_state: Any = None,
        mask: Any = None,
    ) -> tuple[Tensor, Any]:
        """Returns what the head gets for ids `[B, T]`, and what to continue with.

        Args:
            ids: the ids.
            cache: the exact past, which is continued by the next one; None: the past is
                `initial_state`.
            initial_state: a state, which is continued by the next one; None: zeros.
            mask: None, or booleans `[B, T]`.
        """
        if cache is not None:
            return self.run_chunk(ids, cache, mask)
        results = self.features(ids, initial_state=initial_state, mask=mask)
        return results.raw, results.state

    def loss_terms(
        self,
        ids: Tensor,
        targets: Tensor,
        *,
        initial_state: Any = None,
        mask: Any = None,
        sample_weight: Any = None,
        training: bool = False,
        discard: int = 0,
        depth: int | None = None,
    ) -> tuple[LossTerms, Any]:
        """Returns the terms of the paper's loss and the new state.

        Args:
            ids: integers `[B, T]`.
            targets: integers `[B, T]`, the token after each; not read where it is not scored.
            initial_state: None (zeros), or a state that an earlier call returned. Gradients flow
                through it: to carry history as the paper does, pass it through
                `keras.ops.stop_gradient`.
            mask: None, or booleans `[B, T]`; masked steps are skipped and not scored.
            sample_weight: None, or weights `[B]` or `[B, T]` of the positions; means are weighted
                means.
            training: whether to drop.
            discard: how many positions at the start are context only, not scored.
            depth: how many levels of a trellis network to run; None: all. See `TrellisLayer.call`.

        Returns:
            `LossTerms`, whose sum is the loss, and the state after the last step.

        Raises:
            ValueError: ids or targets are not tokens of the vocabulary, or the shape of `targets`,
                `mask` or `sample_weight` is not that of `ids`.
        """
        ids, mask = self.checked_tokens("ids", ids, mask)
        if ids.shape[1] is not None and discard >= ids.shape[1]:
            raise ValueError(
                f"`discard` must leave some of the {ids.shape[1]} positions to score. "
                f"Received: discard={discard}"
            )
        targets, weights = scored(self, targets, ids, mask, sample_weight)
        how = {"initial_state": initial_state, "mask": mask}
        features = self._scored_features(
            ids, training, discard=discard, depth=depth, **how
        )
        targets = targets[:, discard:]
        weights = weights[:, discard:]
        terms, totals = losses.sums(self, features, targets, weights, training)
        return losses.means(terms, totals), features.state

    def score(
        self,
        ids: Tensor,
        targets: Tensor,
        *,
        initial_state: Any = None,
        cache: Any = None,
        mask: Any = None,
        epsilon: float | None = None,
    ) -> tuple[Tensor, Any]:
        """Returns the negative log-likelihood of each target in nats, and what to continue with.

        Args:
            ids: integers `[B, T]`.
            targets: integers `[B, T]`, the token after each.
            initial_state: the paper's history, small and lossy; None: zeros.
            cache: the exact past instead: a text scored in chunks is scored as in one pass.
            mask: None, or booleans `[B, T]`; masked steps are skipped, and have nll 0.
            epsilon: what a mixture of softmaxes adds to each probability; None: its own `epsilon`.

        Returns:
            nll `[B, T]` in at least float32, and the new cache where one was given, else the new
            state.

        Raises:
            ValueError: both a state and a cache are given, ids or targets are not tokens of the
                vocabulary, the shape of `targets` or `mask` is not that of `ids`, or `epsilon` is
                given for another head.
        """
        options = _mixture_options(self.head, epsilon)
        if cache is not None and initial_state is not None:
            raise ValueError(
                "`score` takes `initial_state` or `cache`, not both. Received: both of them"
            )
        ids, mask = self.checked_tokens("ids", ids, mask)
        targets = next_tokens("targets", targets, "ids", ids)
        targets = where_valid(mask, targets)
        targets = checks.within("targets", targets, self.vocabulary_size)
        outputs, after = self.read(ids, cache, initial_state, mask)
        nll = self.nll(outputs, targets, **options)
        return where_valid(mask, nll), after

    def own_loss(
        self, data: Any, training: bool
    ) -> tuple[LossTerms, LossTerms, Tensor]:
        """Returns the sums of the loss terms of a batch, their weights, and the logits."""
        ids, targets, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        if targets is None:
            raise ValueError(
                "compile() without a loss trains the language model's own loss, which needs the "
                "next token at each position: fit(ids, targets). Received: y=None"
            )
        ids, _ = self.checked_tokens("x", ids)
        targets, weights = scored(self, targets, ids, None, sample_weight, ("y", "x"))
        features = self._scored_features(ids, training)
        terms, totals = losses.sums(self, features, targets, weights, training)
        return terms, totals, self.logits(features.dropped, training)

    def _scored_features(self, ids: Tensor, training: bool, **how: Any) -> Features:
        """Returns what the loss is made of; of inner levels, only if their loss is on."""
        if self.auxiliary_weight:
            how["auxiliary_every"] = self.auxiliary_every
        return self.features(ids, training, **how)

    def compute_output_shape(self, input_shape: Sequence[int | None]) -> tuple:
        """`[B, T]` -> `[B, T, V]`."""
        return (*input_shape, self.vocabulary_size)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        initializer = self.embedding.embeddings_initializer
        untrained = self.untrained_input_id
        if untrained is not None and self._from_the_end:
            untrained -= self.vocabulary_size
        return super().get_config() | {
            "vocabulary_size": self.vocabulary_size,
            "trellis": serialized(self.trellis),
            "embedding_units": self.embedding_units,
            "head": serialized(self.head),
            "embedding_dropout": self.embedding_dropout,
            "output_dropout": self.output_dropout,
            "auxiliary_every": self.auxiliary_every,
            "auxiliary_from": self.auxiliary_from,
            "auxiliary_weight": self.auxiliary_weight,
            "activation_weight": self.activation_weight,
            "temporal_weight": self.temporal_weight,
            "embeddings_initializer": keras.initializers.serialize(initializer),
            "untrained_input_id": untrained,
            "seed": self.seed,
        }

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Any = None
    ) -> TrellisLM:
        """Makes a model of its config, also of one that 0.1 saved."""
        return super().from_config(legacy.composed(cls, config), custom_objects)


def _token(
    name: str,
    value: Any,
    vocabulary_size: int,
) -> int | None:
    """Returns an id of the vocabulary; a negative one counts from the end, None stays."""
    if value is None:
        return None
    is_integer = isinstance(value, numbers.Integral)
    if not (is_integer and -vocabulary_size <= value < vocabulary_size):
        raise arguments.refusal(
            name, value, f"None or a token id of a vocabulary of {vocabulary_size}"
        )
    return int(value) % vocabulary_size


def _weight(name: str, value: Any) -> float:
    if not (isinstance(value, numbers.Real) and 0 <= float(value) < math.inf):
        raise arguments.refusal(name, value, "a number >= 0")
    return float(value)


def _mixture_options(head: heads.Head, epsilon: float | None) -> dict[str, Any]:
    """Returns the argument `epsilon` of a mixture's `nll`; no other head has it."""
    if epsilon is None:
        return {}
    if not isinstance(head, heads.MixtureOfSoftmaxes):
        raise ValueError(
            "`epsilon` must be None unless the head is a keras_trellis.heads.MixtureOfSoftmaxes. "
            f"Received: epsilon={epsilon!r}, head={head!r}"
        )
    return {"epsilon": epsilon}
