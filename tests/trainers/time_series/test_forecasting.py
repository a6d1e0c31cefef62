"""The simpler forecasts: last year's weeks, and a regression that finds a linear rule."""

import numpy as np

from trainers.data import co2
from trainers.time_series import forecasting

WEEKS, AHEAD = 500, 60


def test_the_same_week_of_the_year_before():
    levels = np.random.default_rng(0).normal(size=WEEKS)
    values = forecasting.seasonal_naive(levels, AHEAD, co2.YEAR).values
    for week in (0, 10, 51, 52, 200, WEEKS - 1):
        for ahead in (1, 51, 52, 53, 60):
            source = week + ahead - (52 if ahead <= 52 else 104)
            forecast = levels[week] + values[week, ahead - 1]
            assert (
                np.isnan(forecast)
                if source < 0
                else np.isclose(forecast, levels[source])
            )


def test_a_regression_finds_what_is_linear_and_fits_training_data_alone():
    """Sums of a trend and two waves are linear in their past."""
    week = np.arange(WEEKS)
    levels = 0.03 * week + np.sin(2 * np.pi * week / 52) + 0.3 * np.cos(week)
    targets = co2.later(levels, levels, 8)
    ours = forecasting.linear(levels, targets[:300], _from(targets[:400], 300)).values
    error = ours[400:-8] - targets[400:-8]
    assert np.abs(error).max() < 0.02 * np.abs(targets[400:-8]).max()
    other = levels + np.where(week >= 400, 9.0, 0.0)
    again = forecasting.linear(other, targets[:300], _from(targets[:400], 300)).values
    np.testing.assert_allclose(again[:400], ours[:400], equal_nan=True)


def _from(targets, begin):
    return np.where(np.arange(len(targets))[:, None] >= begin, targets, np.nan)
