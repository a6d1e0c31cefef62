"""Weeks of a forecast: gaps filled, and inputs made, from the past alone."""

import importlib.metadata
import sys

import numpy as np
import pytest
from etils import epath
from hypothesis import given
from hypothesis import strategies as st

from tests.refusals import refuses
from trainers.data import co2
from trainers.tasks import config as configs
from trainers.time_series import tasks

WEEKS = 400


def series(seed, gaps=0.2):
    """Returns weeks with gaps, the first of which is there."""
    generator = np.random.default_rng(seed)
    values = 300 + generator.normal(size=WEEKS).cumsum()
    values[1:][generator.random(WEEKS - 1) < gaps] = np.nan
    start = np.datetime64("1990-01-06")
    dates = [(start + 7 * week).item() for week in range(WEEKS)]
    return co2.Series(dates, values)


def config(**data):
    values = configs.load("forecast", "small")
    values.data.update(validation=60, test=60, ahead=5, window=80, hop=20)
    values.data.update(data)
    return values


@given(st.integers(0, 2**32), st.integers(1, WEEKS - 1))
def test_the_future_changes_nothing_before_it(seed, now):
    values = series(seed).values
    other = values.copy()
    other[now:] = np.random.default_rng(seed + 1).normal(size=WEEKS - now)
    filled = [co2.filled(each) for each in (values, other)]
    assert np.array_equal(filled[0][:now], filled[1][:now])
    assert np.isfinite(filled[0]).all()
    known = np.isfinite(values)
    assert np.array_equal(filled[0][known], values[known])
    read = [co2.changes(each)[:now] for each in filled]
    assert np.array_equal(read[0], read[1], equal_nan=True)


@given(st.integers(0, 2**32))
def test_a_target_is_what_comes_and_a_gap_has_none(seed):
    values = series(seed).values[:20]
    levels = co2.filled(values)
    targets = co2.later(values, levels, 3)
    for week in range(20):
        for ahead in range(1, 4):
            then = values[week + ahead] if week + ahead < 20 else np.nan
            expected = np.float32(then - levels[week])
            assert np.array_equal(targets[week, ahead - 1], expected, equal_nan=True)


def test_a_split_forecasts_within_its_weeks():
    data = tasks.forecast_data(config(), series(0))
    ends = {"train": (0, WEEKS - 120), "validation": (WEEKS - 120, WEEKS - 60)}
    ends["test"] = (WEEKS - 60, WEEKS)
    for split, (begin, end) in ends.items():
        (recording,) = data.recordings[split]
        assert len(recording.values) == len(recording.times) == end
        made, ahead = np.nonzero(np.isfinite(recording.target))
        assert made.min() >= begin and (made + 1 + ahead).max() == end - 1


def test_training_knows_nothing_of_later_weeks():
    whole = series(0)
    other = whole.values.copy()
    other[-120:] += 50 * np.random.default_rng(1).normal(size=120)
    data = [
        tasks.forecast_data(config(), whole._replace(values=values))
        for values in (whole.values, other)
    ]
    assert data[0].facts == data[1].facts
    for ours, theirs in zip(data[0].train, data[1].train, strict=True):
        assert np.array_equal(ours, theirs, equal_nan=True)


@pytest.mark.parametrize(
    "rows, line",
    [
        (
            ["19900106,1", "19900120,2"],
            "line 3: `date` must be a week after the row before",
        ),
        (["19900106,1", "x,2"], "line 3: `date` must be a day, .* Received: 'x'"),
        (
            ["19900106,1", "19900113,y"],
            "line 3: the column 'co2' must have finite float32 numbers",
        ),
        (["19900106,1"], "must have more than 52 weeks. Received: 1"),
    ],
)
def test_rows_that_are_no_weeks(tmp_path, rows, line):
    path = epath.Path(tmp_path / "weeks.csv")
    path.write_text("\n".join(["date,co2", *rows]))
    with refuses(line):
        co2.parse(path)


def test_a_package_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setattr(sys, "path", [])
    message = (
        r"=forecast .* statsmodels, which is not installed: pip install '.\[series\]'"
    )
    with refuses(message):
        co2.read()


def test_the_package_s_weeks():
    try:
        importlib.metadata.distribution(co2.PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("statsmodels is not installed")
    values = co2.read().values
    assert (len(values), np.isnan(values).sum()) == (2284, 59)
