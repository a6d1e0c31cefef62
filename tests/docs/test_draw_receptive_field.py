"""What the picture of the receptive field shows."""

import itertools

import numpy as np
import pytest

from docs.draw_receptive_field import STEPS, cells_that_matter


@pytest.mark.parametrize("dilations", [(1, 1, 1, 1), (1, 2, 4, 8), (1, 6), (5,)])
def test_coloured_is_what_some_path_of_taps_reaches(dilations):
    """Going down from the last step of the top, a path takes at each level its dilation or none."""
    matter = cells_that_matter(dilations, STEPS)
    for row in range(len(dilations) + 1):
        steps_taken = itertools.product(
            *[(0, dilation) for dilation in dilations[row:]]
        )
        reached = sorted({STEPS - 1 - sum(taken) for taken in steps_taken})
        assert np.flatnonzero(matter[row]).tolist() == reached
