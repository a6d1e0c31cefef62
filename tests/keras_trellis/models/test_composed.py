"""Models over any sequence layer: Keras's recurrent ones, an equilibrium, a user's own."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from numpy.testing import assert_allclose, assert_array_equal

from keras_trellis import (
    EquilibriumTrellisLayer,
    RecurrentLayer,
    TrellisClassifier,
    TrellisLayer,
    TrellisLM,
)
from tests.refusals import refuses

V, E, B, T = 7, 4, 2, 6
TEXT = np.tile(np.arange(V), 3)[None].repeat(B, 0)
IDS, TARGETS = TEXT[:, :T], TEXT[:, 1 : T + 1]
LAYERS = {
    "a stack": lambda: [layers.GRU(5), layers.LSTM(E)],
    "equilibrium": functools.partial(EquilibriumTrellisLayer, E, seed=1),
    "trellis": functools.partial(TrellisLayer, E, 3),
}


@pytest.fixture(scope="module", params=LAYERS)
def trained(request):
    """A language model after some steps of `fit`, and its losses."""
    keras.utils.set_random_seed(0)
    model = TrellisLM(V, LAYERS[request.param](), embedding_units=E)
    model.compile(keras.optimizers.Adam(0.05), jit_compile=False)
    history = model.fit(TEXT[:, :-1], TEXT[:, 1:], epochs=25, verbose=0).history
    return model, history["loss"]


def test_it_learns(trained):
    _, losses = trained
    assert losses[-1] < 0.8 * losses[0]


def test_it_writes_what_it_scores_best(trained):
    model, _ = trained
    text = IDS
    for _ in range(3):
        best = np.argmax(model(text)[:, -1], -1)
        text = np.concatenate([text, best[:, None]], axis=1)
    assert_array_equal(model.generate(IDS, T + 3, temperature=0), text)
    drawn = model.generate(IDS, T + 3, seed=1)
    assert_array_equal(model.generate(IDS, T + 3, seed=1), drawn)


def test_it_reads_on_from_a_state_and_from_a_cache(trained):
    model, _ = trained
    whole, _ = model.score(IDS, TARGETS)
    first, cache = model.score(
        IDS[:, :2], TARGETS[:, :2], cache=model.get_initial_cache(B)
    )
    second, _ = model.score(IDS[:, 2:], TARGETS[:, 2:], cache=cache)
    assert_allclose(tf.concat([first, second], 1), whole, atol=1e-3)
    _, state = model.score(IDS, TARGETS)
    nll, after = model.score(IDS, TARGETS, initial_state=state)
    terms, expected = model.loss_terms(IDS, TARGETS, initial_state=state)
    assert_allclose(terms.prediction, np.mean(nll), rtol=1e-4)
    assert_allclose(after[0], expected[0], atol=1e-6)


def test_discarded_positions_are_context(trained):
    model, _ = trained
    nll, _ = model.score(IDS, TARGETS)
    terms, _ = model.loss_terms(IDS, TARGETS, discard=2)
    assert_allclose(terms.prediction, np.mean(nll[:, 2:]), rtol=1e-4)


def test_a_model_sets_what_its_layer_returns():
    layer = TrellisLayer(E, 2)
    TrellisLM(V, layer, embedding_units=E)
    assert layer.return_sequences and layer.return_state
    layer = TrellisLayer(E, 2, return_sequences=True)
    TrellisClassifier(3, layer)
    assert not layer.return_sequences
    assert isinstance(TrellisClassifier(3, [layers.GRU(E)] * 1).trellis, RecurrentLayer)


def test_the_activity_regularizer_of_the_layer_counts_in_the_loss():
    regularizer = keras.regularizers.L2(0.1)
    layer = TrellisLayer(E, 2, activity_regularizer=regularizer)
    model = TrellisLM(V, layer, embedding_units=E)
    model.compile(jit_compile=False)
    terms, _ = model.loss_terms(IDS, TARGETS)
    # Of the outputs and the state.
    penalty = sum(map(regularizer, layer(model.embedding(IDS)))) / B
    assert penalty > 1e-4
    loss = model.evaluate(IDS, TARGETS, batch_size=B, verbose=0)
    assert loss == pytest.approx(float(sum(terms) + penalty), rel=1e-5)


def test_a_layer_keeps_its_own_precision():
    layer = TrellisLayer(E, 2, dtype="mixed_bfloat16")
    model = TrellisLM(V, layer, embedding_units=E)
    assert model(IDS).dtype == tf.float32
    assert model.get_initial_state(1)[0].dtype == tf.bfloat16
    assert TrellisLM.from_config(model.get_config()).trellis.compute_dtype == "bfloat16"


class Mean(layers.Layer):
    """A sequence layer of a user's own: the mean so far."""

    output_units, receptive_field = E, None
    return_sequences = return_state = False

    def call(self, sequences, initial_state=None, mask=None, training=False):
        state = self.get_initial_cache(tf.shape(sequences)[0])
        outputs, state = self.stream(sequences, initial_state or state, mask)
        outputs = outputs if self.return_sequences else outputs[:, -1]
        return (outputs, *state) if self.return_state else outputs

    def get_initial_state(self, batch_size):
        return [tf.zeros([batch_size, E]), tf.zeros([batch_size, 1])]

    get_initial_cache = get_initial_state

    def stream(self, sequences, cache, mask=None):
        total, count = cache
        valid = tf.ones_like(sequences[..., :1])
        if mask is not None:
            valid = tf.cast(mask, sequences.dtype)[..., None]
        sums = total[:, None] + tf.cumsum(sequences * valid, axis=1)
        counts = count[:, None] + tf.cumsum(valid, axis=1)
        return sums / tf.maximum(counts, 1), (sums[:, -1], counts[:, -1])


