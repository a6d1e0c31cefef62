"""The configs of DRAW: presets, sizes counted without a model, and binarised pixels."""

import functools

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from trainers.drawing import models
from trainers.models.cells import CELLS
from trainers.models.kinds import count_parameters
from trainers.tasks import config as configs
from trainers.tasks import registry, schema
from trainers.training import variables

SHAPE = (28, 28, 1)


@pytest.mark.parametrize("task", registry.trained_by("trainers.draw"))
def test_every_preset_is_valid(task):
    for config in configs.presets(task):
        schema.check(config)
        assert "model.units" not in schema.may_change(config)
        shape = (*registry.OWN_TASKS[task].images.shape, 1)[:3]
        models.check(config, shape)
        assert models.need(config, shape).about > 0


@pytest.mark.parametrize("grids", [(3, 2), (None, None)])
@pytest.mark.parametrize("decoder", CELLS)
def test_parameters_are_counted_without_a_model(decoder, grids):
    config = configs.load("mnist", "small").copy_and_resolve_references()
    config.update_from_flattened_dict({"model.decoder": decoder, "model.units": 6})
    with config.unlocked():
        config.model.read, config.model.write = grids
    model = models.build(config, (7, 8, 3))
    assert models.parameters(config, (7, 8, 3)) == variables.parameters(model)
    cell = model.decoder_cell
    assert cell.count_params() == sum(
        np.prod(v.shape) for v in cell.trainable_variables
    )


def test_the_decoders_of_the_papers_svhn_have_its_parameters():
    """Kuo et al. print 2.88M and 0.42M; the second is that of the projected form."""
    config = configs.load("svhn", "paper")
    counts = {}
    for decoder in ("lstm", "ihc_lstm", "ihc_lstm_projected"):
        make = functools.partial(CELLS[decoder], config.model.units)
        counts[decoder] = count_parameters(make, (None, config.model.latent_units))
    assert counts == {
        "lstm": 2_883_200,
        "ihc_lstm": 490_100,
        "ihc_lstm_projected": 420_100,
    }


def test_pixels_are_drawn_with_their_grey_value_and_the_same_for_all_runs():
    grey = np.repeat(np.arange(256, dtype=np.uint8), 4000)
    drawn, again = (models.binarised(grey, "train") for _ in range(2))
    assert_array_equal(drawn, again)
    assert (drawn != models.binarised(grey, "test")).any()
    assert set(drawn) == {0, 255}
    share = drawn.reshape(256, -1).mean(axis=1)
    assert_allclose(share, np.arange(256), atol=10)
    assert share[0] == 0 and share[255] == 255
