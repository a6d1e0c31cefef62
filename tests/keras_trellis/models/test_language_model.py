"""TrellisLM: its loss terms against NumPy, its memories against one pass, its life in Keras."""

import functools
import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import keras_trellis
from keras_trellis import TrellisLayer, TrellisLM, heads
from tests.refusals import refuses

V, UNITS, E, DEPTH, B, T = 13, 8, 5, 2, 3, 7
DROPOUTS = {
    "embedding_dropout": 0.3,
    "dropout": 0.2,
    "recurrent_dropout": 0.2,
    "weight_dropout": 0.2,
    "output_dropout": 0.4,
}
WHOLE_LOSS = {
    "auxiliary_every": 1,
    "auxiliary_weight": 0.3,
    "activation_weight": 2.0,
    "temporal_weight": 1.0,
}


OF_THE_LAYER = {
    "dilation_rate",
    "dropout",
    "gate",
    "kernel_regularizer",
    "kernel_size",
    "output_units",
    "recurrent_dropout",
    "stateful",
    "unit_forget_bias",
    "weight_dropout",
}


def make(depth=DEPTH, **arguments):
    """A model in float64 with random variables."""
    arguments = {"embedding_units": E, "dtype": "float64", **arguments}
    of_layer = {name: arguments.pop(name) for name in OF_THE_LAYER & arguments.keys()}
    of_layer = {"output_units": E, **of_layer}
    of_layer |= {name: arguments[name] for name in {"dtype", "seed"} & arguments.keys()}
    layer = TrellisLayer(UNITS, depth, name="trellis", **of_layer)
    model = TrellisLM(V, layer, **arguments)
    rng = np.random.default_rng(0)
    for variable in model.trainable_variables:
        variable.assign(0.5 * rng.normal(size=variable.shape))
    return model


def draw_text(batch=B, steps=T, seed=1):
    text = np.random.default_rng(seed).integers(0, V, (batch, steps + 1))
    return text[:, :-1], text[:, 1:]


IDS, TARGETS = draw_text()
UNKNOWN = tf.TensorSpec([None, None], tf.int64)


@pytest.fixture(scope="module")
def random_model():
    """One for tests that do not change it, with its graphs."""
    return make()


@pytest.fixture(scope="module")
def trained():
    """A model whose `fit` and `evaluate` have been traced."""
    model = make()
    model.compile(keras.optimizers.SGD(0.0), jit_compile=False)
    model.fit(IDS, TARGETS, verbose=0)
    return model


def log_softmax(logits):
    return np.asarray(tf.nn.log_softmax(logits))


def nll_of(logits, targets):
    return -np.take_along_axis(log_softmax(logits), targets[..., None], -1)[..., 0]


# The loss


@pytest.mark.parametrize(
    "discard, counted_from, levels", [(0, "bottom", (2, 4)), (3, "top", (2,))]
)
def test_loss_terms_against_numpy(discard, counted_from, levels):
    """Loss = nll + lambda sum_levels nll + alpha mean(h^2) + beta mean((h_{t+1} - h_t)^2)."""
    whole_loss = WHOLE_LOSS | {"auxiliary_every": 2, "auxiliary_from": counted_from}
    model = make(4, **whole_loss)
    words = model.embedding(IDS)
    outputs, states, _ = model.trellis.propagate(words, discard=discard)
    inner = [
        model.trellis.propagate(words, discard=discard, depth=level)[0]
        for level in levels
    ]
    table, bias = model.embedding.embeddings.numpy(), model.head.bias.numpy()
    targets = TARGETS[:, discard:]
    expected = keras_trellis.LossTerms(
        prediction=nll_of(outputs @ table.T + bias, targets).mean(),
        auxiliary=0.3
        * sum(nll_of(each @ table.T + bias, targets).mean() for each in inner),
        activation=2.0 * np.mean(np.square(outputs)),
        temporal=1.0 * np.mean(np.square(np.diff(outputs, axis=1))),
    )
    terms, new_states = model.loss_terms(IDS, TARGETS, discard=discard)
    assert_allclose(terms, expected, rtol=1e-12)
    assert_array_equal(new_states[0], states[0])


def test_weights_and_masks_choose_the_scored_positions():
    model = make(**WHOLE_LOSS)
    weight = np.ones((B, T))
    weight[:, 5:] = 0
    padded = np.where(weight, TARGETS, -1)
    expected, _ = model.loss_terms(IDS[:, :5], TARGETS[:, :5])
    for arguments in ({"sample_weight": weight}, {"mask": weight > 0}):
        terms, _ = model.loss_terms(IDS, padded, **arguments)
        assert_allclose(terms, expected, rtol=1e-12)
    terms, _ = model.loss_terms(IDS, TARGETS, sample_weight=[1, 0, 0])
    assert_allclose(terms, model.loss_terms(IDS[:1], TARGETS[:1])[0], rtol=1e-12)
    terms, _ = model.loss_terms(IDS, TARGETS, sample_weight=np.zeros((B, T)))
    assert_array_equal(terms, 0)


