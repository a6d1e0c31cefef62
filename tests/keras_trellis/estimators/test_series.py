"""The estimators: what they take for series, and that they stream, export and pickle."""

import pickle

import numpy as np
import pandas
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import estimator_checks_generator

from keras_trellis.estimators import SeriesClassifier, SeriesRegressor, inputs

# They ask for the seven digits that float32 has: docs/reference/estimators.md.
UNMET = {"check_methods_subset_invariance", "check_methods_sample_order_invariance"}
SMALL = dict(units=8, steps=100, random_state=0)


def waves(count=24, steps=20):
    """Series of two channels, of which every second has thrice the height."""
    generator = np.random.default_rng(0)
    y = np.arange(count) % 2
    X = generator.normal(size=(count, 2, steps)) * (1 + 2 * y[:, None, None])
    return X, np.array(["calm", "loud"])[y]


def read(X, reset=True, time=None):
    estimator = SeriesClassifier()
    return inputs.series(estimator, X, "id", time, reset=reset)


def long_frame(X):
    """Rows of steps, the last first; the series in the order of their ids."""
    rows = [
        {"id": f"s{9 - number}", "t": t, "a": a, "b": b}
        for number, case in enumerate(X)
        for t, (a, b) in reversed([*enumerate(case.T)])
    ]
    return pandas.DataFrame(rows)


def test_all_forms_are_the_same_series():
    X, _ = waves(count=3)
    expected = X.transpose(0, 2, 1).astype("float32")
    for form, time in ((X, None), ([*X], None), (long_frame(X), "t")):
        assert_array_equal(read(form, time=time), expected)
    table = [*expected[:, :, :1]]
    assert_array_equal(read(X[:, 0]), table)
    assert_array_equal(read([*X[:, 0, :5], X[0, 0]])[:3], expected[:, :5, :1])


def test_a_gap_is_no_step_and_padding_is_masked():
    X, _ = waves(count=2, steps=6)
    X[0, 1, 3] = np.nan
    cases = read(X)
    assert [len(case) for case in cases] == [5, 6]
    assert_array_equal(cases[0][3], X[0, :, 4].astype("float32"))
    values, mask = inputs.padded(cases)
    assert mask.sum() == 11 and not mask[0, 5] and not values[0, 5].any()


@pytest.mark.parametrize(
    "X, message",
    [
        ([np.ones((2, 5)), np.ones((3, 5))], r"the same channels|must have 2 channels"),
        (
            np.full((2, 1, 3), np.nan),
            "Received: none in series 0, all of whose 3 steps",
        ),
        (np.full((2, 1, 3), np.inf), "infinity"),
        (np.ones(5), "Reshape your data"),
    ],
)
def test_what_is_no_series_is_refused(X, message):
    with pytest.raises(ValueError, match=message):
        read(X)


def test_it_learns_streams_exports_and_pickles(tmp_path):
    X, y = waves()
    ragged = [case[:, : 20 - number % 3] for number, case in enumerate(X)]
    best = SeriesClassifier(stem=[(8, 4, 2)], **SMALL).fit(ragged, y)
    assert best.score(ragged, y) > 0.9
    probabilities = best.predict_proba(ragged)
    assert {*best.predict(ragged)} == {"calm", "loud"} == {*best.classes_}
    again = pickle.loads(pickle.dumps(best))
    assert_allclose(again.predict_proba(ragged), probabilities, atol=1e-6)
    streamed = best.stream()
    assert streamed.stride == 2
    running = streamed.start(batch_size=1)
    for step in range(0, 20, 2):
        answer = running.advance(X[:1, :, step : step + 2].transpose(0, 2, 1))
    assert_allclose(answer, probabilities[:1], atol=1e-5)
    best.export(tmp_path / "model.tflite")
    assert (tmp_path / "model.tflite").stat().st_size > 1000


def test_numbers_have_their_own_unit():
    X = [np.full([1, length], length) for length in range(10, 30)]
    y = [1000.0 + case.shape[1] for case in X]
    regressor = SeriesRegressor(**{**SMALL, "steps": 200}).fit(X, y)
    assert regressor.score(X, y) > 0.5
    assert 1000 < regressor.predict(X[:1])[0] < 1040


def test_one_seed_makes_one_model_and_leaves_other_generators():
    X, y = waves(count=8)
    state = np.random.get_state()[1].copy()
    small = {**SMALL, "steps": 5}
    first, second = (
        SeriesClassifier(**small).fit(X, y).predict_proba(X) for _ in range(2)
    )
    assert_array_equal(first, second)
    assert_array_equal(np.random.get_state()[1], state)


@pytest.mark.slow
def test_a_grid_is_searched():
    X, y = waves()
    grid = {"units": [4, 8], "jitter": [0.1]}
    search = GridSearchCV(SeriesClassifier(**SMALL), grid, cv=2).fit([*X], y)
    assert search.best_score_ > 0.8 and search.score([*X], y) > 0.9


@pytest.mark.slow  # each check trains
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("made", [SeriesClassifier, SeriesRegressor])
def test_the_checks_of_scikit_learn_hold(made):
    learned = made(units=8, steps=100, learning_rate=1e-2, dropout=0.0, crop=0.0)
    for estimator, check in estimator_checks_generator(learned):
        if check.func.__name__ not in UNMET:
            check(estimator)
