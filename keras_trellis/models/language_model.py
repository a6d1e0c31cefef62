"""TrellisLM: a trellis network between an embedding and a softmax that share their word vectors."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from keras_trellis import arguments, heads
from keras_trellis.core import dropout
from keras_trellis.engine.tracing import is_for_inference
from keras_trellis.layer import TrellisLayer
from keras_trellis.models import generation, inputs, layer_arguments

__all__ = ["LossTerms", "TrellisLM"]

_SEED_STREAM = 1000


class LossTerms(NamedTuple):
    """The terms of the paper's loss: scalars, weighted, each a mean over the scored positions.

    Attributes:
        prediction: nll of the targets.
        auxiliary: `auxiliary_weight` times the sum over the auxiliary levels of their nll.
        activation: `activation_weight` times the mean square of the dropped outputs (AR).
        temporal: `temporal_weight` times the mean square of the step from one raw output to the
            next (TAR).
    """

    prediction: tf.Tensor
    auxiliary: tf.Tensor
    activation: tf.Tensor
    temporal: tf.Tensor


class _Features(NamedTuple):
    """What the loss terms are made of, after `discard`."""

    raw: tf.Tensor
    dropped: tf.Tensor
    auxiliary: tf.Tensor | None
    states: Any


@keras.saving.register_keras_serializable("keras_trellis")
class TrellisLM(keras.Model):
    """A language model over token ids: embedding, `TrellisLayer`, softmax.

    As a Keras model it maps ids `[B, T]` to logits `[B, T, V]` for the token after each.
    `compile()` without a loss trains the paper's whole loss, the sum of `loss_terms`, on
    `fit(ids, next_ids)`:

        model = TrellisLM(10_000, 1400, depth=55, embedding_units=400, recurrent_dropout=0.28)
        model.compile(keras.optimizers.Adam(1e-3))
        model.fit(ids, next_ids)

    `evaluate` then reports that loss too, with dropout off. A loss given to `compile` sees the
    logits `model(ids)` alone: no auxiliary levels, no activation terms.

    Dropout. All masks are drawn once a call and scaled by 1 / (1 - rate): `embedding_dropout`
    drops whole words of the table, in the whole batch; `dropout` (input) and `output_dropout` are
    variational, one mask `[B, 1, channels]` for all steps, and for the auxiliary outputs one a
    level. The softmax uses the table undropped.

    Ids and targets must lie in [0, vocabulary_size). Outside of it they are an error, as targets
    are whose shape is not that of the ids; under XLA, which leaves assertions out, an id outside
    makes everything NaN that depends on it. Where `mask` or a weight of 0 says that a position is
    not scored, its target may be anything, and masked ids may.

    Args:
        vocabulary_size: V, the number of tokens.
        units: channels of the hidden state, the output's included.
        depth: levels of the trellis network.
        embedding_units: E, the size of a word vector.
        head: `"tied"` or a `keras_trellis.heads.Head`; one given as an object keeps its dtype, and
            belongs to this model alone.
        output_units: channels of the hidden state that the head gets. None: `embedding_units`,
            which the tied and the adaptive softmax need.
        embedding_dropout: fraction of the vocabulary to drop from the embedding table.
        output_dropout: fraction of the output channels to drop.
        auxiliary_every: f: the outputs after level i join the loss where i mod f = f - 1,
            counting from 0.
        auxiliary_weight: weight of each of them (paper: lambda).
        activation_weight: weight of the activation term (AR: alpha).
        temporal_weight: weight of the temporal term (TAR: beta).
        embeddings_initializer: of the table; None: uniform in [-0.1, 0.1], the paper's.
        untrained_input_id: a token whose word vector learns as a target only: no gradient reaches
            it through the input. The released code does so, by way of torch's `padding_idx=-1`,
            to the last word of the vocabulary. A negative id counts from the end.
        seed: integer that all dropout masks derive from; None: drawn at random.
        **kwargs: arguments of `TrellisLayer` (`kernel_size`, `dropout`, `weight_normalization`
            ...) and of every Keras model (`name`, `dtype`, `trainable`).

    Raises:
        ValueError: an argument out of range, or one of `TrellisLayer` that has no meaning here.

    Source: Bai et al. (2019), sections 4.3 (auxiliary losses, dropout) and 5; AR and TAR: Merity
    et al. (2017), "Revisiting activation regularization for language RNNs".
    """

    embedding_dropout = dropout.Rate()
    output_dropout = dropout.Rate()

    def __init__(
        self,
        vocabulary_size: int,
        units: int,
        depth: int,
        *,
        embedding_units: int,
        head: str | heads.Head = "tied",
        output_units: int | None = None,
        embedding_dropout: float = 0.0,
        output_dropout: float = 0.0,
        auxiliary_every: int | None = None,
        auxiliary_weight: float = 0.0,
        activation_weight: float = 0.0,
        temporal_weight: float = 0.0,
        embeddings_initializer: Any = None,
        untrained_input_id: int | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        layer_arguments.refuse_fixed("a language model", kwargs)
        base = {name: kwargs.pop(name) for name in ("name", "dtype", "trainable") if name in kwargs}
        super().__init__(**base)
        self.vocabulary_size = arguments.positive("vocabulary_size", vocabulary_size)
        self.embedding_units = arguments.positive("embedding_units", embedding_units)
        self.embedding_dropout = embedding_dropout
        self.output_dropout = output_dropout
        self.auxiliary_weight = _weight("auxiliary_weight", auxiliary_weight)
        self.activation_weight = _weight("activation_weight", activation_weight)
        self.temporal_weight = _weight("temporal_weight", temporal_weight)
        self.untrained_input_id = _token("untrained_input_id", untrained_input_id, vocabulary_size)
        # What follows another argument is told as it was given, so that it follows that one still.
        self._units_by_embedding = output_units is None
        self._from_the_end = (untrained_input_id or 0) < 0
        self.seed = seed
        self.supports_masking = True
        self.seed_generator = dropout.generator_for(
            seed, self.embedding_dropout, self.output_dropout
        )
        if embeddings_initializer is None:
            embeddings_initializer = keras.initializers.RandomUniform(-0.1, 0.1)
        self.embedding = keras.layers.Embedding(
            self.vocabulary_size,
            self.embedding_units,
            embeddings_initializer=embeddings_initializer,
            dtype=self.dtype_policy,
            name="embedding",
        )
        self.trellis = TrellisLayer(
            units,
            depth,
            output_units=self.embedding_units if output_units is None else output_units,
            return_sequences=True,
            seed=seed,
            dtype=self.dtype_policy,
            name="trellis",
            **kwargs,
        )
        self.auxiliary_every = _auxiliary_every(
            auxiliary_every, self.auxiliary_weight, self.trellis.depth
        )
        self.head = heads.get(head, dtype=self.dtype_policy, name="head")
        # All variables at once, so that no method has to ask whether it is the first one.
        self.build((None, None))
        self.head.take()
        # Keras exports only what has been called, and `fit` on the whole loss calls it not.
        self(tf.zeros([1, 1], tf.int32))

    def build(self, ids_shape: Sequence[int | None]) -> None:
        """Creates all variables; the constructor calls it."""
        if self.built:
            return
        self.embedding.build((None, None))
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
    def receptive_field(self) -> int:
        """How many tokens, the present one included, a prediction can depend on."""
        return self.trellis.receptive_field

    def call(self, ids: tf.Tensor, mask: Any = None, training: bool = False) -> tf.Tensor:
        """Returns the logits of the next token at each position.

        Args:
            ids: integers `[B, T]`; floats are cast, as `keras.layers.Embedding` does, because Keras
                itself calls with floats when it builds metrics under a distribution strategy.
            mask: None, or booleans `[B, T]`: False is skipped, as in `keras.layers.LSTM`.
            training: whether to drop.

        Returns:
            `[B, T, V]` in at least float32; log-probabilities where the head has no logits.
        """
        if tf.is_tensor(ids) and ids.dtype.is_floating:
            ids = tf.cast(ids, tf.int32)
        ids, mask = self._tokens("ids", ids, mask)
        outputs, _, _ = self.trellis.propagate(
            self._embed(ids, training), mask=mask, training=training
        )
        outputs = self._drop_outputs(outputs, training)
        return self.head.logits(outputs, self.embedding.embeddings, training=training)

    def compute_output_shape(self, input_shape: Sequence[int | None]) -> tuple:
        """`[B, T]` -> `[B, T, V]`."""
        return (*input_shape, self.vocabulary_size)

    def loss_terms(
        self,
        ids: tf.Tensor,
        targets: tf.Tensor,
        *,
        initial_state: Any = None,
        mask: Any = None,
        sample_weight: Any = None,
        training: bool = False,
        discard: int = 0,
    ) -> tuple[LossTerms, Any]:
        """Returns the terms of the paper's loss and the new state.

        Args:
            ids: integers `[B, T]`.
            targets: integers `[B, T]`, the token after each; not read where it is not scored.
            initial_state: None (zeros), or a state that an earlier call returned. Gradients flow
                through it: to carry history as the paper does, pass it through `tf.stop_gradient`.
            mask: None, or booleans `[B, T]`; masked steps are skipped and not scored.
            sample_weight: None, or weights `[B]` or `[B, T]` of the positions; means are weighted
                means.
            training: whether to drop.
            discard: how many positions at the start are context only, not scored.

        Returns:
            `LossTerms`, of which the sum is the loss, and the state after the last step.

        Raises:
            ValueError: ids or targets are not tokens of the vocabulary, or the shape of `targets`,
                `mask` or `sample_weight` is not that of `ids`.
        """
        ids, mask = self._tokens("ids", ids, mask)
        if ids.shape[1] is not None and discard >= ids.shape[1]:
            raise ValueError(
                f"`discard` must leave some of the {ids.shape[1]} positions to score. "
                f"Received: discard={discard}"
            )
        targets, weights = self._scored(
            inputs.integers("targets", targets), ids, mask, sample_weight
        )
        features = self._features(
            ids, initial_state=initial_state, mask=mask, training=training, discard=discard
        )
        targets, weights = targets[:, discard:], weights[:, discard:]
        sums, weights = self._loss_sums(features, targets, weights, training)
        return LossTerms(*map(tf.math.divide_no_nan, sums, weights)), features.states

    def score(
        self,
        ids: tf.Tensor,
        targets: tf.Tensor,
        *,
        initial_state: Any = None,
        cache: Any = None,
        mask: Any = None,
    ) -> tuple[tf.Tensor, Any]:
        """Returns each target's negative log-likelihood in nats, and the memory to go on with.

        Args:
            ids: integers `[B, T]`.
            targets: integers `[B, T]`, the token after each.
            initial_state: the paper's history, small and lossy; None: zeros.
            cache: the exact memory instead of it: a text scored in chunks is scored as in one pass.
            mask: None, or booleans `[B, T]`; masked steps are skipped, and have nll 0.

        Returns:
            nll `[B, T]` in at least float32, and the new cache where one was given, else the new
            state.

        Raises:
            ValueError: both kinds of memory are given, ids or targets are not tokens of the
                vocabulary, or the shape of `targets` or `mask` is not that of `ids`.
        """
        if cache is not None and initial_state is not None:
            raise ValueError(
                "`score` takes `initial_state` or `cache`, not both. Received: both of them"
            )
        ids, mask = self._tokens("ids", ids, mask)
        targets = _next_tokens("targets", inputs.integers("targets", targets), "ids", ids)
        targets = inputs.within("targets", _where_valid(mask, targets), self.vocabulary_size)
        memory: Any
        if cache is not None:
            outputs, memory = self.trellis.stream(self._embed(ids), cache, mask=mask)
        else:
            outputs, memory, _ = self.trellis.propagate(
                self._embed(ids), initial_state=initial_state, mask=mask
            )
        return _where_valid(mask, self._nll(outputs, targets)), memory

    def get_initial_state(self, batch_size: int) -> Any:
        """Returns the state of no history: a list of zeros `[B, units]`."""
        return self.trellis.get_initial_state(batch_size)

    def get_initial_cache(self, batch_size: int) -> Any:
        """Returns the cache of no history, for `score`, `prefill` and `step`."""
        return self.trellis.get_initial_cache(batch_size)

    def stream(self, ids: tf.Tensor, cache: Any, mask: Any = None) -> tuple[tf.Tensor, Any]:
        """Returns what the head is given at each step: `[B, T, output_units]`, and the new cache.

        Args:
            ids: integers `[B, T]`.
            cache: from `get_initial_cache`, or of what came before.
            mask: None, or booleans `[B, T]`; masked steps are skipped.
        """
        ids, mask = self._tokens("ids", ids, mask)
        return self.trellis.stream(self._embed(ids), cache, mask=mask)

    def prefill(self, ids: tf.Tensor, cache: Any, mask: Any = None) -> tuple[tf.Tensor, Any]:
        """Reads a chunk of text at once.

        Args:
            ids: integers `[B, T]`, T >= 1.
            cache: from `get_initial_cache`, or of what came before.
            mask: None, or booleans `[B, T]` with at least one True a row: False is padding.

        Returns:
            log-probabilities `[B, V]` of the token after each row's last valid one, and the new
            cache.
        """
        ids, mask = self._tokens("ids", ids, mask)
        return self._read(_begun("ids", ids), cache, mask)

    def step(self, ids: tf.Tensor, cache: Any) -> tuple[tf.Tensor, Any]:
        """Reads one token a row, at a cost that does not grow with the text.

        Args:
            ids: integers `[B]`.
            cache: of what came before.

        Returns:
            log-probabilities `[B, V]` of the next token, and the new cache.
        """
        ids = inputs.with_shape("ids", inputs.integers("ids", ids), [None], "of shape [B]")
        return self._advance(inputs.within("ids", ids, self.vocabulary_size), cache)

    def _read(self, ids: tf.Tensor, cache: Any, mask: Any = None) -> tuple[tf.Tensor, Any]:
        """As `prefill`, of ids that have been checked."""
        outputs, cache = self.trellis.stream(self._embed(ids), cache, mask=mask)
        # A masked step has the output of the valid one before it, so the last is right for every
        # row.
        return self.head.log_probs(outputs[:, -1], self.embedding.embeddings), cache

    def _advance(self, ids: tf.Tensor, cache: Any) -> tuple[tf.Tensor, Any]:
        """As `step`, of ids that have been checked."""
        return self._read(ids[:, None], cache)

    def generate(
        self,
        ids: tf.Tensor,
        max_length: int,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        stop_token_ids: int | Collection[int] | tf.Tensor | None = None,
        forbidden_ids: int | Collection[int] | tf.Tensor | None = None,
        strip_prompt: bool = False,
    ) -> tf.Tensor:
        """Continues prompts of equal length.

        The same arguments and seed give the same text; a row's text does not depend on the rows
        after it.

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
        ids, _ = self._tokens("ids", ids)
        ids = generation.prompts(ids, max_length)
        length = tf.shape(ids)[1] if ids.shape[1] is None else ids.shape[1]
        seeds = generation.row_seeds(seed, tf.shape(ids)[0])
        if ids.shape[1] == max_length:
            return ids[:, :0] if strip_prompt else ids
        continuation = self._continuation()(
            ids,
            tf.convert_to_tensor(max_length - length),
            seeds,
            tf.constant(temperature, tf.float32),
            None if top_k is None else tf.constant(min(top_k, self.vocabulary_size)),
            None if top_p is None else tf.constant(top_p, tf.float32),
            stops,
            forbidden,
        )
        # A draw is made even where the prompt, of unknown length, has all that was asked for.
        text = tf.concat([ids, continuation], axis=1)[:, :max_length]
        text = tf.ensure_shape(text, [None, max_length])
        return text[:, length:] if strip_prompt else text

    def _continuation(self) -> Any:
        """The graph behind `generate`, the length of the result does not retrace it."""
        if getattr(self, "_continuation_function", None) is None:
            self._continuation_function = tf.function(self._continue, reduce_retracing=True)
        return self._continuation_function

    def _continue(
        self, ids, steps, seeds, temperature, top_k, top_p, stop_token_ids, forbidden_ids
    ):
        cache = self.get_initial_cache(tf.shape(ids)[0])
        log_probs, cache = self._read(ids, cache)
        tokens, _, _ = generation.generate(
            self._advance,
            log_probs,
            cache,
            steps=steps,
            seeds=seeds,
            first=cache.steps,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            stop_token_ids=stop_token_ids,
            forbidden_ids=forbidden_ids,
        )
        return tokens

    def train_step(self, data: Any) -> dict[str, Any]:
        """One step of `fit`: on the loss given to `compile`, else on the model's own whole loss."""
        if self.loss is not None:
            return super().train_step(data)
        with tf.GradientTape() as tape:
            loss, logits = self._whole_loss(data, training=True)
            scaled = self.optimizer.scale_loss(loss)
        variables = self.trainable_variables
        if variables:
            gradients = tape.gradient(scaled, variables)
            self.optimizer.apply_gradients(zip(gradients, variables, strict=True))
        else:
            warnings.warn(  # as every Keras model does
                "The model has no trainable weights, so that `fit` changes nothing. "
                "Received: trainable=False",
                stacklevel=2,
            )
        return self._update_metrics(data, loss, logits)

    def test_step(self, data: Any) -> dict[str, Any]:
        """One step of `evaluate`: the loss that `train_step` trains, with dropout off."""
        if self.loss is not None:
            return super().test_step(data)
        return self._update_metrics(data, *self._whole_loss(data, training=False))

    def _whole_loss(self, data: Any, training: bool) -> tuple[tf.Tensor, tf.Tensor]:
        """This replica's share of the loss of a batch, and the logits.

        Nothing but metrics reads the logits; without any, the graph is pruned of them.
        """
        ids, targets, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        if targets is None:
            raise ValueError(
                "compile() without a loss trains the language model's own loss, which needs the "
                "next token at each position: fit(ids, targets). Received: y=None"
            )
        ids, _ = self._tokens("x", ids)
        targets, weights = self._scored(
            inputs.integers("y", targets), ids, None, sample_weight, names=("y", "x")
        )
        features = self._features(ids, training=training)
        sums, weights = self._loss_sums(features, targets, weights, training)
        terms = map(tf.math.divide_no_nan, sums, map(_global_sum, weights))
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        penalties = [heads.at_least_float32(penalty) / replicas for penalty in self.losses]
        logits = self.head.logits(features.dropped, self.embedding.embeddings, training=training)
        return tf.add_n([*terms, *penalties]), logits

    def _update_metrics(self, data: Any, loss: tf.Tensor, logits: tf.Tensor) -> dict[str, Any]:
        ids, targets, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(_global_sum(loss), sample_weight=tf.shape(ids)[0])
        return self.compute_metrics(ids, targets, logits, sample_weight=sample_weight)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        head = keras.saving.serialize_keras_object(self.head)
        head.pop("build_config", None)  # the model builds it, for its own sizes
        config = {
            "vocabulary_size": self.vocabulary_size,
            "embedding_units": self.embedding_units,
            "head": head,
            "embedding_dropout": self.embedding_dropout,
            "output_dropout": self.output_dropout,
            "auxiliary_every": self.auxiliary_every,
            "auxiliary_weight": self.auxiliary_weight,
            "activation_weight": self.activation_weight,
            "temporal_weight": self.temporal_weight,
            "embeddings_initializer": keras.initializers.serialize(
                self.embedding.embeddings_initializer
            ),
            "output_units": None if self._units_by_embedding else self.trellis.output_units,
            "untrained_input_id": self._given_untrained_input_id(),
            "seed": self.seed,
        }
        return {**super().get_config(), **layer_arguments.config_of(self.trellis), **config}

    def _given_untrained_input_id(self) -> int | None:
        token = self.untrained_input_id
        return token if token is None or not self._from_the_end else token - self.vocabulary_size

    def _tokens(self, name: str, value: Any, mask: Any = None) -> tuple[tf.Tensor, Any]:
        """Returns tokens `[B, T]`, zeros where they are masked, and the mask, both checked."""
        ids = inputs.with_shape(name, inputs.integers(name, value), [None, None], "of shape [B, T]")
        if mask is not None:
            mask = inputs.with_shape("mask", mask, inputs.sizes(ids), f"of the shape of `{name}`")
        return inputs.within(name, _where_valid(mask, ids), self.vocabulary_size), mask

    def _embed(self, ids: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Word vectors `[B, T, E]` in the compute dtype; in training, without the words dropped."""
        embedded = self.embedding(ids)
        if not is_for_inference():
            # Under XLA, and on an accelerator, a lookup outside of the table is some vector.
            known = tf.expand_dims((ids >= 0) & (ids < self.vocabulary_size), -1)
            embedded = tf.where(known, embedded, tf.constant(float("nan"), embedded.dtype))
        if self.untrained_input_id is not None:
            untrained = tf.expand_dims(ids == self.untrained_input_id, -1)
            embedded = tf.where(untrained, tf.stop_gradient(embedded), embedded)
        if not (training and self.embedding_dropout):
            return embedded
        words = self._mask((self.vocabulary_size, 1), self.embedding_dropout, embedded.dtype)
        return embedded * tf.gather(words, ids)

    def _drop_outputs(self, outputs: tf.Tensor, training: bool) -> tf.Tensor:
        """Variational dropout of `[..., T, E]`: one mask for all steps."""
        if not (training and self.output_dropout):
            return outputs
        *rows, _, channels = tf.unstack(tf.shape(outputs), num=outputs.shape.rank)
        shape = [*rows, 1, channels]
        return outputs * self._mask(shape, self.output_dropout, outputs.dtype)

    def _mask(self, shape: Any, rate: float, dtype: tf.DType) -> tf.Tensor:
        # The layer's generator may start from the same seed: folding sets the two apart.
        seed = dropout.fold_in(dropout.next_seed(self.seed_generator), _SEED_STREAM)
        return dropout.dropout_mask(shape, rate, seed, dtype)

    def _nll(self, features: tf.Tensor, targets: tf.Tensor, training: bool = False) -> tf.Tensor:
        return self.head.nll(features, targets, self.embedding.embeddings, training=training)

    def _features(
        self,
        ids: Any,
        *,
        initial_state: Any = None,
        mask: Any = None,
        training: bool = False,
        discard: int = 0,
    ) -> _Features:
        raw, states, auxiliary = self.trellis.propagate(
            self._embed(ids, training),
            initial_state=initial_state,
            mask=mask,
            training=training,
            auxiliary_every=self.auxiliary_every if self.auxiliary_weight else None,
            discard=discard,
        )
        if auxiliary is not None:
            auxiliary = self._drop_outputs(auxiliary, training)
        return _Features(raw, self._drop_outputs(raw, training), auxiliary, states)

    def _scored(
        self,
        targets: tf.Tensor,
        ids: tf.Tensor,
        mask: Any,
        sample_weight: Any,
        names: tuple[str, str] = ("targets", "ids"),
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the targets, 0 where they are not scored, and their weights, both `[B, T]`."""
        targets = _next_tokens(names[0], targets, names[1], ids)
        dtype = tf.float64 if self.compute_dtype == "float64" else tf.float32
        weights = _where_valid(mask, _position_weights(sample_weight, ids, names[1], dtype))
        targets = _where_valid(weights != 0, targets)
        return inputs.within(names[0], targets, self.vocabulary_size), weights

    def _loss_sums(
        self, features: _Features, targets: tf.Tensor, weights: tf.Tensor, training: bool
    ) -> tuple[LossTerms, LossTerms]:
        """The loss terms as weighted sums over positions, and the sums of those weights.

        Sums, because a mean over all replicas is not the mean of the replicas' means.
        """
        raw, dropped, auxiliary, _ = features
        pairs = tf.minimum(weights[:, 1:], weights[:, :-1])
        sums = dict.fromkeys(LossTerms._fields, tf.zeros((), weights.dtype))
        sums["prediction"] = tf.reduce_sum(weights * self._nll(dropped, targets, training))
        if auxiliary is not None:
            nll = self._nll(auxiliary, targets[:, None], training)
            sums["auxiliary"] = self.auxiliary_weight * tf.reduce_sum(weights[:, None] * nll)
        if self.activation_weight:
            sums["activation"] = self.activation_weight * tf.reduce_sum(
                weights * _mean_square(dropped)
            )
        if self.temporal_weight:
            sums["temporal"] = self.temporal_weight * tf.reduce_sum(
                pairs * _mean_square(raw[:, 1:] - raw[:, :-1])
            )
        total = tf.reduce_sum(weights)
        return LossTerms(**sums), LossTerms(total, total, total, tf.reduce_sum(pairs))


def _next_tokens(name: str, targets: tf.Tensor, ids_name: str, ids: tf.Tensor) -> tf.Tensor:
    """Returns targets, which must be as many as ids."""
    return inputs.with_shape(
        name,
        targets,
        inputs.sizes(ids),
        f"of the shape of `{ids_name}`, the token after each of them: of a text, text[:, :-1] and "
        "text[:, 1:]",
    )


def _begun(name: str, ids: tf.Tensor) -> tf.Tensor:
    """Returns ids `[B, T]`, which must have a step at least."""
    if ids.shape[1] == 0:
        raise ValueError(
            f"`{name}` must have at least one token a row. "
            f"Received: {name} of shape {tuple(ids.shape)}"
        )
    return ids


def _token(name: str, value: Any, vocabulary_size: int) -> int | None:
    """Returns an id of the vocabulary; a negative one counts from the end, None stays."""
    if value is None:
        return None
    if not (
        isinstance(value, numbers.Integral) and -vocabulary_size <= int(value) < vocabulary_size
    ):
        raise ValueError(
            f"`{name}` must be None or a token id of a vocabulary of {vocabulary_size}. "
            f"Received: {name}={value!r}"
        )
    return int(value) % vocabulary_size


def _where_valid(mask: Any, values: tf.Tensor) -> tf.Tensor:
    """Zeros where the mask says so: what stands in padding, be it -1, must reach nothing."""
    return values if mask is None else tf.where(tf.cast(mask, tf.bool), values, 0)


def _mean_square(values: tf.Tensor) -> tf.Tensor:
    """`[..., E]` -> `[...]` in at least float32."""
    return tf.reduce_mean(tf.square(heads.at_least_float32(values)), axis=-1)


def _position_weights(
    sample_weight: Any, ids: tf.Tensor, ids_name: str, dtype: tf.DType
) -> tf.Tensor:
    """How much each position counts, `[B, T]`."""
    rows, steps = inputs.sizes(ids)
    ones = tf.ones([rows, steps], dtype)
    if sample_weight is None:
        return ones
    weights = tf.cast(sample_weight, dtype)
    expected = f"of shape [B], or of that of `{ids_name}`, [B, T]"
    if weights.shape.rank in (0, 1):
        weights = inputs.with_shape("sample_weight", weights, [rows], expected)
    if weights.shape.rank in (1, None):  # Keras makes one graph for all ranks, and tells none
        weights = tf.reshape(weights, [rows, -1])
    columns = inputs.sizes(weights)[1]
    if tf.is_tensor(columns):
        columns = tf.where(columns == 1, 1, steps)
    elif columns != 1:
        columns = steps
    return ones * inputs.with_shape("sample_weight", weights, [rows, columns], expected)


def _global_sum(value: tf.Tensor) -> tf.Tensor:
    """The sum over all replicas, where this is one of several."""
    replica = tf.distribute.get_replica_context()
    if replica is None or replica.num_replicas_in_sync == 1:
        return value
    return replica.all_reduce(tf.distribute.ReduceOp.SUM, value)


def _auxiliary_every(every: int | None, weight: float, depth: int) -> int | None:
    if every is not None and weight:
        return arguments.at_most("auxiliary_every", every, "depth", depth)
    if every is not None:  # it says nothing to a loss that is off, whatever the depth
        return arguments.positive("auxiliary_every", every)
    if weight:
        raise ValueError(
            "`auxiliary_weight` needs `auxiliary_every`, which says which levels it is for. "
            f"Received: auxiliary_weight={weight!r}, auxiliary_every=None"
        )
    return None


def _weight(name: str, value: Any) -> float:
    if not (isinstance(value, numbers.Real) and 0 <= float(value) < float("inf")):
        raise ValueError(f"`{name}` must be a number >= 0. Received: {name}={value!r}")
    return float(value)
