"""Both protocols against one pass over the stream, and against each other."""

import re
import warnings

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given
from hypothesis import strategies as st
from ml_collections import ConfigDict
from numpy.testing import assert_allclose, assert_array_equal

from keras_trellis import TrellisLayer, TrellisLM, heads
from tests.refusals import refuses
from trainers.kinds import measures
from trainers.language import evaluation, protocols

VOCABULARY = 17


HEADS = {
    "tied": lambda: "tied",
    "mixture": lambda: heads.MixtureOfSoftmaxes(2, dtype="float64", seed=1),
    "adaptive": lambda: heads.AdaptiveSoftmax((4, 9), dtype="float64"),
}


@pytest.fixture(scope="module")
def model(request):
    layer = TrellisLayer(
        6, 4, dilation_rate=(1, 2), output_units=5, dtype="float64", seed=3
    )
    return TrellisLM(
        VOCABULARY,
        layer,
        embedding_units=5,
        head=HEADS[getattr(request, "param", "tied")](),
        dtype="float64",
        seed=3,
    )


@pytest.fixture(scope="module")
def ids():
    return np.random.default_rng(0).integers(0, VOCABULARY, 401).astype(np.int32)


def one_pass(model, ids):
    """The total nll of every target, by one call over the whole stream."""
    nll, _ = model.score(
        ids[None, :-1], ids[None, 1:], initial_state=model.get_initial_state(1)
    )
    return float(tf.reduce_sum(nll))


def evaluator(
    model, *, window=20, horizon=7, history="zero", batch_size=3, rows=1, chunk=64
):
    return evaluation.Evaluator(
        model,
        ConfigDict({"window": window, "horizon": horizon, "history": history}),
        ConfigDict(
            {"batch_size": batch_size, "exact_batch_size": rows, "exact_chunk": chunk}
        ),
    )


@pytest.mark.parametrize(
    "model, rows, chunk",
    [
        *(("tied", *sizes) for sizes in [(1, 400), (1, 64), (3, 50), (8, 16), (50, 7)]),
        *(
            (head, *sizes)
            for head in ("mixture", "adaptive")
            for sizes in [(1, 64), (8, 16)]
        ),
    ],
    indirect=["model"],
)
def test_exact_scores_each_target_once_whatever_the_batch_and_chunk(
    model, ids, rows, chunk
):
    score = evaluator(model, rows=rows, chunk=chunk).exact(ids)
    assert score.tokens == len(ids) - 1
    assert_allclose(score.nll, one_pass(model, ids), rtol=1e-9)
    assert_allclose(score.mean, score.nll / 400, rtol=1e-12)


def nll_of(log_probs, targets):
    return -tf.gather(log_probs, targets, batch_dims=2)


@pytest.mark.parametrize("model", HEADS, indirect=True)
def test_a_metric_is_the_mean_over_the_scored_targets(model, ids):
    """One that is the nll is the score, and the score is what it is without metrics."""
    metrics = [
        measures.Metric("nats", nll_of),
        measures.Metric("ones", lambda log_probs, targets: tf.ones_like(targets)),
    ]
    plain = evaluator(model, rows=3, history="carried", horizon=0)
    assert plain.with_metrics(()) is plain
    for protocol in protocols.PROTOCOLS:
        score = plain.with_metrics(metrics).score(protocol, ids)
        expected = plain.score(protocol, ids)
        assert score.tokens == expected.tokens and not expected.metrics
        nats, ones = score.metrics.values()
        assert_allclose([score.nll, nats], [expected.nll, score.mean], rtol=1e-6)
        assert ones == 1.0
    line = evaluation.describe("test", {"exact": score})
    assert re.fullmatch(
        r"test perplexity: exact [\d.]+ \(\d+ tokens\), nats [\d.]+, ones 1.00", line
    )


@given(
    length=st.integers(2, 300),
    batch_size=st.integers(1, 9),
    receptive_field=st.one_of(st.none(), st.integers(1, 60)),
    chunk=st.integers(1, 40),
)
@example(length=12, batch_size=9, receptive_field=1, chunk=1)
def test_cut_covers_each_target_once_with_its_whole_history(
    length, batch_size, receptive_field, chunk
):
    ids = np.arange(length)
    rows, chunks = protocols.cut(ids, batch_size, receptive_field, chunk)
    chunks = list(chunks)
    assert all(part.shape == (rows, chunk) for pieces in chunks for part in pieces)
    inputs, targets, scored = (
        np.concatenate(parts, 1) for parts in zip(*chunks, strict=True)
    )
    assert_array_equal(np.sort(targets[scored]), ids[1:])
    assert_array_equal(targets[scored], inputs[scored] + 1)
    for row, row_scored in zip(inputs, scored, strict=True):
        first = np.flatnonzero(row_scored)[0]
        history = length if receptive_field is None else receptive_field
        assert first == (0 if row[0] == 0 else history - 1)
        last = np.flatnonzero(row_scored)[-1]
        assert_array_equal(np.diff(row[: last + 1]), 1)


def test_exact_refuses_a_stream_without_targets(model):
    with refuses("`ids` must hold at least 2 tokens. Received: 1"):
        evaluator(model).exact(np.zeros(1, np.int32))


def test_trellisnet_with_zero_history_discards_the_horizon(model, ids):
    """Written out: streams of 133 tokens; windows 13 apart; the first 7 outputs unscored."""
    streams = ids[: 3 * 133].reshape(3, 133)
    total, tokens = 0.0, 0
    for start in range(0, 132, 13):
        stop = min(start + 20, 132)
        if start + 7 >= 132:
            continue
        nll, _ = model.score(
            streams[:, start:stop],
            streams[:, start + 1 : stop + 1],
            initial_state=model.get_initial_state(3),
        )
        total += float(tf.reduce_sum(nll[:, 7:]))
        tokens += 3 * (stop - start - 7)
    score = evaluator(model).trellisnet(ids)
    assert score.tokens == tokens == 3 * (132 - 7)
    assert_allclose(score.nll, total, rtol=1e-9)


