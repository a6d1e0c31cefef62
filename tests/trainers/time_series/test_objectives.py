"""Losses and scores of recordings, by the equations of their docstrings."""

import math

import ml_collections
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from trainers.data import recordings
from trainers.data.recordings import Recording
from trainers.time_series import objectives
from trainers.time_series.objectives import Classes, NextStep, Numbers

AHEAD = 2
CONFIG = ml_collections.ConfigDict(dict(data=dict(ahead=AHEAD)))
GENERATOR = np.random.default_rng(0)


def data(target, count=3, **arguments):
    """Recordings of different lengths with the targets that a function gives them."""
    made = [
        Recording(
            f"r{n}",
            GENERATOR.normal(2, 3, (7 + 4 * n, 2)).astype("float32"),
            target(n, 7 + 4 * n),
        )
        for n in range(count)
    ]
    parts = dict.fromkeys(("train", "validation", "test"), made)
    return recordings.assemble(parts, "ab", window=5, hop=3, **arguments)


def log_softmax(logits):
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def test_classes_by_window_and_by_recording():
    known = data(lambda n, steps: np.array(n, "int32"), classes="xyz")
    logits = GENERATOR.normal(size=(len(known.test.inputs), 3)).astype("float32")
    objective = Classes(CONFIG, known)
    score = objective.score("test", lambda windows: logits, None)
    log_probs, targets = log_softmax(logits), known.test.targets
    right = log_probs.argmax(1) == targets
    chosen = log_probs[np.arange(len(targets)), targets]
    assert score.loss == pytest.approx(-chosen.mean())
    assert score.values["accuracy"] == pytest.approx(100 * right.mean())
    means = [log_probs[known.owners["test"] == n].mean(0) for n in range(3)]
    taken = [mean.argmax() for mean in means]
    share = np.mean([n == place for n, place in enumerate(taken)])
    assert score.values["recording_accuracy"] == pytest.approx(100 * share)
    matrix = np.zeros((3, 3), int)
    for n, place in enumerate(taken):
        matrix[n, place] += 1
    assert score.confusion == matrix.tolist()
    terms = objective.terms(known.test.inputs, tf.constant(targets), logits)
    assert_allclose(terms.losses, -chosen, rtol=1e-5)
    assert terms.hits.numpy().astype(bool).tolist() == right.tolist()


def test_classes_of_steps_without_those_that_have_none():
    def target(n, steps):
        return np.where(np.arange(steps) % 3 == 0, -1, np.arange(steps) % 2).astype(
            "int32"
        )

    known = data(target, classes="xy")
    outputs = [
        GENERATOR.normal(size=(len(r.values), 2)) for r in known.recordings["test"]
    ]
    score = Classes(CONFIG, known).score("test", None, lambda values: outputs)
    targets = np.concatenate([r.target for r in known.recordings["test"]])
    log_probs = log_softmax(np.concatenate(outputs))[targets >= 0]
    targets = targets[targets >= 0]
    assert score.targets == len(targets)
    assert score.loss == pytest.approx(
        -log_probs[np.arange(len(targets)), targets].mean()
    )
    padded = known.train.targets
    terms = Classes(CONFIG, known).terms(
        known.train.inputs, tf.constant(padded), tf.zeros([*padded.shape, 2])
    )
    assert (terms.known.numpy() == (padded >= 0)).all()


def test_numbers_in_their_unit():
    known = data(lambda n, steps: np.array(10.0 * n, "float32"))
    objective = Numbers(CONFIG, known)
    windows = GENERATOR.normal(size=(len(known.test.inputs), 1))
    score = objective.score("test", lambda _: windows, None)
    means = [windows[known.owners["test"] == n].mean() for n in range(3)]
    errors = np.subtract(means, [0.0, 10.0, 20.0])
    assert score.values["rmse"] == pytest.approx(math.sqrt((errors**2).mean()))
    shown = objective.display({"loss": score.loss})
    assert shown == {"rmse": pytest.approx(score.values["rmse"])}


def test_a_number_that_is_not_there_costs_nothing():
    def target(n, steps):
        values = GENERATOR.normal(size=(steps, 2)).astype("float32")
        values[::2, 1] = np.nan
        return values

    known = data(target)
    objective, targets = Numbers(CONFIG, known), tf.constant(known.train.targets)
    with tf.GradientTape() as tape:
        outputs = tf.zeros_like(targets)
        tape.watch(outputs)
        terms = objective.terms(known.train.inputs, targets, outputs)
        loss = tf.reduce_sum(terms.losses * terms.known)
    there = np.isfinite(targets)
    assert (terms.known.numpy() == there).all()
    expected = np.where(there, -2 * targets / known.facts.scale**2, 0.0)
    assert_allclose(tape.gradient(loss, outputs), expected, rtol=1e-5)


def test_surprise_is_that_of_a_normal_distribution():
    known = data(lambda n, steps: np.array(n % 2, "int32"), outputs=4, every_step=True)
    objective = NextStep(CONFIG, known)
    inputs = np.stack([r.values[:7] for r in known.recordings["test"]])
    inputs[0, 3] = np.nan
    outputs = GENERATOR.normal(size=(3, 7, 4)).astype("float32")
    terms = objective.terms(inputs, None, tf.constant(outputs))
    scaled = (inputs - known.facts.mean) / known.facts.deviation
    for row, step in np.ndindex(3, 7 - AHEAD):
        gone = row == 0 and 3 in (step, step + AHEAD)
        assert bool(terms.known[row, step]) == (not gone)
        if gone:
            continue
        mean, log_variance = np.split(outputs[row, step].astype("float64"), 2)
        error = scaled[row, step + AHEAD] - mean
        nll = 0.5 * (error**2 / np.exp(log_variance) + log_variance + np.log(2 * np.pi))
        assert float(terms.losses[row, step]) == pytest.approx(nll.mean(), rel=1e-4)


def test_anomalies_are_scored_by_recording_and_by_window():
    metrics = pytest.importorskip(
        "sklearn.metrics", reason="scikit-learn: the extra `series`"
    )
    known = data(lambda n, steps: np.array(n % 2, "int32"), outputs=4, every_step=True)
    streams = lambda values: [np.zeros((len(v), 4), "float32") for v in values]  # noqa: E731
    score = NextStep(CONFIG, known).score("test", None, streams)
    steps = objectives.step_scores(
        known.facts, AHEAD, known.recordings["test"], streams
    )
    assert [np.isnan(s).sum() for s in steps] == [AHEAD] * 3
    strange = np.array([0, 1, 0])
    by_recording = metrics.average_precision_score(
        strange, [np.nanmean(s) for s in steps]
    )
    assert score.values["recording_average_precision"] == pytest.approx(
        100 * by_recording
    )
    parts = [np.nanmean(s[at : at + 5]) for s in steps for at in range(0, len(s), 5)]
    owners = [n for n, s in enumerate(steps) for _ in range(0, len(s), 5)]
    by_window = metrics.average_precision_score(strange[owners], parts)
    assert score.values["average_precision"] == pytest.approx(100 * by_window)
    # The loss, which chooses the best epoch, is that of recordings like those of training.
    normal = np.concatenate([steps[0][AHEAD:], steps[2][AHEAD:]])
    assert score.loss == pytest.approx(normal.mean())