def test_every_term_is_a_weighted_mean():
    model = make(**WHOLE_LOSS)
    weights = np.array([0.5, 1.0, 0.25])
    rows = [model.loss_terms(IDS[b : b + 1], TARGETS[b : b + 1])[0] for b in range(B)]
    terms, _ = model.loss_terms(IDS, TARGETS, sample_weight=weights)
    assert_allclose(terms, weights @ np.array(rows) / weights.sum(), rtol=1e-12)


def test_masks_of_integers():
    model = make(**WHOLE_LOSS)
    mask = np.arange(T) < [[T], [3], [5]]
    assert_array_equal(
        model.loss_terms(IDS, TARGETS, mask=mask.astype(int))[0],
        model.loss_terms(IDS, TARGETS, mask=mask)[0],
    )


def test_one_step_has_no_temporal_term():
    terms, _ = make(**WHOLE_LOSS).loss_terms(IDS[:, :1], TARGETS[:, :1])
    assert terms.temporal == 0 and np.isfinite(terms.prediction)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16", "float32"])
def test_the_loss_is_float32_or_better(policy):
    model = make(dtype=policy, **WHOLE_LOSS)
    terms, states = model.loss_terms(IDS, TARGETS)
    assert {term.dtype for term in terms} == {tf.float32}
    assert states[0].dtype == model.compute_dtype
    assert model(IDS).dtype == tf.float32
    reference = make(**WHOLE_LOSS)
    assert_allclose(terms, reference.loss_terms(IDS, TARGETS)[0], rtol=0.05)


def test_no_gradient_reaches_an_untrained_input():
    ids = np.array([[V - 1, 2]])
    gradients = []
    for untrained in (None, V - 1, -1):
        model = make(untrained_input_id=untrained, dtype="float64")
        with tf.GradientTape() as tape:
            embedded = tf.reduce_sum(model.trellis(model.embed(tf.constant(ids)))[0])
        gradients.append(
            tf.convert_to_tensor(
                tape.gradient(embedded, model.embedding.embeddings.value)
            )
        )
    assert np.any(gradients[0][V - 1] != 0) and np.all(gradients[1][V - 1] == 0)
    assert_array_equal(gradients[0][2], gradients[1][2])
    assert_array_equal(gradients[1], gradients[2])


# Heads

HEADS = {
    "tied": heads.TiedSoftmax,
    "mixture": functools.partial(heads.MixtureOfSoftmaxes, 3),
    "adaptive": functools.partial(heads.AdaptiveSoftmax, (4, 7)),
}


@pytest.mark.parametrize("head", HEADS)
def test_loss_terms_of_a_head_against_its_distribution(head):
    model = make(head=HEADS[head](dtype="float64"), **WHOLE_LOSS)
    table = model.embedding.embeddings.numpy()
    outputs, _, auxiliary = model.trellis.propagate(
        model.embedding(IDS), auxiliary_every=1, discard=2
    )
    log_probs, of_levels = (
        model.head.log_probs(each, table) for each in (outputs, auxiliary)
    )
    terms, _ = model.loss_terms(IDS, TARGETS, discard=2)
    assert_allclose(np.exp(log_probs).sum(-1), 1)
    assert_allclose(terms.prediction, nll_of(log_probs, TARGETS[:, 2:]).mean())
    expected = sum(nll_of(of_levels[:, i], TARGETS[:, 2:]).mean() for i in range(2))
    assert_allclose(terms.auxiliary, 0.3 * expected)


@pytest.mark.parametrize("head", HEADS)
def test_fit_learns_alike_with_and_without_xla(head):
    arguments = {"latent_dropout": 0.2, "seed": 5} if head == "mixture" else {}
    losses = []
    for jit_compile in (False, True):
        whole = HEADS[head](dtype="float64", **arguments)
        model = make(head=whole, seed=3, **WHOLE_LOSS, **DROPOUTS)
        model.compile(keras.optimizers.SGD(0.1), jit_compile=jit_compile)
        history = model.fit(IDS, TARGETS, epochs=3, verbose=0, shuffle=False).history
        losses.append(history["loss"])
    assert_allclose(*losses, rtol=1e-6)
    assert losses[0][-1] < losses[0][0]


def test_a_mixture_takes_features_of_any_size():
    head = heads.MixtureOfSoftmaxes(2, dtype="float64")
    assert make(head=head, output_units=UNITS)(IDS).shape == (B, T, V)


# Dropout


def test_embedding_dropout_drops_whole_words_of_the_batch():
    model = make(embedding_dropout=0.5, seed=3)
    ids = np.tile(np.arange(V), (2, 2))
    embedded = np.asarray(model.embed(tf.constant(ids), training=True)).reshape(4, V, E)
    table = model.embedding.embeddings.numpy()
    assert_array_equal(embedded, np.broadcast_to(embedded[0], embedded.shape))
    kept = np.any(embedded[0] != 0, axis=-1)
    assert 0 < kept.sum() < V
    assert_allclose(embedded[0][kept], 2 * table[kept])


def test_output_dropout_is_variational():
    """One mask for all steps, another one for each row and level."""
    model = make(output_dropout=0.5, seed=2)
    raw, dropped, auxiliary, _ = model.features(
        tf.constant(IDS), training=True, auxiliary_every=2
    )
    masks = np.asarray(dropped / raw)
    assert_allclose(masks, np.broadcast_to(masks[:, :1], masks.shape), atol=1e-12)
    kept = [masks[:, 0], *np.moveaxis(np.asarray(auxiliary != 0)[:, :, 0] * 2.0, 1, 0)]
    kept = np.round(np.concatenate(kept))
    assert set(np.unique(kept)) == {0.0, 2.0} and len(np.unique(kept, axis=0)) > B
    again = model.features(tf.constant(IDS), training=True)
    assert np.any((again.dropped != 0) != (dropped != 0))