def test_a_layer_of_a_users_own():
    model = TrellisLM(V, Mean(), embedding_units=E)
    means = np.cumsum(model.embedding(IDS), axis=1) / np.arange(1, T + 1)[:, None]
    expected = means @ np.asarray(model.embedding.embeddings).T
    assert_allclose(model(IDS), expected, atol=1e-6)
    assert model.generate(IDS, T + 2, temperature=0).shape == (B, T + 2)
    nll, _ = model.score(IDS, TARGETS)
    terms, _ = model.loss_terms(IDS, TARGETS, discard=2)  # the model slices
    assert_allclose(terms.prediction, np.mean(nll[:, 2:]), rtol=1e-5)


@pytest.mark.parametrize("model", [functools.partial(TrellisLM, V, embedding_units=E)])
@pytest.mark.parametrize(
    "layer, message",
    [
        (layers.Dense(E), "`trellis` must be a sequence layer.*<Dense"),
        ("lstm", "`trellis` must be a sequence layer.*'lstm'"),
        (
            TrellisLayer(E, 2, stateful=True),
            "`stateful` of the layer must be False in a lang.*'tr",
        ),
        (
            TrellisLayer(E, 2, go_backwards=True),
            "`go_backwards` of the layer must be False",
        ),
        (layers.LSTM(E, zero_output_for_mask=True), "zero_output_for_mask=False"),
        (TrellisLayer(E + 1, 2), f"output_units={E + 1}, embedding_units={E}"),
    ],
)
def test_bad_layers(model, layer, message):
    with refuses(message):
        model(trellis=layer)


@pytest.mark.parametrize(
    "layer, message",
    [
        (EquilibriumTrellisLayer(E), "inner levels.*=0.1, trellis=<EquilibriumTrellis"),
        (layers.LSTM(E), "inner levels.*=0.1, trellis=<RecurrentLayer"),
        (Mean(), "outputs of inner levels.*auxiliary_weight=0.1, trellis=<Mean"),
    ],
)
def test_a_layer_without_inner_levels_has_no_auxiliary_loss(layer, message):
    with refuses(message):
        TrellisLM(V, layer, embedding_units=E, auxiliary_every=1, auxiliary_weight=0.1)
    how = dict(embedding_units=E, auxiliary_every=1, auxiliary_weight=0.1)
    with refuses(message):
        TrellisLM(V, layer, **how, auxiliary_from="top")
    with refuses(r"`depth` must be None.*depth=1"):
        TrellisLM(V, layer, embedding_units=E).loss_terms(IDS, IDS, depth=1)


class Levels(Mean):
    """A layer of a user's own that returns the outputs of inner levels, from the bottom."""

    def call(
        self,
        sequences,
        initial_state=None,
        mask=None,
        training=False,
        auxiliary_every=None,
    ):
        return super().call(sequences, initial_state, mask, training)


def test_only_a_layer_that_can_count_from_the_top_is_asked_to():
    how = dict(embedding_units=E, auxiliary_every=2, auxiliary_weight=0.1)
    assert TrellisLM(V, Levels(), **how).auxiliary_every == 2
    with refuses("whose call takes `auxiliary_from`"):
        TrellisLM(V, Levels(), **how, auxiliary_from="top")
