"""The costs of several workers: the formula beside what was measured, and Young's interval."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose

from benchmarks import scale
from tests import ROOT

MEASURED = json.loads((ROOT / "docs/benchmarks/scale.json").read_text())


def test_the_formula_has_what_was_measured():
    link = scale.Link(**MEASURED["link"])
    assert_allclose(scale.fit(MEASURED["points"], MEASURED["workers"]), link)
    for point in MEASURED["points"]:
        computed = scale.sum_seconds(point["bytes"], MEASURED["workers"], link)
        assert 0.5 < computed / point["seconds"] < 2


def test_the_fit_finds_the_link():
    link = scale.Link(2e-3, 5e8)
    points = [
        {"bytes": size, "seconds": scale.sum_seconds(size, 8, link)}
        for size in scale.SIZES
    ]
    assert_allclose(scale.fit(points, 8), link)
    assert scale.sent(100, 2) == 100 and scale.sent(100, 8) == 175


def test_no_interval_loses_less_than_the_best():
    best = scale.best_interval(20, 86_400)
    assert best == pytest.approx(1859, abs=1)
    least = scale.lost_share(best, 20, 120, 86_400)
    assert least == pytest.approx(np.sqrt(2 * 20 / 86_400) + 120 / 86_400)
    for factor in (0.9, 1.1):
        assert scale.lost_share(factor * best, 20, 120, 86_400) > least


def test_the_page_has_the_measured_table():
    assert scale.table(MEASURED) in (ROOT / "docs/notes/scale.md").read_text()