def test_dropout_is_for_training_and_follows_the_seed():
    models = [make(**DROPOUTS, **WHOLE_LOSS, seed=seed) for seed in (1, 1, 2)]
    for model, source in zip(models[1:], models[:-1], strict=True):
        model.set_weights(source.get_weights())
    first, same, other = [
        sum(m.loss_terms(IDS, TARGETS, training=True)[0]) for m in models
    ]
    assert first == same != other
    assert sum(models[0].loss_terms(IDS, TARGETS, training=True)[0]) != first
    for model in models[1:]:
        assert_array_equal(model(IDS), models[0](IDS))


# Memory


@given(cuts=st.sets(st.integers(1, T - 1)), kernel_size=st.integers(1, 3))
@settings(max_examples=8)
def test_chunks_scored_through_the_cache_equal_one_pass(cuts, kernel_size):
    model = make(kernel_size=kernel_size, dilation_rate=(1, 2))
    whole, _ = model.score(IDS, TARGETS)
    cache, parts = model.get_initial_cache(B), []
    for start, stop in zip([0, *sorted(cuts)], [*sorted(cuts), T], strict=True):
        nll, cache = model.score(
            IDS[:, start:stop], TARGETS[:, start:stop], cache=cache
        )
        parts.append(nll)
    assert_allclose(np.concatenate(parts, axis=1), whole, atol=1e-12)
    assert_allclose(whole, nll_of(model(IDS), TARGETS), atol=1e-12)


def test_score_carries_the_state():
    model = make()
    _, state = model.score(IDS, TARGETS)
    nll, after = model.score(IDS, TARGETS, initial_state=state)
    terms, expected = model.loss_terms(IDS, TARGETS, initial_state=state)
    assert_allclose(terms.prediction, np.mean(nll), rtol=1e-12)
    assert_array_equal(after[0], expected[0])
    assert len(model.get_initial_state(B)) == len(state) == 2


@given(lengths=st.lists(st.integers(0, T), min_size=B, max_size=B), left=st.booleans())
@settings(max_examples=8)
def test_a_padded_row_equals_the_row_alone(lengths, left):
    model = make()
    mask = np.arange(T) < np.array(lengths)[:, None]
    mask = mask[:, ::-1] if left else mask
    ids, targets = np.where(mask, IDS, -5), np.where(mask, TARGETS, -1)
    nll, cache = model.score(ids, targets, mask=mask, cache=model.get_initial_cache(B))
    by_state, _ = model.score(ids, targets, mask=mask)
    log_probs, _ = model.prefill(ids, model.get_initial_cache(B), mask=mask)
    assert_allclose(by_state, nll, atol=1e-12)
    assert np.all(np.asarray(nll)[~mask] == 0)
    for row in filter(lambda row: mask[row].any(), range(B)):
        alone_ids = IDS[row, mask[row]][None]
        alone_targets = TARGETS[row, mask[row]][None]
        expected = nll_of(model(alone_ids), alone_targets)[0]
        assert_allclose(np.asarray(nll)[row, mask[row]], expected, atol=1e-12)
        last = log_softmax(model(alone_ids))[0, -1]
        assert_allclose(log_probs[row], last, atol=1e-12)
    assert_array_equal(cache.steps, lengths)


def test_prefill_and_step_equal_one_pass():
    model = make()
    expected = log_softmax(model(IDS))
    log_probs, cache = model.prefill(IDS[:, :4], model.get_initial_cache(B))
    assert_allclose(log_probs, expected[:, 3], atol=1e-12)
    for t in range(4, T):
        log_probs, cache = model.step(IDS[:, t], cache)
        assert_allclose(log_probs, expected[:, t], atol=1e-12)


def test_chunks_of_features_are_what_the_head_is_given():
    model = make()
    first, cache = model.stream(IDS[:, :3], model.get_initial_cache(B))
    second, _ = model.stream(IDS[:, 3:], cache)
    logits = model.head.logits(
        tf.concat([first, second], 1), model.embedding.embeddings
    )
    assert_allclose(logits, model(IDS), atol=1e-12)
    with refuses("`ids` must be integers. Received: .* float64"):
        model.stream(IDS.astype("float64"), cache)


# Generation


@pytest.mark.parametrize("head", HEADS)
def test_greedy_generation_equals_recomputing_the_whole_text(head):
    model = make(head=HEADS[head](dtype="float64"))
    text = IDS
    for _ in range(12):
        next_ids = np.argmax(model(text)[:, -1], -1)
        text = np.concatenate([text, next_ids[:, None]], axis=1)
    generated = model.generate(IDS, T + 12, temperature=0)
    assert_array_equal(generated, text)
    assert generated.dtype == tf.int32 and IDS.dtype == np.int64
    stripped = model.generate(IDS, T + 12, temperature=0, strip_prompt=True)
    assert_array_equal(stripped, text[:, T:])


