"""The sizes of a training step."""

import pytest

import keras_trellis
from benchmarks import sizes


@pytest.mark.parametrize("dilations", [(1,), (1, 2, 4, 8, 16)])
def test_receptive_field_is_the_package_s(dilations):
    expected = keras_trellis.receptive_field(3, kernel_size=2, dilation_rate=dilations)
    assert sizes.receptive_field(3, dilations) == expected


@pytest.mark.parametrize("wanted, nearest", [(1, 1), (11, 3), (13, 4), (15, 4)])
def test_the_nearest_units(wanted, nearest):
    assert sizes.nearest_units(lambda units: units**2, wanted) == nearest
