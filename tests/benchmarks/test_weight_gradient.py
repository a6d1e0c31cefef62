"""The two ways to sum the hidden kernel's gradient, and their table."""

import dataclasses

import numpy as np
import pytest

from benchmarks import contenders, weight_gradient
from benchmarks.sizes import Sizes
from benchmarks.workers import Reading, Result

SIZES = Sizes(1, 7, 3, 3, depth=4)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("bfloat16", 2e-2)])
def test_both_return_the_sum(dtype, tolerance):
    taps, _, blocks = contenders.factors(SIZES)
    expected = sum(level**2 * taps.T @ blocks for level in range(1, 5))
    for _, build in weight_gradient.CONTENDERS.values():
        found = build(dataclasses.replace(SIZES, dtype=dtype)).step()
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, atol=tolerance * np.abs(expected).max())


def test_ratios_are_to_level_by_level():
    results = {
        "by_level float32": Result({}, [Reading(2.0, None), Reading(4.0, None)]),
        "stacked float32": Result({}, [Reading(1.0, None), Reading(6.0, None)]),
    }
    text = weight_gradient.table({"rows": weight_gradient.rows(results, "float32")})
    assert "| level by level, float32 | 3,000.0 | 1.00, **1.00**, 1.00 |" in text
    assert "| one product, float32 | 3,500.0 | 0.50, **1.00**, 1.50 |" in text