def test_generation_follows_the_seed_and_no_neighbour():
    model = make()
    arguments = {"max_length": T + 20, "temperature": 1.5, "top_k": 9, "top_p": 0.95}
    text = model.generate(IDS, seed=4, **arguments)
    assert_array_equal(model.generate(IDS, seed=4, **arguments), text)
    assert_array_equal(model.generate(IDS[:1], seed=4, **arguments), text[:1])
    assert np.any(model.generate(IDS, seed=5, **arguments) != text)
    assert np.any(model.generate(IDS, **arguments) != model.generate(IDS, **arguments))
    same = np.tile(IDS[:1], (2, 1))
    rows = np.asarray(model.generate(same, seed=4, **arguments))
    assert np.any(rows[0] != rows[1])


@pytest.mark.parametrize(
    "kind",
    [tuple, set, frozenset, np.array, np.uint8, tf.constant, lambda stops: stops[0]],
)
def test_stop_tokens_of_any_kind(kind, random_model):
    free = random_model.generate(IDS, T + 15, seed=1)
    stops = [int(free[0, T + 2])]
    expected = random_model.generate(IDS, T + 15, seed=1, stop_token_ids=stops)
    assert np.any(expected != free)
    found = random_model.generate(IDS, T + 15, seed=1, stop_token_ids=kind(stops))
    assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "none", [None, (), [], np.array([]), tf.constant([], tf.int32)]
)
def test_no_stop_tokens(none, random_model):
    assert_array_equal(
        random_model.generate(IDS, T + 3, seed=1, stop_token_ids=none),
        random_model.generate(IDS, T + 3, seed=1),
    )


def test_two_stop_tokens_in_an_array(random_model):
    free = np.asarray(random_model.generate(IDS, T + 15, seed=1))
    stops = free[:2, T + 2]
    stopped = random_model.generate(IDS, T + 15, seed=1, stop_token_ids=stops)
    for row, unstopped in zip(np.asarray(stopped), free, strict=True):
        end = T + np.flatnonzero(np.isin(unstopped[T:], stops))[:1].sum()
        assert end > T and np.all(row[end:] == unstopped[end])
        np.testing.assert_array_equal(row[:end], unstopped[:end])


def test_a_prompt_of_bytes_does_not_wrap_what_is_drawn():
    model = TrellisLM(300, TrellisLayer(4, 1), embedding_units=4)
    model.head.bias.assign(np.arange(300.0))  # the last word is the likeliest by far
    for dtype in ("uint8", "int64"):
        prompt = np.array([[1, 255]], dtype)
        text = model.generate(prompt, 4, temperature=0)
        assert text.dtype == tf.int32
        assert_array_equal(text, [[1, 255, 299, 299]])


def test_ids_of_any_width_are_alike(random_model):
    expected, _ = random_model.score(IDS, TARGETS)
    for dtype in ("int8", "uint8", "uint16", "uint32", "uint64"):
        found, _ = random_model.score(IDS.astype(dtype), TARGETS.astype(dtype))
        assert_array_equal(found, expected)
    with refuses("`ids` must be in .* to 4294967296"):
        random_model.score(
            np.where(IDS == IDS[0, 0], 2**32, 0).astype("uint64"), TARGETS
        )


def test_generation_in_a_function_of_ones_own(random_model):
    """With prompts of any length, which the graph does not know."""
    arguments = {"max_length": T + 4, "seed": 2, "stop_token_ids": tf.constant(3)}

    @tf.function(input_signature=[UNKNOWN])
    def go_on(ids):
        stripped = random_model.generate(ids, strip_prompt=True, **arguments)
        return random_model.generate(ids, **arguments), stripped

    text, stripped = go_on(IDS)
    expected = random_model.generate(IDS, **arguments)
    assert_array_equal(text, expected)
    assert_array_equal(stripped, expected[:, T:])
    full = draw_text(steps=T + 4)[0]
    text, stripped = go_on(full)
    assert_array_equal(text, full)
    assert stripped.shape == (B, 0)
    for ids, message in (
        (
            draw_text(steps=T + 5)[0],
            "`max_length` must be .* max_length=11, a prompt of.*12",
        ),
        (IDS[:, :0], "`max_length` must be .* at least 1"),
        (IDS + V, r"`ids` must be in \[0, 13\), the vocabulary"),
    ):
        with refuses(message, tf.errors.InvalidArgumentError):
            go_on(ids)


def test_forbidden_tokens_are_never_drawn():
    model = make()
    forbidden = [0, 0, 0]
    for _ in range(2):  # then what was drawn
        text = model.generate(
            IDS, T + 15, seed=1, strip_prompt=True, forbidden_ids=np.array(forbidden)
        )
        assert not np.isin(text, forbidden).any()
        forbidden = np.asarray(text)[:, 0].tolist()


def test_nothing_to_generate():
    model = make()
    assert_array_equal(model.generate(IDS, T), IDS)
    assert model.generate(IDS, T, strip_prompt=True).shape == (B, 0)


