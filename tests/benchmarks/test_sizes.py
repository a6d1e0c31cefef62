"""The work of a training step."""

import dataclasses

import pytest

import keras_trellis
from benchmarks.sizes import Sizes

SIZES = Sizes(2, 5, 3, 4, 3, dilation_rate=(1, 2))


def brute_force(sizes, input_weights, hidden_weights):
    """Follows back from each kept output, position by position, what it takes to compute it."""
    dilations, width = sizes.dilations(), max(sizes.kernel_size - 1, 1)
    needed = set(range(sizes.discard, sizes.time_steps))
    hidden, injected = 0, {}
    for level in reversed(range(sizes.depth)):
        injected.setdefault(dilations[level], set()).update(needed)
        if level:  # level 0's hidden state is zero
            hidden += len(needed)
        backs = range(0, width * dilations[level] + 1, dilations[level])
        needed = {t - back for t in needed for back in backs if t >= back}
    weights = input_weights * sum(map(len, injected.values())) + hidden_weights * hidden
    return 2 * {"train": 3, "forward": 1}[sizes.mode] * sizes.batch_size * weights


def test_work_is_that_of_the_products():
    facts = SIZES.trellis_facts(2 * 3 * 16, 2 * 4 * 16, 0)
    # Two dilations' input products and the hidden products above level 0, for 10 positions, each
    # forward and for two gradients, 2 operations a multiplication.
    assert facts["flops"] == 3 * 2 * 10 * (2 * 96 + 2 * 128)
    forward = dataclasses.replace(SIZES, mode="forward").trellis_facts(2 * 3 * 16, 2 * 4 * 16, 0)
    assert forward["flops"] == facts["flops"] / 3


@pytest.mark.parametrize("kernel_size", [1, 2, 3])
@pytest.mark.parametrize("dilations", [(1,), (1, 2, 4), (3, 1)])
@pytest.mark.parametrize("discard", [0, 1, 7, 19])
@pytest.mark.parametrize("mode", ["train", "forward"])
def test_work_with_discarded_outputs(kernel_size, dilations, discard, mode):
    sizes = Sizes(2, 20, 3, 4, 5, kernel_size, dilations, discard=discard, mode=mode)
    facts = sizes.trellis_facts(7, 11, 0)
    assert facts["flops"] == brute_force(sizes, 7, 11)


@pytest.mark.parametrize("kernel_size", [1, 2, 3])
@pytest.mark.parametrize("dilations", [(1,), (1, 2, 4, 8, 16)])
def test_receptive_field_is_the_package_s(kernel_size, dilations):
    sizes = Sizes(2, 5, 3, 4, 3, kernel_size, dilations)
    expected = keras_trellis.receptive_field(3, kernel_size=kernel_size, dilation_rate=dilations)
    assert sizes.receptive_field() == expected


def test_products_are_a_level_s():
    rows, inner, columns = SIZES.product_shape()
    assert (rows, inner, columns) == (10, 8, 16)
    assert SIZES.product_flops() == 6 * 10 * 8 * 16
