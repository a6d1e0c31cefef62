"""What the trellis network is compared with: a Keras LSTM language model on the same road."""

from collections.abc import Sequence

import keras
import tensorflow as tf

from keras_trellis.core import dropout as masks
from keras_trellis.heads import TiedSoftmax
from keras_trellis.models.language_model import LossTerms

State = tuple[tuple[tf.Tensor, tf.Tensor], ...]


class LSTMLanguageModel(keras.Model):
    """A stack of `keras.layers.LSTM` over tied embeddings, as TrellisLM to trainers.

    It has what the trainers use of TrellisLM: `loss_terms`, `score` and the states. An LSTM's
    state is all of its past, so that state and cache are one thing, and the reach is unbounded.

    Args:
        vocabulary_size: Number of token ids, V.
        units: Units of each layer but the last, which has `embedding_units`.
        layers: Number of LSTM layers.
        embedding_units: Width of the embedding, tied to the softmax.
        embedding_dropout: Rate at which whole words of the table are dropped.
        dropout: Rate of Keras's `dropout` of each layer: its inputs, one mask a call.
        recurrent_dropout: Rate of Keras's `recurrent_dropout` of each layer.
        output_dropout: Rate on the features of the softmax, one mask [B, 1, units] a call.
        seed: Seed of initial weights and masks.
    """

    receptive_field = None

    def __init__(
        self,
        vocabulary_size: int,
        units: int,
        layers: int,
        *,
        embedding_units: int,
        embedding_dropout: float = 0.0,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        output_dropout: float = 0.0,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        self.embedding_dropout = embedding_dropout
        self.output_dropout = output_dropout
        self.seed_generator = keras.random.SeedGenerator(seed)
        self.embedding = keras.layers.Embedding(
            vocabulary_size, embedding_units, keras.initializers.RandomUniform(-0.1, 0.1)
        )
        self.recurrent_layers = [
            keras.layers.LSTM(
                width,
                dropout=dropout,
                recurrent_dropout=recurrent_dropout,
                return_sequences=True,
                return_state=True,
                seed=None if seed is None else seed + layer,  # no two with the same masks
            )
            for layer, width in enumerate([units] * (layers - 1) + [embedding_units], 1)
        ]
        self.head = TiedSoftmax()
        self._build_parts(vocabulary_size, embedding_units)

    def _build_parts(self, vocabulary_size: int, embedding_units: int) -> None:
        self.embedding.build((None, None))
        inputs = embedding_units
        for layer in self.recurrent_layers:
            layer.build((None, None, inputs))
            inputs = layer.units
        self.head.build((None, None, inputs), (vocabulary_size, embedding_units))
        self.built = True

    def call(self, ids: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Returns the logits [B, T, V] of the token after each of ids [B, T]."""
        features, _ = self._features(ids, None, training)
        return self.head.logits(features, self.embedding.embeddings)

    def loss_terms(
        self,
        ids: tf.Tensor,
        targets: tf.Tensor,
        *,
        initial_state: State | None = None,
        training: bool = False,
        discard: int = 0,
    ) -> tuple[LossTerms, State]:
        """As `TrellisLM.loss_terms`; all terms but the prediction are zero."""
        features, states = self._features(ids, initial_state, training)
        table = self.embedding.embeddings
        nll = self.head.nll(features[:, discard:], targets[:, discard:], table)
        zero = tf.zeros((), nll.dtype)
        return LossTerms(tf.reduce_mean(nll), zero, zero, zero), states

    def score(
        self,
        ids: tf.Tensor,
        targets: tf.Tensor,
        *,
        initial_state: State | None = None,
        cache: State | None = None,
    ) -> tuple[tf.Tensor, State]:
        """Returns the nll [B, T] of targets, in nats, and the state to go on with."""
        features, states = self.stream(ids, initial_state if cache is None else cache)
        return self.head.nll(features, targets, self.embedding.embeddings), states

    def stream(self, ids: tf.Tensor, cache: State | None) -> tuple[tf.Tensor, State]:
        """Returns what the head is given, [B, T, embedding_units], and the state to go on with."""
        return self._features(ids, cache, False)

    def get_initial_state(self, batch_size: int) -> State:
        """Returns zeros (h, c), each [B, units], for each layer."""
        return tuple(
            (tf.zeros([batch_size, layer.units]), tf.zeros([batch_size, layer.units]))
            for layer in self.recurrent_layers
        )

    get_initial_cache = get_initial_state

    def _features(
        self, ids: tf.Tensor, states: State | None, training: bool
    ) -> tuple[tf.Tensor, State]:
        """Returns the last layer's outputs [B, T, embedding_units], dropped, and the states."""
        features, rate = self.embedding(ids), self.embedding_dropout
        if training and rate:
            words = self._mask((self.embedding.input_dim, 1), rate)
            features *= tf.gather(words, ids)
        states = self.get_initial_state(tf.shape(ids)[0]) if states is None else states
        carried = []
        for layer, state in zip(self.recurrent_layers, states, strict=True):
            features, hidden, cell = layer(features, initial_state=list(state), training=training)
            carried.append((hidden, cell))
        if training and self.output_dropout:
            batch, units = tf.shape(features)[0], features.shape[-1]
            features *= self._mask((batch, 1, units), self.output_dropout)
        return features, tuple(carried)

    def _mask(self, shape: Sequence[int | tf.Tensor], rate: float) -> tf.Tensor:
        return masks.dropout_mask(shape, rate, masks.next_seed(self.seed_generator), tf.float32)