def test_trellisnet_may_end_with_a_window_of_one_token(model, ids):
    """It carries the state on as training does: nobody is told to stream instead."""
    carried = evaluator(model, horizon=0, history="carried")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        score = carried.trellisnet(ids[: 3 * 42])
    assert score.tokens == 3 * (20 + 20 + 1)


@pytest.mark.parametrize("model", ["tied", "adaptive"], indirect=True)
def test_trellisnet_with_carried_history_goes_on_from_the_last_state(model, ids):
    streams = ids[: 3 * 133].reshape(3, 133)
    state = model.get_initial_state(3)
    total = 0.0
    for start in range(0, 132, 20):
        stop = min(start + 20, 132)
        nll, state = model.score(
            streams[:, start:stop],
            streams[:, start + 1 : stop + 1],
            initial_state=state,
        )
        total += float(tf.reduce_sum(nll))
    score = evaluator(model, horizon=0, history="carried").trellisnet(ids)
    assert score.tokens == 3 * 132
    assert_allclose(score.nll, total, rtol=1e-9)


@pytest.mark.parametrize("horizon, history", [(7, "zero"), (0, "carried")])
def test_trellisnet_traces_once_for_whole_windows_and_once_for_the_last(
    model, ids, monkeypatch, horizon, history
):
    score, traces = type(model).score, []

    def counted(*args, **kwargs):
        traces.append(args)
        return score(*args, **kwargs)

    monkeypatch.setattr(type(model), "score", counted)
    scorer = evaluator(model, horizon=horizon, history=history)
    for _ in range(2):
        scorer.trellisnet(ids)
    assert len(traces) == 2


def mixture_of_rare_words(**arguments):
    """A model whose mixture gives half of the words e^-30, far less than 1e-8."""
    head = heads.MixtureOfSoftmaxes(2, dtype="float64", **arguments)
    layer = TrellisLayer(6, 3, output_units=5, dtype="float64")
    model = TrellisLM(VOCABULARY, layer, embedding_units=5, head=head, dtype="float64")
    head.bias.assign(np.where(np.arange(VOCABULARY) % 2, -30.0, 0.0))
    return model


@pytest.mark.parametrize("epsilons", [(0.0, 1e-8), (1e-8, 0.0)])
def test_a_score_is_its_protocols_whatever_was_scored_before(
    ids, monkeypatch, epsilons
):
    """What a protocol adds to a mixture is no property of a graph that another one traced."""
    model = mixture_of_rare_words(epsilon=0.1)
    shared = evaluator(model)
    for epsilon in epsilons:
        monkeypatch.setitem(protocols.EPSILON, "exact", epsilon)
        alone = evaluator(model).exact(ids)
        assert_allclose(shared.exact(ids).nll, alone.nll, rtol=1e-12)


@pytest.mark.parametrize("trained_with", [0.0, 1e-8])
def test_protocols_differ_in_what_they_add_to_a_mixture(ids, trained_with):
    """1e-8 under `trellisnet`, nothing under `exact`, and the model stays as it was."""
    model = mixture_of_rare_words(epsilon=trained_with)
    head = model.head
    score = evaluator(model, horizon=0, history="carried").trellisnet(ids[:134])
    exact = evaluator(model).exact(ids)
    exact_again = evaluator(model, rows=3, chunk=16).exact(ids)
    assert head.epsilon == trained_with
    head.epsilon = 0.0
    assert_allclose(exact.nll, one_pass(model, ids), rtol=1e-9)
    assert_allclose(exact_again.nll, exact.nll, rtol=1e-9)
    head.epsilon = 1e-8
    rows, state, total = ids[:132].reshape(3, 44), model.get_initial_state(3), 0.0
    for start in range(0, 43, 20):
        stop = min(start + 20, 43)
        nll, state = model.score(
            rows[:, start:stop], rows[:, start + 1 : stop + 1], initial_state=state
        )
        total += float(tf.reduce_sum(nll))
    assert_allclose(score.nll, total, rtol=1e-9)
    assert score.mean < 13 < exact.mean


def test_a_text_passes_the_check_where_it_can_be_scored(model, ids):
    data = ConfigDict({"window": 20, "horizon": 7})
    settings = ConfigDict({"batch_size": 3, "exact_batch_size": 1, "exact_chunk": 64})
    protocols.check_text("it", 27, data, settings)
    assert evaluator(model).trellisnet(ids[:27]).tokens == 3
    with refuses("it holds 26 tokens; .* 27, .*batch_size=2, or give more"):
        protocols.check_text("it", 26, data, settings)
    with refuses("in each of .*batch_size=3 streams: give more text"):
        protocols.check_text("it", 8, data, settings)


def test_an_unknown_protocol_is_refused(model, ids):
    with refuses("`protocol` must be one of .*Received: protocol='exakt'"):
        evaluator(model).score("exakt", ids)


def test_description_of_characters_has_bits():
    scores = {"exact": evaluation.Score(np.log(2.0) * 1500, 1200)}
    line = evaluation.describe("test", scores, measures.CHARACTERS)
    assert line == "test bpc: exact 1.250 (1,200 characters)"


def test_description_has_perplexity_and_tokens():
    scores = {"exact": evaluation.Score(np.log(50.0) * 1200, 1200)}
    assert (
        evaluation.describe("test", scores)
        == "test perplexity: exact 50.00 (1,200 tokens)"
    )