@pytest.mark.parametrize(
    "ids, arguments, message",
    [
        (IDS, {"temperature": -1.0}, "`temperature`.*-1.0"),
        (IDS, {"top_k": 0}, "`top_k`.*0"),
        (IDS, {"top_p": 1.5}, "`top_p`.*1.5"),
        (IDS, {"max_length": T - 1}, "`max_length`.*7. Received: max_length=6"),
        (IDS, {"max_length": 9.5}, "`max_length`.*max_length=9.5"),
        (IDS, {"stop_token_ids": [V]}, "`stop_token_ids`.*13"),
        (IDS, {"stop_token_ids": np.array([0, -1])}, "`stop_token_ids`.*from -1 to 0"),
        (IDS, {"stop_token_ids": [1.5]}, "`stop_token_ids`.*float32"),
        (IDS, {"stop_token_ids": [True]}, "`stop_token_ids`.*bool"),
        (IDS, {"stop_token_ids": [[1]]}, r"`stop_token_ids`.*\[\[1\]\]"),
        (IDS, {"forbidden_ids": [V]}, "`forbidden_ids`.*13"),
        (IDS, {"forbidden_ids": [-1]}, "`forbidden_ids`.*-1"),
        (IDS, {"forbidden_ids": [1.5]}, "`forbidden_ids`.*float32"),
        (
            IDS,
            {"forbidden_ids": np.arange(V)},
            "`forbidden_ids` must leave some.* all 13",
        ),
        (IDS, {"seed": 1.5}, "`seed`.*1.5"),
        (IDS[:, :0], {}, r"`ids`.*\(3, 0\)"),
        (IDS[0], {}, r"`ids`.*\(7,\)"),
        (IDS + V, {}, "`ids`.*vocabulary"),
        (IDS - V, {}, "`ids`.*vocabulary"),
        (IDS.astype("float32"), {}, "`ids` must be integers.*float32"),
        ([[]], {}, r"`ids` must .* at least one token.*\(1, 0\)"),
        ([[1, 2], [3]], {}, "`ids` must .* rows of one length.*3"),
        (
            tf.ragged.constant([[1, 2], [3]]),
            {},
            "`ids` must .* rows of one length.*RaggedTensor",
        ),
    ],
)
def test_bad_requests(ids, arguments, message, random_model):
    with refuses(message):
        random_model.generate(ids, **{"max_length": 20, **arguments})


# Keras


def test_fit_trains_the_whole_loss():
    model = make(**WHOLE_LOSS, kernel_regularizer=keras.regularizers.L2(0.1))
    model.compile(
        keras.optimizers.SGD(0.2),
        metrics=[keras.metrics.SparseCategoricalCrossentropy(from_logits=True)],
        jit_compile=False,
    )
    penalty = 0.1 * np.sum(np.square(model.trellis.kernel))
    terms, _ = model.loss_terms(IDS, TARGETS)
    report = model.evaluate(IDS, TARGETS, verbose=0, return_dict=True)
    assert_allclose(report["loss"], sum(terms) + penalty, rtol=1e-5)
    assert_allclose(
        report["sparse_categorical_crossentropy"], terms.prediction, rtol=1e-5
    )
    with tf.GradientTape() as tape:
        loss = sum(model.loss_terms(IDS, TARGETS)[0])
        loss += 0.1 * tf.reduce_sum(tf.square(model.trellis.kernel.value))
    expected = [
        variable - 0.2 * gradient
        for variable, gradient in zip(
            model.get_weights(),
            tape.gradient(loss, model.trainable_variables),
            strict=True,
        )
    ]
    history = model.fit(IDS, TARGETS, epochs=1, shuffle=False, verbose=0).history
    assert_allclose(history["loss"][0], report["loss"], rtol=1e-5)
    for variable, value in zip(model.get_weights(), expected, strict=True):
        assert_allclose(variable, value, atol=1e-12)


def test_fit_learns_and_predicts():
    text = np.tile(np.arange(V), 4)[None].repeat(2, 0)
    layer = TrellisLayer(16, 3)
    model = TrellisLM(V, layer, embedding_units=16, output_dropout=0.05, **WHOLE_LOSS)
    model.compile(keras.optimizers.Adam(0.02), metrics=["sparse_categorical_accuracy"])
    history = model.fit(text[:, :-1], text[:, 1:], epochs=60, verbose=0).history
    assert history["loss"][-1] < 0.5 * history["loss"][0]
    predicted = np.argmax(model.predict(text[:, :-1], verbose=0), -1)
    assert np.mean(predicted[:, 2:] == text[:, 3:]) > 0.9


def test_export_after_fit(tmp_path):
    layer = TrellisLayer(UNITS, DEPTH, output_units=E)
    model = TrellisLM(V, layer, embedding_units=E)
    model.compile("sgd", jit_compile=False)
    model.fit(IDS, TARGETS, verbose=0)
    model.export(str(tmp_path / "model"), verbose=False)
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    served = loaded.serve(tf.constant(IDS, tf.int32))
    assert_allclose(served, model(IDS), rtol=1e-5, atol=1e-6)


def test_a_loss_of_the_user_sees_the_logits_alone():
    model = make(**WHOLE_LOSS)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(loss=loss, jit_compile=False)
    loss = model.evaluate(IDS, TARGETS, verbose=0)
    assert_allclose(loss, nll_of(model(IDS), TARGETS).mean(), rtol=1e-5)


