"""What half precision costs."""

import itertools
import time

import pytest

from trainers.training import announcing


def test_the_slowdown_is_the_time_in_half_precision_by_that_in_single(monkeypatch):
    took = [3.5e-3, 3e-3, 4e-3, 3e-3, 3e-3, 1e-3, 2e-3, 1e-3, 1e-3, 1e-3]
    moments = itertools.accumulate(seconds for each in took for seconds in (1.0, each))
    monkeypatch.setattr(time, "perf_counter", moments.__next__)
    assert announcing.slowdown() == pytest.approx(3.0)


def test_a_product_in_half_precision_takes_some_time():
    assert 0.01 < announcing.slowdown() < 1000
