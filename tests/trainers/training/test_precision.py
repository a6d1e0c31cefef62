"""What half precision costs."""

from trainers.training import precision


def test_a_product_in_half_precision_takes_some_time():
    assert 0.01 < precision.slowdown() < 1000