def test_sample_weight_in_fit():
    model = make()
    model.compile(jit_compile=False)
    weight = np.arange(B * T).reshape(B, T) % 3
    loss = model.evaluate(IDS, TARGETS, sample_weight=weight, verbose=0)
    nll = nll_of(model(IDS), TARGETS)
    assert_allclose(loss, np.average(nll, weights=weight), rtol=1e-5)


def test_fit_needs_targets():
    model = make()
    model.compile("sgd")
    with refuses("next token at each position"):
        model.fit(IDS, verbose=0)


def test_functional_use_and_unknown_sizes():
    model = make()
    ids = keras.Input((None,), dtype="int32")
    logits = model(ids)
    assert logits.shape == (None, None, V) == model.compute_output_shape((None, None))
    assert_allclose(keras.Model(ids, logits)(IDS), model(IDS), atol=1e-12)


def test_the_config_has_what_was_given():
    """Who changes the vocabulary in it gets the token that follows it."""
    whole = make(**DROPOUTS, **WHOLE_LOSS, dilation_rate=(1, 2), gate="gru", seed=7)
    config = whole.get_config()
    assert TrellisLM.from_config(config).get_config() == config
    model = make(untrained_input_id=-1, unit_forget_bias=True)
    config = model.get_config()
    assert config["untrained_input_id"] == -1
    copy = TrellisLM.from_config(config | {"vocabulary_size": V + 2})
    assert copy.untrained_input_id == V + 1
    assert copy.trellis.get_config() == model.trellis.get_config()
    assert make(untrained_input_id=np.int64(2)).get_config()["untrained_input_id"] == 2
    assert make(untrained_input_id=0).get_config()["untrained_input_id"] == 0


@pytest.mark.parametrize("name", ["embedding_dropout", "output_dropout"])
def test_dropout_may_be_set_at_any_time(name):
    model = make(seed=1)
    before = np.asarray(model(IDS, training=True))
    setattr(model, name, 0.5)
    dropped = model(IDS, training=True)
    assert np.abs(dropped - before).max() > 1e-3
    assert_array_equal(make(seed=1, **{name: 0.5})(IDS, training=True), dropped)
    assert_array_equal(model(IDS), before)
    with refuses(f"`{name}` must be"):
        setattr(model, name, 1.0)


TWO_REPLICAS = """
import json, sys, keras, numpy as np, tensorflow as tf
import keras_trellis
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2)

def train(devices):
    strategy = tf.distribute.MirroredStrategy(devices)
    with strategy.scope():
        layer = keras_trellis.TrellisLayer(
            8, 1, output_units=5, dtype="float64", kernel_regularizer=keras.regularizers.L2(0.1))
        model = keras_trellis.TrellisLM(
            13, layer, embedding_units=5, auxiliary_every=1, auxiliary_weight=0.3,
            activation_weight=2.0, temporal_weight=1.0, dtype="float64")
        rng = np.random.default_rng(0)
        for variable in model.trainable_variables:
            variable.assign(0.5 * rng.normal(size=variable.shape))
        model.compile(keras.optimizers.SGD(0.2))
    text = rng.integers(0, 13, (8, 8))
    weight = rng.integers(0, 2, (8, 7))
    data = tf.data.Dataset.from_tensor_slices((text[:, :-1], text[:, 1:], weight)).batch(4)
    history = model.fit(data, verbose=0).history
    return history, model.evaluate(data, verbose=0, return_dict=True), model.get_weights()

one, two = train(["CPU:0"]), train(["CPU:0", "CPU:1"])
for a, b in zip(tf.nest.flatten(one), tf.nest.flatten(two), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-9)
"""


def test_two_replicas_equal_one_in_fit(forks):
    done = forks.run("-c", TWO_REPLICAS)
    assert done.returncode == 0, done.stderr


# Arguments


def test_receptive_field():
    assert make().receptive_field == make().trellis.receptive_field == 1 + DEPTH


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"embedding_units": 0}, "`embedding_units`.*0"),
        ({"embedding_dropout": 1.0}, "`embedding_dropout`.*1.0"),
        ({"output_dropout": -0.1}, "`output_dropout`.*-0.1"),
        ({"auxiliary_every": 0}, "`auxiliary_every`.*0"),
        (
            {"auxiliary_every": DEPTH + 1, "auxiliary_weight": 0.1},
            f"`auxiliary_every`.*{DEPTH + 1}",
        ),
        (
            {
                "auxiliary_every": DEPTH,
                "auxiliary_weight": 0.1,
                "auxiliary_from": "top",
            },
            f"`auxiliary_every`.*below `depth`.*{DEPTH}",
        ),
        ({"auxiliary_from": "left"}, "`auxiliary_from`.*left"),
        ({"auxiliary_weight": 0.1}, "`auxiliary_every`.*None"),
        ({"auxiliary_weight": -0.1, "auxiliary_every": 2}, "`auxiliary_weight`.*-0.1"),
        ({"activation_weight": -1}, "`activation_weight`.*-1"),
        ({"temporal_weight": float("nan")}, "`temporal_weight`.*nan"),
        ({"untrained_input_id": V}, f"`untrained_input_id`.*{V}"),
        ({"untrained_input_id": -V - 1}, f"`untrained_input_id`.*-{V + 1}"),
        ({"output_units": 4}, "output_units=4, embedding_units=5"),
        ({"head": "none"}, "`head`.*none"),
        ({"stateful": True}, "`stateful`.*True"),
    ],
)
def test_bad_arguments(arguments, message):
    with refuses(message):
        make(**arguments)


