"""What half precision costs."""

import pytest
import tensorflow as tf

from trainers.training import precision


def test_the_slowdown_is_the_time_in_half_precision_by_that_in_single(monkeypatch):
    seconds = {tf.bfloat16: 3e-3, tf.float32: 1e-3}
    monkeypatch.setattr(precision, "_seconds", seconds.get)
    assert precision.slowdown() == pytest.approx(3.0)


def test_a_product_in_half_precision_takes_some_time():
    assert 0.01 < precision.slowdown() < 1000