def test_bad_inputs():
    model = make()
    with refuses("`ids` must be integers.*float32"):
        model.score(IDS.astype("float32"), TARGETS)
    with refuses("`epsilon` must be None unless.*epsilon=0.1"):
        model.score(IDS, TARGETS, epsilon=0.1)
    with refuses("`targets` must be integers.*float64"):
        model.loss_terms(IDS, TARGETS.astype("float64"))
    with refuses(f"`discard`.*{T}"):
        model.loss_terms(IDS, TARGETS, discard=T)
    with refuses("`initial_state` or `cache`, not both"):
        state, cache = model.get_initial_state(B), model.get_initial_cache(B)
        model.score(IDS, TARGETS, initial_state=state, cache=cache)


# Shapes and ids

# The latter where a graph did not know.
REFUSED = (ValueError, tf.errors.InvalidArgumentError)

SLIPS = {
    "a step less": IDS[:, 1:],
    "one a row": TARGETS[:, :1],
    "two steps more": np.pad(TARGETS, [(0, 0), (0, 2)]),
    "another axis": TARGETS[..., None],
    "an axis less": TARGETS[:, 0],
}


@pytest.mark.parametrize("slip", SLIPS)
def test_targets_of_another_shape_are_refused(slip, trained):
    targets = SLIPS[slip]
    refused = "`y` must be of the shape of `x`, the token after each"
    with refuses(refused, REFUSED):
        trained.evaluate(IDS, targets, verbose=0)
    message = f"`targets` must be of the shape of `ids`.*of shape {re.escape(str(targets.shape))}"
    for call in (trained.score, trained.loss_terms):
        with refuses(message):
            call(IDS, targets)
    with refuses(message):
        trained.loss_terms(IDS, targets, discard=3)


def test_rows_of_targets_are_those_of_the_ids(trained):
    with refuses(r"`targets` must be .* \(1, 7\) instead of \(3, 7\)"):
        trained.score(IDS, TARGETS[:1])


def test_shapes_that_a_graph_does_not_know_are_checked_as_it_runs(random_model):
    score = tf.function(
        lambda *given: random_model.score(*given)[0], input_signature=[UNKNOWN] * 2
    )
    assert_allclose(score(IDS, TARGETS), random_model.score(IDS, TARGETS)[0])
    for targets in (IDS[:, 1:], TARGETS[:, :1], SLIPS["two steps more"], TARGETS[:1]):
        with refuses("`targets` must be of the shape", tf.errors.InvalidArgumentError):
            score(IDS, targets)
    with refuses(r"`ids` must be in \[0, 13\)", tf.errors.InvalidArgumentError):
        score(IDS + V, TARGETS)
    with refuses(r"`targets` must be in \[0, 13\)", tf.errors.InvalidArgumentError):
        score(IDS, TARGETS - V)


def test_xla_refuses_other_shapes_and_has_nan_for_other_ids(random_model):
    score = tf.function(
        lambda *given: random_model.score(*given)[0],
        input_signature=[UNKNOWN] * 2,
        jit_compile=True,
    )
    assert_allclose(score(IDS, TARGETS), random_model.score(IDS, TARGETS)[0], atol=1e-9)
    for targets in (IDS[:, 1:], TARGETS[:, :1]):
        with pytest.raises(tf.errors.OpError):
            score(IDS, targets)
    for wrong in (V, -1):
        ids, targets = IDS.copy(), TARGETS.copy()
        ids[0, 2], targets[1, 3] = wrong, wrong
        nan = np.zeros((B, T), bool)
        nan[0, 2 : 2 + random_model.receptive_field] = nan[1, 3] = True
        assert_array_equal(np.isnan(score(ids, targets)), nan)


def test_fit_on_batches_of_unknown_length(trained):
    batches = [(IDS, TARGETS), (IDS[:2, :5], TARGETS[:2, :5])]
    wrong = [*batches, (IDS, TARGETS[:, :1])]
    good, bad = (
        tf.data.Dataset.from_generator(
            each.__iter__, output_signature=(UNKNOWN, UNKNOWN)
        )
        for each in (batches, wrong)
    )
    assert trained.evaluate(good, verbose=0) > 0
    message = r"`y` must be of the shape of `x`.*\[3 1\] \[instead of\] \[3 7\]"
    with refuses(message, tf.errors.InvalidArgumentError):
        trained.evaluate(bad, verbose=0)


@pytest.mark.parametrize(
    "ids, targets, message",
    [
        (IDS + V, TARGETS, r"`x` must be in \[0, 13\), the vocabulary"),
        (IDS - 1, TARGETS, r"`x` must be in \[0, 13\), the vocabulary"),
        (IDS, TARGETS + V, r"`y` must be in \[0, 13\), the vocabulary"),
        (IDS[0], TARGETS[0], r"`x` must be of shape \[B, T\]"),
        (IDS + 0.5, TARGETS, "`x` must be integers"),
        (IDS, TARGETS + 0.5, "`y` must be integers"),
        (
            tf.ragged.constant([[1, 2], [3]]),
            tf.ragged.constant([[1, 2], [3]]),
            "`x` must .*rows",
        ),
    ],
)
def test_fit_names_what_is_wrong_as_the_user_wrote_it(ids, targets, message, trained):
    for call in (trained.fit, trained.evaluate):
        with refuses(message, REFUSED):
            call(ids, targets, verbose=0)


def test_the_own_loss_is_what_compute_loss_returns(trained):
    """Of the call that Keras makes in a step, and of any other one."""
    terms, _ = trained.loss_terms(IDS, TARGETS)
    for logits in (None, trained(IDS)):
        loss = trained.compute_loss(IDS, TARGETS, logits, training=False)
        assert_allclose(loss, sum(terms), rtol=1e-12)
    loss = trained.test_on_batch(IDS, TARGETS)
    assert_allclose(loss, sum(terms), rtol=1e-6)


@pytest.mark.parametrize("head", HEADS)
def test_every_head_has_the_same_errors(head):
    model = make(head=HEADS[head](dtype="float64"))
    with refuses("`targets` must be in .* to 13"):
        model.score(IDS, np.where(TARGETS == TARGETS[0, 0], V, TARGETS))
    outputs, *_ = model.trellis(model.embedding(IDS))
    for targets in SLIPS.values():
        with refuses("`targets` must be of the shape of `features`"):
            model.head.nll(outputs, targets, model.embedding.embeddings)


def test_ids_are_tokens_wherever_they_enter(random_model):
    cache = random_model.get_initial_cache(B)
    calls = {
        "score": lambda ids: random_model.score(ids, TARGETS),
        "loss_terms": lambda ids: random_model.loss_terms(ids, TARGETS),
        "stream": lambda ids: random_model.stream(ids, cache),
        "prefill": lambda ids: random_model.prefill(ids, cache),
        "call": random_model,
        "step": lambda ids: random_model.step(np.reshape(ids, -1)[:B], cache),
    }
    for name, call in calls.items():
        for wrong in (V, -1):
            with refuses(r"`ids` must be in \[0, 13\), the vocabulary"):
                call(np.full((B, T), wrong))
        if name != "step":
            with refuses(r"`ids` must be of shape \[B, T\].*\(7,\)"):
                call(IDS[0])
    with refuses(r"`ids` must be of shape \[B\].*\(3, 7\)"):
        random_model.step(IDS, cache)
    with refuses(r"`ids` must have at least one token.*\(3, 0\)"):
        random_model.prefill(IDS[:, :0], cache)


def test_masks_have_the_shape_of_the_ids(random_model):
    for mask in (np.ones((B, 1)), np.ones(T), np.ones((B, T + 1)), np.ones((1, T))):
        with refuses("`mask` must be of the shape of `ids`"):
            random_model.score(IDS, TARGETS, mask=mask)
        with refuses("`mask` must be of the shape of `ids`"):
            random_model.prefill(IDS, random_model.get_initial_cache(B), mask=mask)
    masked = tf.function(
        lambda mask: random_model.score(IDS, TARGETS, mask=mask),
        input_signature=[UNKNOWN],
    )
    with refuses("`mask` must be of the shape of", tf.errors.InvalidArgumentError):
        masked(np.ones((B, 1), "int64"))


def test_weights_are_of_rows_or_positions(trained):
    for weights in (
        np.ones(T),
        np.ones((B, T - 1)),
        np.ones((1, T)),
        np.ones((B, T, 1)),
        1.0,
    ):
        with refuses(r"`sample_weight` must be of shape \[B\], or of that"):
            trained.loss_terms(IDS, TARGETS, sample_weight=weights)
    of_rows = np.array([0.5, 1.0, 0.25])
    of_positions = np.tile(of_rows[:, None], T)
    expected = trained.evaluate(IDS, TARGETS, sample_weight=of_positions, verbose=0)
    for weights in (
        of_rows,
        of_rows[:, None],
        of_positions,
    ):  # in one graph of unknown rank
        found = trained.evaluate(IDS, TARGETS, sample_weight=weights, verbose=0)
        assert found == pytest.approx(expected, rel=1e-6)
    with refuses(r"`sample_weight` must be of shape", REFUSED):
        trained.evaluate(IDS, TARGETS, sample_weight=of_positions[:, 1:], verbose=0)


def test_a_model_that_does_not_train_says_so_and_evaluates():
    model = make(trainable=False)
    model.compile("sgd", jit_compile=False)
    before = model.get_weights()
    with pytest.warns(UserWarning, match="any trainable weights"):
        history = model.fit(IDS, TARGETS, verbose=0).history
    terms, _ = model.loss_terms(IDS, TARGETS)
    assert history["loss"][0] == pytest.approx(float(sum(terms)), rel=1e-5)
    for variable, value in zip(model.get_weights(), before, strict=True):
        assert_array_equal(variable, value)


def test_a_head_belongs_to_one_model():
    head = heads.TiedSoftmax(dtype="float64", name="mine")
    with refuses("output_units"):  # a model that is not made has no head
        make(head=head, output_units=E - 1)
    model = make(head=head)
    with refuses("`head` must belong to one model.*head='mine'"):
        make(head=head)
    copy = TrellisLM.from_config(model.get_config())
    assert copy.head.bias is not model.head.bias
